# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: each has a network of its own, joined to the others by a cable to one switch, and a name of its own.

A host is a network and a UTS namespace, held by a sleeping process; the switch is a bridge in the network of the caller, which must be that of
isolation.isolate(). Open MPI takes processes on different hosts for remote: they share no memory and talk TCP. Cables can be cut and slowed down.

    folder = isolation.isolate()
    with Hosts(4, folder) as hosts:
        job = Job(hosts.mpirun(8, ["./program"]), folder)
        hosts.cut(2)

With a command it runs that, under mpirun on hosts with two ranks each: python3 hosts.py HOSTS COMMAND..."""

import json
import os
import subprocess
import sys

import isolation
from processes import Job, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
NETWORK = "10.77.0"
COMMAND_SECONDS = 30


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    def __init__(self, count, folder, slots=2):
        isolation.need("ip", "tc", "mpirun", "nsenter", "hostname")
        if isolation.INSIDE not in os.environ:
            raise RuntimeError("hosts are made inside isolation.isolate() only, so that the machine's own network stays as it is")
        self.folder = folder
        self.slots = slots
        self.names = [f"starling{index}" for index in range(count)]
        self.holders = []
        self.agent = os.path.join(HERE, "enter_host")

    def __enter__(self):
        try:
            self.make_switch()
            for index in range(len(self.names)):
                self.make_host(index)
            self.write_names()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
        self.holders = []
        subprocess.run(["ip", "link", "delete", "switch"], capture_output=True, timeout=COMMAND_SECONDS)

    def make_switch(self):
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")

    def make_host(self, index):
        name = self.names[index]
        os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && ip link set lo up && exec sleep infinity"],
                                  stdin=subprocess.DEVNULL)
        self.holders.append(holder)
        if not wait_until(lambda: self.is_ready(holder), COMMAND_SECONDS):
            raise RuntimeError(f"host {name} did not come up")
        with open(os.path.join(self.folder, name, "pid"), "w") as file:
            file.write(f"{holder.pid}\n")
        run("ip", "link", "add", f"port{index}", "type", "veth", "peer", "name", "cable", "netns", str(holder.pid))
        run("ip", "link", "set", f"port{index}", "master", "switch", "up")
        inside = self.inside(index)
        run(*inside, "ip", "address", "add", f"{self.address(index)}/24", "dev", "cable")
        run(*inside, "ip", "link", "set", "cable", "up")

    def is_ready(self, holder):
        try:
            with open(f"/proc/{holder.pid}/comm") as file:
                return file.read().strip() == "sleep"
        except OSError:
            return False

    def write_names(self):
        """The hosts know each other by name: a file of their own stands over /etc/hosts, in the mounts of this test only."""
        path = os.path.join(self.folder, "hosts")
        with open(path, "w") as file:
            file.write("127.0.0.1 localhost\n")
            file.writelines(f"{self.address(index)} {name}\n" for index, name in enumerate(self.names))
        run("mount", "--bind", path, "/etc/hosts")

    def address(self, index):
        return f"{NETWORK}.{index + 1}"

    def inside(self, index):
        """What to put before a command so that it runs on that host. It replaces itself by the command: the process stays the same."""
        return ["nsenter", "--target", str(self.holders[index].pid), "--net", "--uts", "--"]

    def host_of(self, pid):
        """The index of the host a process runs on, or None."""
        try:
            network = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return None
        for index, holder in enumerate(self.holders):
            if os.readlink(f"/proc/{holder.pid}/ns/net") == network:
                return index
        return None

    def mpirun(self, ranks, command, options=(), on=0):
        """The command under mpirun, started on host `on`: ranks go to hosts in order, as many on each as it has slots."""
        hostfile = os.path.join(self.folder, "hostfile")
        with open(hostfile, "w") as file:
            file.writelines(f"{name} slots={self.slots}\n" for name in self.names)
        mca = {"plm_rsh_agent": f"{self.agent} {self.folder}", "plm_rsh_no_tree_spawn": "1", "pml": "ob1", "btl": "tcp,vader,self",
               "btl_tcp_if_include": f"{NETWORK}.0/24", "oob_tcp_if_include": f"{NETWORK}.0/24",
               # A cable that is cut is noticed after 3 to 4 seconds: before the ranks give up, see docs/clusters.md.
               "oob_tcp_keepalive_time": "1", "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3",
               # All hosts have the same few cores. Open MPI cannot know, and would let every waiting rank spin.
               "mpi_yield_when_idle": "1", "hwloc_base_binding_policy": "none"}
        flags = [word for name, value in mca.items() for word in ("--mca", name, value)]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        temporary = ["env", f"TMPDIR={os.path.join(self.folder, self.names[on])}"]
        return [*self.inside(on), *temporary, "mpirun", *root, "--hostfile", hostfile, "-n", str(ranks), *flags, *options, *command]

    def bytes_received(self, index):
        """How much the switch has received from a host so far."""
        return json.loads(run("ip", "-json", "-statistics", "link", "show", "dev", f"port{index}"))[0]["stats64"]["rx"]["bytes"]

    def cut(self, index):
        """Nothing passes any more between this host and the others, and nobody is told: as with a cable that is pulled out of the switch."""
        run("ip", "link", "set", f"port{index}", "nomaster")

    def unplug(self, index):
        """As cut, but the host sees that its own cable is dead."""
        run("ip", "link", "set", f"port{index}", "down")

    def restore(self, index):
        run("ip", "link", "set", f"port{index}", "master", "switch")
        run("ip", "link", "set", f"port{index}", "up")

    def shape(self, index, rate):
        """Limits what the host sends and what it receives to a rate in the words of tc, such as 50mbit; None takes the limits away."""
        ends = [(self.inside(index), "cable"), ([], f"port{index}")]
        for inside, device in ends:
            if rate is None:
                run(*inside, "tc", "qdisc", "delete", "dev", device, "root")
            else:
                run(*inside, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    folder = isolation.isolate()
    with Hosts(count, folder) as hosts, Job(hosts.mpirun(2 * count, sys.argv[2:] or ["hostname"]), folder) as job:
        code = job.wait(600)
        print(job.out, end="")
        print(job.error, end="", file=sys.stderr)
        print("left over:", job.leftovers(5) or "nothing")
        return code


if __name__ == "__main__":
    sys.exit(main())
