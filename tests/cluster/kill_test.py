# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""Ranks of `starling train` that are killed or stopped under mpirun: python3 kill_test.py PROGRAM [ROUNDS [SEED]].

A worker, the server and rank 0 are each killed in the middle of ROUNDS runs (20 if it is not said), and a worker is stopped in a quarter as many. Every
time the job must end by itself and say which rank it was, leave no process behind, and leave a checkpoint that is good. A rank that hangs before
the first step ends the job too."""

import os
import random
import re
import signal
import sys
import time

import isolation
from processes import Job
from training import Cases, LONG, SMALL, TIMEOUT_SECONDS, await_middle, ended, expect, expect_good_checkpoint, expect_resumes, short_timeout

RANKS = 4  # Workers 0, 1 and 2; the server is the last rank.
END_SECONDS = TIMEOUT_SECONDS + 15
START_SECONDS = 4


class KillTest:
    def __init__(self, program, folder, seed):
        self.program = program
        self.folder = folder
        self.random = random.Random(seed)
        self.number = 0
        self.longest_seconds = 0.0

    def start(self, run, before=(), environment=None):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # Four ranks may be more than there are cores; then a rank that waits must let others run.
        launcher = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
        train = [self.program, "train", *LONG, "--strategy", "async", "--config", short_timeout(self.folder), "--out", run]
        return Job([*launcher, *before, *train], self.folder, environment)

    def round(self, rank, number, resume):
        self.number += 1
        run = os.path.join(self.folder, f"run-{self.number}")
        with self.start(run) as job:
            await_middle(job, run, self.random.randrange(10, 60))
            time.sleep(self.random.uniform(0, 0.4))
            pid = job.pid_of_rank(rank, self.program)
            expect(pid is not None, f"rank {rank} is not there:\n{job.tail()}")
            os.kill(pid, number)
            code, seconds = ended(job, END_SECONDS)
            expect(code != 0, f"exit code 0:\n{job.tail()}")
            expect(re.search(rf"\brank {rank}\b", job.error), f"no message names rank {rank}:\n{job.error[-3000:]}")
        self.longest_seconds = max(self.longest_seconds, seconds)
        expect_good_checkpoint(self.program, run)
        if resume:
            expect_resumes(self.program, run)
        return f"ended after {seconds:.1f} s with {code}{', resumed' if resume else ''}"


    def fails_before_the_first_step(self, shell, expected, expected_code):
        """Rank 1 does what the shell says before or instead of going on, and the others must not wait for it for ever."""
        script = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then {shell}; fi; exec "$@"'
        self.number += 1
        run = os.path.join(self.folder, f"run-{self.number}")
        with self.start(run, ["sh", "-c", script, "sh"], {"STARLING_START_TIMEOUT": f"{START_SECONDS}s"}) as job:
            code, seconds = ended(job, END_SECONDS + START_SECONDS)
            expect(code == expected_code, f"exit code {code}:\n{job.tail()}")
            expect(expected in job.error, f"it does not say '{expected}':\n{job.error[-3000:]}")
        return f"ended after {seconds:.1f} s with {code}"


def with_word(word, other):
    """Puts something else in the place of one word of the command, in a shell."""
    return f'for word; do shift; if [ "$word" = "{word}" ]; then set -- "$@" {other}; else set -- "$@" "$word"; fi; done'


def main():
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 31)
    folder = isolation.isolate(required=False)
    isolation.need("mpirun")
    print(f"{rounds} rounds, seed {seed}", flush=True)
    test = KillTest(program, folder, seed)
    cases = Cases()
    for index in range(rounds):
        for name, rank in (("a worker", 1), ("the server", RANKS - 1), ("rank 0", 0)):
            cases.run(f"round {index + 1}: kill -9 of {name}", test.round, rank, signal.SIGKILL, index % 4 == 0)
    for index in range(max(1, rounds // 4)):
        cases.run(f"round {index + 1}: SIGSTOP of a worker", test.round, 1, signal.SIGSTOP, index % 4 == 0)
    cases.run("a rank stops before it joins", test.fails_before_the_first_step, "kill -STOP $$", f"MPI has not started within {START_SECONDS} s", 1)
    fifo = os.path.join(folder, "fifo")
    os.mkfifo(fifo)
    cases.run("a rank hangs while it reads its files", test.fails_before_the_first_step, with_word(short_timeout(folder), fifo),
              f"rank 1 has not come to the start within {START_SECONDS} s", 1)
    missing = "fashion-mnist --data-folder /nonexistent"
    cases.run("a rank has no data", test.fails_before_the_first_step, with_word(SMALL[SMALL.index("--data") + 1], missing), "starling: rank 1: ", 2)
    print(f"the longest took {test.longest_seconds:.1f} s to end")
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
