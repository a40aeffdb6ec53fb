# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""A machine within the machine for one test: namespaces of its own for processes, mounts, host name and network.

What a test starts in there cannot outlive it: when the first process of a PID namespace ends, however that comes about, the kernel ends all
others and takes devices and mounts away with them. No bridge, address or mount is ever seen outside."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile

INSIDE = "STARLING_TEST_FOLDER"
SKIPPED = 77  # What ctest takes for "skipped": SKIP_RETURN_CODE.
NAMESPACES = ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--ipc", "--uts", "--net"]

# The first process of the namespace. It reaps whatever loses its parent, so that what has ended is not taken for what is left.
FIRST_PROCESS = '"$@"; exit $?'


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


def missing(*programs):
    """Those of the programs that are not installed. Debian keeps some where only root looks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [program for program in programs if not shutil.which(program, path=path)]


def need(*programs):
    lacking = missing(*programs)
    if lacking:
        skip("not installed here: " + ", ".join(lacking))


def why_not():
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if missing("unshare", "nsenter", "setpriv"):
        return "namespaces need the programs unshare, nsenter and setpriv"
    try:
        trial = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"namespaces are not permitted here: {error}"
    return f"namespaces are not permitted here: {trial.stderr.strip()}" if trial.returncode else ""


def isolate(required=True):
    """Runs the calling script again in namespaces of its own and ends with its exit code; inside it returns a temporary folder, which is
    removed at the end. Where namespaces are not permitted the script is skipped, or, if they are not required, simply goes on with a folder."""
    if INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
        return os.environ[INSIDE]
    reason = why_not()
    if reason and required:
        skip(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = tempfile.mkdtemp(prefix="starling-cluster-")
    if reason:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    environment[INSIDE] = folder
    # If this process is killed, unshare is too, and with it all the rest. In a session of its own it hears no Ctrl-C: this process does.
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "sh", "-c", FIRST_PROCESS, "sh", sys.executable, *sys.argv],
                             env=environment, start_new_session=True)
    try:
        sys.exit(child.wait())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        end_namespace(child)
        shutil.rmtree(folder, ignore_errors=True)


def end_namespace(child):
    """Kills the first process of the namespace that unshare waits for; unshare then ends after all of the others have."""
    try:
        with open(f"/proc/{child.pid}/task/{child.pid}/children") as children:
            for pid in children.read().split():
                os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass  # It has ended.
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
