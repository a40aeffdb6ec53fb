# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""A Slurm for one test: munged, slurmctld, and a slurmd on every host, with configuration, state, logs and sockets in one folder.

Nothing in /etc or /var is read or written. Commands run on the first host, as does slurmctld.

    folder = isolation.isolate()
    with Hosts(2, folder) as hosts, Slurm(folder, hosts) as slurm:
        job = slurm.job(["srun", "-n", "4", "--mpi=pmix", "./program"])

With a command it runs that, on hosts with two processors each: python3 slurm.py HOSTS srun -n 4 --mpi=pmix COMMAND..."""

import os
import signal
import subprocess
import sys

import isolation
from hosts import Hosts
from processes import Job, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue", "mpirun")
START_SECONDS = 60
END_SECONDS = 20
CONTROLLER_PORT = 16817
NODE_PORT = 16818

CONFIGURATION = """
ClusterName=starling
SlurmctldHost={controller}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MailProg=/bin/true
KillWait={kill_wait}
InactiveLimit=0
SchedulerParameters=sched_min_interval=0
NodeName={nodes} CPUs={cpus} State=UNKNOWN
PartitionName=test Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, folder, hosts, cpus=2, kill_wait=30):
        isolation.need(*PROGRAMS)
        self.folder = os.path.join(folder, "slurm")  # Short: paths of sockets have at most 107 characters.
        self.hosts = hosts
        self.nodes = hosts.names
        self.cpus = cpus
        self.kill_wait = kill_wait
        self.daemons = []
        self.jobs = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        os.chmod(os.path.dirname(self.folder), 0o755)  # munged insists that everybody may reach its socket.
        for name in ("", "state", *self.nodes):
            os.makedirs(os.path.join(self.folder, name), mode=0o755)
        self.environment = {"SLURM_CONF": self.path("slurm.conf")}
        with open(self.path("slurm.conf"), "w") as file:
            file.write(CONFIGURATION.format(controller=self.nodes[0], nodes=",".join(self.nodes), controller_port=CONTROLLER_PORT, node_port=NODE_PORT, folder=self.folder,
                                            cpus=self.cpus, kill_wait=self.kill_wait))
        # Nothing is asked of cgroups or systemd.
        with open(self.path("cgroup.conf"), "w") as file:
            file.write("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        with open(self.path("munge.key"), "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(128))
        self.daemon(0, "munged", "--foreground", "--force", f"--socket={self.path('munge.socket')}", f"--key-file={self.path('munge.key')}",
                    f"--log-file={self.path('munged.log')}", f"--pid-file={self.path('munged.pid')}", f"--seed-file={self.path('munged.seed')}")
        if not wait_until(lambda: os.path.exists(self.path("munge.socket")), START_SECONDS):
            raise RuntimeError(f"munged did not start:\n{self.log('munged-0.out')}")
        self.daemon(0, "slurmctld", "-D", "-i", "-f", self.path("slurm.conf"))
        for index, node in enumerate(self.nodes):
            self.daemon(index, "slurmd", "-D", "-f", self.path("slurm.conf"), "-N", node)
        wait_until(lambda: self.is_idle() or any(daemon.poll() is not None for daemon in self.daemons), START_SECONDS, every=0.3)
        if not self.is_idle():
            raise RuntimeError(f"the nodes did not become idle:\n{self.log('slurmctld.log')}\n{self.log(self.nodes[0] + '/slurmd.log')}")

    def on(self, index):
        """What to put before a command so that it runs on a node."""
        return self.hosts.inside(index)

    def daemon(self, index, *command):
        with open(self.path(f"{command[0]}-{index}.out"), "wb") as out:
            self.daemons.append(subprocess.Popen([*self.on(index), *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **self.environment}))

    def path(self, name):
        return os.path.join(self.folder, name)

    def log(self, name, lines=15):
        try:
            with open(self.path(name), errors="replace") as file:
                return "\n".join(file.read().splitlines()[-lines:])
        except OSError:
            return f"no {name}"

    def command(self, *command, seconds=START_SECONDS):
        """The output of one of Slurm's own commands; empty where it fails."""
        try:
            done = subprocess.run([*self.on(0), *command], capture_output=True, text=True, timeout=seconds, env={**os.environ, **self.environment})
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def is_idle(self):
        return self.command("sinfo", "--noheader", "--format=%D %T") == f"{len(self.nodes)} idle"

    def why_no_pmix(self):
        """Why this Slurm cannot start ranks of Open MPI; empty if it can. It lists PMIx also where the library is missing, so it has to try."""
        with self.job(["srun", "-n", "1", "--mpi=pmix", "true"]) as job:
            return job.tail() if job.wait(START_SECONDS) else ""

    def clear(self):
        """Ends all jobs that are left, as after a test that failed."""
        self.command("scancel", "--user", "root", "--signal=KILL")
        self.command("scancel", "--user", "root")
        return wait_until(self.is_idle, START_SECONDS, every=0.3)

    def job(self, command, environment=None):
        """The command with this Slurm in its environment: srun, or sbatch --wait."""
        job = Job([*self.on(0), *command], self.folder, {**self.environment, **(environment or {})})
        self.jobs.append(job)
        return job

    def close(self):
        for job in self.jobs:
            job.end()
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []


def main():
    folder = isolation.isolate()
    with Hosts(int(sys.argv[1]), folder) as hosts, Slurm(folder, hosts) as slurm:
        job = slurm.job(sys.argv[2:])
        code = job.wait(600)
        print(job.out, end="")
        print(job.error, end="", file=sys.stderr)
        print("left over:", job.leftovers(5) or "nothing")
        return code


if __name__ == "__main__":
    sys.exit(main())
