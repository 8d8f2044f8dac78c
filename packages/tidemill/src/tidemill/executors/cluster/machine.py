"""Start and end the agents of one machine, independently of the scheduler that places instances there."""

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.core.files import read_json, write_durably
from tidemill.core.instances import InstanceRef
from tidemill.core.process import ProcessId
from tidemill.instance.process_tree import kill_marked

ASSIGNMENT_FILE = "assignment.json.gz"
LOCK_FILE = "agent.lock"
"""Locked by an agent while it runs, before it writes `PROCESS_FILE`."""
PROCESS_FILE = "agent.json"
_LOG_FILE = "agent.log"
_KILL_TIMEOUT_S = 10.0


class Machine:
    """Starts and ends agents on this machine.

    Args:
        root: Directory of the instances of this machine. Other machines may use it, too, if it has locks.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def start(self, ref: InstanceRef, assignment: bytes, *, gpus: tuple[str, ...] | None = None) -> None:
        """Start an agent in a new session, which outlives this process. Repeating it changes nothing.

        Args:
            assignment: The serialized `Assignment` of the agent.
            gpus: GPUs that the script may use, in the format of CUDA_VISIBLE_DEVICES. Default: all of the machine.

        Raises:
            OSError: The agent cannot be started.
        """
        directory = self.prepare(ref, assignment)
        log = os.open(directory / _LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        streams = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate((null, log, log))]
        try:
            command = [sys.executable, "-I", "-m", "tidemill.node", str(directory)]
            command += [] if gpus is None else [",".join(gpus)]
            os.posix_spawn(sys.executable, command, os.environ, file_actions=streams, setsid=True)
        finally:
            os.close(log)
            os.close(null)

    def prepare(self, ref: InstanceRef, assignment: bytes) -> Path:
        """Return the directory of an instance, from which an agent can run it. Repeating it changes nothing.

        Args:
            assignment: The serialized `Assignment` of the agent.

        Raises:
            OSError: The directory cannot be written.
        """
        remove_remains(self._root)
        directory = self._directory(ref)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (directory / ASSIGNMENT_FILE).exists():
            write_durably(directory / ASSIGNMENT_FILE, assignment)
        return directory

    def kill(self, ref: InstanceRef) -> None:
        """Send SIGKILL to the agent of an instance and to all processes of the instance.

        Args:
            ref: The attempt; one that does not run here is no error.
        """
        agent = self._agent(ref)
        if agent is not None:
            with contextlib.suppress(ProcessLookupError):
                if agent.certainly_alive:
                    os.kill(agent.pid, signal.SIGKILL)
            deadline_s = time.monotonic() + _KILL_TIMEOUT_S
            while agent.alive and time.monotonic() < deadline_s:
                _reap(agent.pid)
                time.sleep(0.01)
            _reap(agent.pid)
        kill_marked(ref.mark)

    def clean(self, ref: InstanceRef) -> None:
        """Kill an instance and remove its files.

        Args:
            ref: The attempt.
        """
        self.kill(ref)
        with contextlib.suppress(OSError):  # the next agent tries again
            remove_tree(self._directory(ref))

    def _agent(self, ref: InstanceRef) -> ProcessId | None:
        return _process(self._directory(ref) / PROCESS_FILE)

    def _directory(self, ref: InstanceRef) -> Path:
        # The job's id is safe in a path: the service's API and the executor only pass hexadecimal ids.
        return self._root / f"{ref.job_id}-{ref.instance_index}-{ref.attempt}"


def remove_remains(root: Path) -> None:
    """Remove the files of instances of this machine whose agents were killed, e.g. with the whole machine.

    Args:
        root: Directory of the instances.
    """
    for file in root.glob(f"*/{PROCESS_FILE}"):
        value = read_json(file) or {}
        if value.get("host") != socket.gethostname():
            continue
        with contextlib.suppress(OSError), (file.parent / LOCK_FILE).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(file.parent)


def _process(file: Path) -> ProcessId | None:
    value = read_json(file)
    return ProcessId(*value["id"]) if value else None


def _reap(pid: int) -> None:
    """Collect the exit status of an agent that this process started."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
