# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""`starling train` under mpirun on four hosts with two ranks each, TCP between them: python3 hosts_test.py PROGRAM [CASE...].

Weights are the same as without MPI; every strategy balances its books; a slow network changes the time only; a cable that is cut ends the whole
job, on all hosts, and the run can be resumed. Exits with 77 where hosts cannot be made."""

import os
import re
import signal
import subprocess
import sys

import isolation
from hosts import Hosts
from processes import Job
from training import (Cases, LENET, LONG, RUN_SECONDS, SMALL, TIMEOUT_SECONDS, await_middle, ended, epochs_to_go_on, expect, expect_good_checkpoint,
                      expect_resumes, finished, reference, short_timeout)

HOSTS = 4
RANKS = 8
# A cut cable: mpirun notices it after four seconds, and then ends its own ranks and after them those of the other hosts; the rest is for a busy machine.
END_SECONDS = TIMEOUT_SECONDS + 20
# Two seconds before SIGTERM and two before SIGKILL, so that ranks on a busy machine can say what they miss.
PATIENT = ["--mca", "odls_base_sigkill_timeout", "2"]


class HostsTest:
    def __init__(self, program, folder, hosts):
        self.program = program
        self.folder = folder
        self.hosts = hosts
        self.number = 0

    def new_run(self):
        self.number += 1
        return os.path.join(self.folder, f"run-{self.number}")

    def train(self, run, *flags, options=()):
        return Job(self.hosts.mpirun(RANKS, [self.program, "train", "--out", run, "--json", *flags], options), self.folder)

    def mistake(self):
        with self.train(self.new_run(), *SMALL, "--strategy", "async", "--workers", "5") as job:
            expect(job.wait(RUN_SECONDS) == 2, f"a mistake must end with 2:\n{job.tail()}")
            said = re.findall(r"starling: (rank \d+: )?5 workers, 1 server are 6 ranks, but 8 processes were started", job.error)
            expect(said, f"it does not say what is wrong:\n{job.tail()}")
            expect(said.count("") <= 1, f"only rank 0 speaks without its number:\n{job.tail()}")

    def hosts_are_apart(self):
        with Job(self.hosts.mpirun(RANKS, ["hostname"]), self.folder) as job:
            expect(job.wait(RUN_SECONDS) == 0, job.tail())
            expect(sorted(job.out.split()) == sorted(self.hosts.names * 2), f"two ranks on each host, but they were on {job.out.split()}")

    def same_weights(self):
        flags = [*SMALL, "--strategy", "sync", "--epochs", "1"]
        before = [self.hosts.bytes_received(index) for index in range(HOSTS)]
        run = self.new_run()
        with self.train(run, *flags) as job:
            result = finished(job)
            roles = "ranks 0-7 workers; hosts starling0 (0-1), starling1 (2-3), starling2 (4-5), starling3 (6-7)"
            expect(job.error.count(roles) == 1, f"rank 0 does not say which rank is what, and where:\n{job.tail()}")
        moved = [self.hosts.bytes_received(index) - count for index, count in enumerate(before)]
        expect(result["workers"] == RANKS and result["fabric"] == "mpi", f"{result['workers']} workers on fabric {result['fabric']}")
        expect(min(moved) > 20000, f"the hosts did not talk to each other: {moved} bytes came from them")
        expect(os.path.exists(os.path.join(run, "result.json")), "rank 0 has left no result.json")
        for fabric in ("threads", "sim"):
            digest = reference(self.program, self.folder, fabric, RANKS, *flags)
            expect(digest == result["weights_sha256"], f"weights differ from those on {fabric}: {result['weights_sha256']}, {digest}")
        return f"sha256 {result['weights_sha256'][:12]}, {sum(moved) / 1e6:.1f} MB between hosts"

    def delay(self, text, least_ms):
        """A delay is drawn up when the number of workers is known: least_ms per step on every worker."""
        with self.train(self.new_run(), *SMALL, "--strategy", "sync", "--epochs", "1", "--delay", text) as job:
            workers = finished(job)["workers_time"]
        per_step = [1000 * worker["compute_seconds"] / worker["steps"] for worker in workers]
        expect(len(per_step) == RANKS and all(mean >= least for mean, least in zip(per_step, least_ms)),
               f"the workers' own milliseconds per step are {[round(mean, 2) for mean in per_step]}")

    def strategy(self, name):
        with self.train(self.new_run(), *SMALL, "--strategy", name, "--epochs", "1") as job:
            result = finished(job)
            others = result["servers"] + (1 if name == "all-to-all" else 0)
            expect(result["strategy"] == name and result["workers"] == RANKS - others, f"{result['workers']} workers, {result['servers']} servers")
            updates = result["updates"]
            return f"{result['workers']} workers, {updates['applied']} of {updates['produced']} updates applied"

    def slow_network(self):
        flags = [*LENET, "--strategy", "sync", "--epochs", "1"]
        with self.train(self.new_run(), *flags) as job:
            fast = finished(job)
        for index in range(HOSTS):
            self.hosts.shape(index, "20mbit")
        try:
            with self.train(self.new_run(), *flags) as job:
                slow = finished(job)
        finally:
            for index in range(HOSTS):
                self.hosts.shape(index, None)
        digest = reference(self.program, self.folder, "threads", RANKS, *flags)
        expect(fast["weights_sha256"] == slow["weights_sha256"] == digest, "weights depend on the network")
        expect(slow["seconds"] > fast["seconds"], f"{slow['seconds']:.2f} s with 20 Mbit/s, {fast['seconds']:.2f} s without a limit")
        return f"{fast['seconds']:.2f} s without a limit, {slow['seconds']:.2f} s with 20 Mbit/s"

    def cut(self, host, strategy, take_down, again_under_mpirun):
        run = self.new_run()
        with self.train(run, *LONG, "--strategy", strategy, "--config", short_timeout(self.folder), options=PATIENT) as job:
            await_middle(job, run)
            take_down(host)
            try:
                code, seconds = ended(job, END_SECONDS)
            finally:
                self.hosts.restore(host)
            expect(code != 0, f"exit code 0:\n{job.tail()}")
            said = self.what_it_says(job, host)
        expect_good_checkpoint(self.program, run)
        epochs = epochs_to_go_on(run)
        if again_under_mpirun:
            with Job(self.hosts.mpirun(RANKS, [self.program, "train", "--resume", run, "--epochs", epochs, "--json"]), self.folder) as job:
                result = finished(job)
        else:
            result = expect_resumes(self.program, run)
        if strategy == "sync":
            digest = reference(self.program, self.folder, "sim", RANKS, *SMALL, "--strategy", "sync", "--epochs", epochs)
            expect(result["weights_sha256"] == digest, "resumed, it ends with other weights than a run that was never cut")
        return f"ended after {seconds:.1f} s with {code}: {said}"

    def stopped(self, rank, strategy):
        """A rank that hangs, while the others reach into its memory or wait for it."""
        run = self.new_run()
        with self.train(run, *LONG, "--strategy", strategy, "--config", short_timeout(self.folder), options=PATIENT) as job:
            await_middle(job, run)
            pid = job.pid_of_rank(rank, self.program)
            expect(pid is not None, f"rank {rank} is not there:\n{job.tail()}")
            os.kill(pid, signal.SIGSTOP)
            code, seconds = ended(job, END_SECONDS)
            expect(code != 0, f"exit code 0:\n{job.tail()}")
            expect(f"rank {rank} on starling{rank // 2} has not been heard of" in job.error, f"no message names rank {rank}:\n{job.tail()}")
        expect_good_checkpoint(self.program, run)
        expect_resumes(self.program, run)
        return f"ended after {seconds:.1f} s with {code}"

    def asked_to_stop(self, number, expected):
        run = self.new_run()
        with self.train(run, *LONG, "--strategy", "async", options=PATIENT) as job:
            await_middle(job, run)
            job.process.send_signal(number)
            code, seconds = ended(job, END_SECONDS)
            expect(code == expected, f"exit code {code}:\n{job.tail()}")
            expect("Interrupted. To go on:" in job.error, f"it did not come to a halt in good order:\n{job.tail()}")
        expect_good_checkpoint(self.program, run)
        expect_resumes(self.program, run)
        return f"ended after {seconds:.1f} s with {code}"

    def fewer_and_more(self, strategy):
        """A run goes on with as many ranks as are started, on other hosts than before."""
        run = self.new_run()
        with self.train(run, *SMALL, "--strategy", strategy, "--epochs", "1") as job:
            first = finished(job)
        for ranks, epochs in ((5, "2"), (8, "3")):
            with Job(self.hosts.mpirun(ranks, [self.program, "train", "--resume", run, "--epochs", epochs, "--json"]), self.folder) as job:
                last = finished(job)
            expect(last["workers"] == ranks - last["servers"], f"{last['workers']} workers and {last['servers']} servers on {ranks} ranks")
        expect(last["samples"] == 3 * first["samples"], f"{last['samples']} samples after three epochs, {first['samples']} after one")
        return f"{last['updates']['applied']} of {last['updates']['produced']} updates applied"

    def what_it_says(self, job, host):
        """The message, seen where mpirun is, that names a rank beyond the cut."""
        beyond = range(2, RANKS) if host == 0 else (2 * host, 2 * host + 1)
        text = job.out + job.error
        said = [line.strip() for line in text.splitlines() if any(re.search(rf"starling: .*\brank {rank}\b", line) for rank in beyond)]
        expect(said, f"no message names one of the ranks {[*beyond]}:\n{text[-4000:]}")
        expect(len(said) == 1, f"one message is enough, but there are {len(said)}:\n{text[-4000:]}")
        return said[0]


def main():
    program = os.path.abspath(sys.argv[1])
    folder = isolation.isolate()
    with Hosts(HOSTS, folder) as hosts:
        test = HostsTest(program, folder, hosts)
        cases = Cases(sys.argv[2:])
        cases.run("two ranks run on each of four hosts", test.hosts_are_apart)
        cases.run("a mistake ends all ranks", test.mistake)
        cases.run("sync gives the weights of threads and sim", test.same_weights)
        cases.run("a delay reaches all workers", test.delay, "all:5ms", [5] * RANKS)
        cases.run("a delay of one is twice as long on worker 1", test.delay, "one:5ms", [5, 10, *[5] * (RANKS - 2)])
        listed = subprocess.run([program, "strategies"], capture_output=True, text=True, timeout=RUN_SECONDS).stdout.splitlines()
        for name in [line.split()[0] for line in listed if line.strip()]:
            if name != "sequential":
                cases.run(f"strategy {name} balances its books", test.strategy, name)
        for name in ("sync", "async"):
            cases.run(f"{name} goes on with fewer ranks and with more", test.fewer_and_more, name)
        cases.run("a slow network changes the time, not the weights", test.slow_network)
        cases.run("stop: SIGINT to mpirun", test.asked_to_stop, signal.SIGINT, 1)
        cases.run("stop: SIGTERM to mpirun", test.asked_to_stop, signal.SIGTERM, 1)
        cases.run("stop: SIGUSR1 to mpirun", test.asked_to_stop, signal.SIGUSR1, 130)
        cases.run("stopped: a worker, sync", test.stopped, 5, "sync")
        cases.run("stopped: rank 0, in whose memory the others work, hogwild", test.stopped, 0, "hogwild")
        cases.run("cut: a host far from mpirun, async, resumed on threads", test.cut, 2, "async", hosts.cut, False)
        cases.run("cut: a host far from mpirun, sync, resumed under mpirun", test.cut, 3, "sync", hosts.cut, True)
        cases.run("cut: the host of rank 0 and mpirun, async", test.cut, 0, "async", hosts.cut, False)
        cases.run("cut: a cable that its host sees is dead, sync", test.cut, 1, "sync", hosts.unplug, False)
        return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
