# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""`starling train` under Slurm, on two hosts with two ranks each: python3 slurm_test.py PROGRAM [CASE...].

srun starts the ranks by itself, by PMIx; a batch script; a job that is asked to stop, cancelled, loses a rank or a host. Exits with 77 where Slurm cannot be
started."""

import os
import signal
import sys
import time

import isolation
from hosts import Hosts
from processes import wait_until
from slurm import Slurm
from training import (Cases, LONG, RUN_SECONDS, SMALL, TIMEOUT_SECONDS, await_middle, expect, expect_good_checkpoint, expect_resumes, finished, reference,
                      result_of, short_timeout)

RANKS = 4
END_SECONDS = TIMEOUT_SECONDS + 15
KILL_WAIT_SECONDS = 5


class SlurmTest:
    def __init__(self, program, folder, slurm):
        self.program = program
        self.folder = folder
        self.slurm = slurm
        self.number = 0

    def new_run(self):
        self.number += 1
        return os.path.join(self.folder, f"run-{self.number}")

    def train(self, run, *flags):
        expect(self.slurm.clear(), "the nodes do not become idle")
        return self.slurm.job(["srun", "-n", str(RANKS), "--mpi=pmix", self.program, "train", "--out", run, "--json", *flags])

    def same_weights(self):
        flags = [*SMALL, "--strategy", "sync", "--epochs", "1"]
        with self.train(self.new_run(), *flags) as job:
            result = finished(job)
        expect(result["workers"] == RANKS and result["fabric"] == "mpi", f"{result['workers']} workers on fabric {result['fabric']}")
        digest = reference(self.program, self.folder, "threads", RANKS, *flags)
        expect(digest == result["weights_sha256"], f"weights differ from those on threads: {result['weights_sha256']}, {digest}")

    def server(self):
        with self.train(self.new_run(), *SMALL, "--strategy", "async", "--epochs", "1") as job:
            result = finished(job)
        expect(result["workers"] == RANKS - 1 and result["servers"] == 1, f"{result['workers']} workers, {result['servers']} servers")

    def without_pmix(self):
        with self.slurm.job(["srun", "-n", str(RANKS), "--mpi=none", self.program, "train", *SMALL, "--out", self.new_run()]) as job:
            expect(job.wait(RUN_SECONDS) == 2, f"a mistake must end with 2:\n{job.tail()}")
            expect("give srun --mpi=pmix" in job.error, f"it does not say what to do:\n{job.tail()}")

    def batch(self, launcher):
        """A batch script, to its end; returns the result."""
        run = self.new_run()
        script = self.slurm.path("job.sh")
        root = "--allow-run-as-root --bind-to none" if launcher == "mpirun" else "--mpi=pmix"
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\n#SBATCH --ntasks={RANKS}\n"
                       f"{launcher} {root} {self.program} train --model 'dense 8, relu, dense 3' --data blobs:classes=3,samples=2400 --batch 8 "
                       f"--strategy sync --epochs 1 --out {run} --json\n")
        output = self.slurm.path(f"{launcher}.out")
        with self.slurm.job(["sbatch", "--wait", "--output", output, script]) as job:
            code = job.wait(RUN_SECONDS)
            with open(output) as file:
                text = file.read()
            expect(code == 0, f"sbatch ended with {code}:\n{job.tail()}\n{text}")
            expect(not job.leftovers(5), f"left over: {job.leftovers(0)}")
        result = result_of(text)
        expect(result["workers"] == RANKS and result["balanced"], f"{result['workers']} workers")

    def asked_to_stop(self, ask):
        run = self.new_run()
        with self.train(run, *LONG, "--strategy", "async") as job:
            await_middle(job, run)
            ask(job)
            begin = time.monotonic()
            code = job.wait(END_SECONDS)
            seconds = time.monotonic() - begin
            expect(not job.leftovers(5), f"left over: {job.leftovers(0)}")
            expect(code == 130, f"exit code {code}:\n{job.tail()}")
            expect("Interrupted. To go on:" in job.error, f"it did not come to a halt in good order:\n{job.tail()}")
        expect_good_checkpoint(self.program, run)
        expect_resumes(self.program, run)
        return f"ended after {seconds:.1f} s with {code}"

    def signal_all(self, name):
        self.slurm.command("scancel", f"--signal={name}", self.job_number())

    def job_number(self):
        numbers = self.slurm.command("squeue", "--noheader", "--states=running", "--format=%i").split()
        expect(len(numbers) == 1, f"there must be one job, but there are {numbers}")
        return numbers[0]

    def ended(self, end, rank=None, undo=None):
        """A job that is ended from outside: nothing is left, and its last checkpoint is good."""
        run = self.new_run()
        with self.train(run, *LONG, "--strategy", "async", "--config", short_timeout(self.folder)) as job:
            await_middle(job, run)
            end(job)
            begin = time.monotonic()
            code = job.wait(END_SECONDS)
            seconds = time.monotonic() - begin
            expect(not job.leftovers(5), f"left over: {job.leftovers(0)}")
            expect(code != 0, f"exit code 0:\n{job.tail()}")
            named = f"task {rank}:" in job.error or f"rank {rank}" in job.error
            expect(rank is None or named, f"no message names rank {rank}:\n{job.error[-3000:]}")
        expect_good_checkpoint(self.program, run)
        expect_resumes(self.program, run)
        if undo:
            undo()
        expect(wait_until(self.slurm.is_idle, 120, every=0.3), "the nodes do not become idle again")
        return f"ended after {seconds:.1f} s with {code}"


def main():
    program = os.path.abspath(sys.argv[1])
    folder = isolation.isolate()
    with Hosts(2, folder) as hosts, Slurm(folder, hosts, kill_wait=KILL_WAIT_SECONDS) as slurm:
        reason = slurm.why_no_pmix()
        if reason:
            isolation.skip(f"this Slurm does not start programs by PMIx:\n{reason}")
        test = SlurmTest(program, folder, slurm)
        cases = Cases(sys.argv[2:])
        cases.run("srun: sync gives the weights of threads", test.same_weights)
        cases.run("srun: async has a server", test.server)
        cases.run("srun without PMIx is a mistake", test.without_pmix)
        cases.run("sbatch with srun", test.batch, "srun")
        cases.run("sbatch with mpirun", test.batch, "mpirun")
        cases.run("scancel --signal=USR1 stops with a checkpoint", test.asked_to_stop, lambda job: test.signal_all("USR1"))
        cases.run("scancel --signal=TERM stops with a checkpoint", test.asked_to_stop, lambda job: test.signal_all("TERM"))
        cases.run("scancel stops with a checkpoint", test.asked_to_stop, lambda job: slurm.command("scancel", test.job_number()))
        cases.run("kill -9 of a worker", test.ended, lambda job: os.kill(job.pid_of_rank(1, program), signal.SIGKILL), 1)
        cases.run("kill -9 of the server", test.ended, lambda job: os.kill(job.pid_of_rank(3, program), signal.SIGKILL), 3)
        cases.run("SIGSTOP of a worker", test.ended, lambda job: os.kill(job.pid_of_rank(1, program), signal.SIGSTOP), 1)
        cases.run("a cable is cut", test.ended, lambda job: hosts.cut(1), None, lambda: hosts.restore(1))
        return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
