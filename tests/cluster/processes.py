# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""A command that a test starts, all the processes that come from it on all hosts, and their end.

Processes are known by a mark in their environment, which a child inherits and mpirun and srun pass on. Nothing else is ever signalled."""

import os
import signal
import subprocess
import time
import uuid

MARK = "STARLING_TEST_MARK"
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


class Hang(Exception):
    """A job did not end in time."""


def environment_of(pid):
    """The environment a process was started with; empty if it is gone, or not ours to see."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (pair.partition(b"=") for pair in file.read().split(b"\0"))
            return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
    except OSError:
        return {}


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [part.decode(errors="replace") for part in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def wait_until(condition, seconds, every=0.05):
    """Asks until the condition is true or the time is over; returns its last value."""
    end = time.monotonic() + seconds
    value = condition()
    while not value and time.monotonic() < end:
        time.sleep(every)
        value = condition()
    return value


class Job:
    """A command in a session of its own, its output in two files of the folder. Use it in a with statement: at its end no process is left."""

    def __init__(self, command, folder, environment=None):
        self.mark = uuid.uuid4().hex
        os.makedirs(folder, exist_ok=True)
        self.paths = [os.path.join(folder, f"{name}-{self.mark[:8]}.txt") for name in ("out", "error")]
        self.begin = time.monotonic()
        with open(self.paths[0], "wb") as out, open(self.paths[1], "wb") as error:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True,
                                            env={**os.environ, **(environment or {}), MARK: self.mark})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def pid(self):
        return self.process.pid

    @property
    def out(self):
        return self.read(0)

    @property
    def error(self):
        return self.read(1)

    def read(self, index):
        with open(self.paths[index], errors="replace") as file:
            return file.read()

    def wait(self, seconds):
        """The exit code; negative, as Python has it, for a signal."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Hang(f"still running after another {seconds:.0f} s, {self.seconds():.1f} s after its start:\n{self.tail()}") from None

    def seconds(self):
        return time.monotonic() - self.begin

    def tail(self, lines=25):
        return "\n".join(("  " + line) for line in (self.out + self.error).splitlines()[-lines:])

    def pids(self):
        """All living processes that come from this job. A zombie has no environment any more and is none of them."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and environment_of(name).get(MARK) == self.mark:
                found.append(int(name))
        return found

    def pid_of_rank(self, rank, program):
        """The process of an MPI rank that runs the program: launchers may hand the variables to shells in between."""
        for pid in self.pids():
            command = command_of(pid)
            environment = environment_of(pid)
            number = next((environment[name] for name in RANK_VARIABLES if name in environment), None)
            if number == str(rank) and command and os.path.basename(command[0]) == os.path.basename(program):
                return pid
        return None

    def leftovers(self, patience):
        """What is still there after so many seconds of grace: a list of texts, to be empty."""
        wait_until(lambda: not self.pids(), patience)
        return [f"{pid}: {' '.join(command_of(pid))[:150]}" for pid in self.pids()]

    def end(self):
        """Kills all that is left of the job. Repeated, since one process may start another meanwhile."""
        def one_round():
            pids = self.pids()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not pids
        wait_until(one_round, 20)
        self.process.wait(timeout=20)
