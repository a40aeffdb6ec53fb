# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""What the tests of `starling train` under MPI have in common: small runs, what they must say, and cases that are counted."""

import json
import os
import re
import subprocess
import time
import traceback

from processes import Hang, wait_until

RUN_SECONDS = 180  # The longest that a run of a test may take on a busy machine.
TIMEOUT_SECONDS = 5  # fabric.timeout of the runs that are to fail.
SMALL = ["--model", "dense 8, relu, dense 3", "--data", "blobs:classes=3,samples=2400", "--batch", "8"]
LENET = ["--model", "lenet5", "--data", "fashion-mnist:train=1024,test=256", "--batch", "16"]
# Long enough to be hit in the middle, with a checkpoint every few steps: 100 steps of 5 ms per epoch with three workers.
LONG = [*SMALL, "--delay", "all:5ms", "--epochs", "400", "--metrics-every", "2", "--checkpoint-interval", "300ms"]


class Failure(Exception):
    """What a case finds wrong."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Cases:
    """Runs cases one after the other, says what becomes of each, and counts. With names, only cases that have one of them in theirs."""

    def __init__(self, names=()):
        self.names = names
        self.passed = 0
        self.failed = 0

    def run(self, name, function, *arguments):
        if self.names and not any(wanted in name for wanted in self.names):
            return
        begin = time.monotonic()
        try:
            remark = function(*arguments)
        except (Failure, Hang) as failure:
            self.failed += 1
            print(f"FAILED {name}, {time.monotonic() - begin:.1f} s: {failure}", flush=True)
        except Exception:  # A case that breaks must not end the others.
            self.failed += 1
            print(f"FAILED {name}, {time.monotonic() - begin:.1f} s: {traceback.format_exc()}", flush=True)
        else:
            self.passed += 1
            print(f"passed {name}, {time.monotonic() - begin:.1f} s{': ' + remark if remark else ''}", flush=True)

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def short_timeout(folder):
    """A configuration file with the time-out of runs that are to fail; returns its path."""
    path = os.path.join(folder, "timeout.toml")
    with open(path, "w") as file:
        file.write(f'[fabric]\ntimeout = "{TIMEOUT_SECONDS}s"\n')
    return path


def result_of(text):
    """The object of --json: the last line that is one."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    expect(lines, f"there is no JSON object in\n{text}")
    try:
        return json.loads(lines[-1])
    except ValueError:
        raise Failure(f"this is no JSON object: {lines[-1][:300]}") from None


def alone(program, *flags):
    """`starling` without MPI, to its end: exit code, standard output, standard error."""
    done = subprocess.run([program, *flags], capture_output=True, text=True, timeout=RUN_SECONDS, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def reference(program, folder, fabric, workers, *flags):
    """The digest of the weights that the same run has without MPI."""
    path = os.path.join(folder, f"reference-{fabric}-{time.monotonic_ns()}")
    code, out, error = alone(program, "train", "--fabric", fabric, "--workers", str(workers), "--out", path, "--json", *flags)
    expect(code == 0, f"the reference on {fabric} ended with {code}:\n{out}{error}")
    return result_of(out)["weights_sha256"]


def finished(job, seconds=RUN_SECONDS):
    """The result of a job that must end well: exit code 0, one summary, books that balance, nothing left."""
    code = job.wait(seconds)
    expect(code == 0, f"exit code {code}:\n{job.tail()}")
    result = result_of(job.out)
    summaries = re.findall(r"^weights +sha256 ([0-9a-f]{64})$", job.out, re.MULTILINE)
    expect(summaries == [result["weights_sha256"]], f"there must be one summary, that of rank 0, but there are {len(summaries)}:\n{job.tail()}")
    expect(result["balanced"], f"the books do not balance: {result['updates']}")
    left = job.leftovers(10)
    expect(not left, f"left over: {left}")
    return result


def ended(job, seconds):
    """The exit code of a job that must end by itself in time, and how long it took; nothing may be left of it."""
    begin = time.monotonic()
    code = job.wait(seconds)
    taken = time.monotonic() - begin
    left = job.leftovers(5)
    expect(not left, f"left over: {left}")
    return code, taken


def steps_recorded(run):
    """How many records of steps a run has written, and the epoch of the last."""
    try:
        with open(os.path.join(run, "metrics.jsonl")) as file:
            records = [json.loads(line) for line in file if line.endswith("\n")]
    except (OSError, ValueError):
        return 0, 0.0
    steps = [record for record in records if record.get("kind") == "step"]
    return len(steps), steps[-1]["epoch"] if steps else 0.0


def await_middle(job, run, records=20):
    """Waits until the run has so many records of steps, and a checkpoint besides the first."""
    def is_there():
        if job.process.poll() is not None:
            return True
        return steps_recorded(run)[0] >= records and latest_checkpoint(run) not in ("", "step-00000000")
    arrived = wait_until(is_there, RUN_SECONDS)
    expect(arrived and job.process.poll() is None, f"the run did not get to its middle:\n{job.tail()}")


def latest_checkpoint(run):
    try:
        with open(os.path.join(run, "checkpoints", "latest")) as file:
            return file.read().strip()
    except OSError:
        return ""


def expect_good_checkpoint(program, run):
    code, out, error = alone(program, "evaluate", run)
    expect(code == 0, f"the checkpoint is damaged: evaluate ended with {code}:\n{out}{error}")


def epochs_to_go_on(run):
    """A number of epochs so that a run that is resumed has a little more to do than it has recorded."""
    return str(int(steps_recorded(run)[1]) + 2)


def expect_resumes(program, run):
    """Without MPI the run goes on, and ends well."""
    code, out, error = alone(program, "train", "--resume", run, "--epochs", epochs_to_go_on(run), "--json")
    expect(code == 0, f"resume ended with {code}:\n{out}{error}")
    result = result_of(out)
    expect(result["ending"] == "finished" and result["balanced"], f"resumed, it ended {result['ending']}, balanced {result['balanced']}")
    return result
