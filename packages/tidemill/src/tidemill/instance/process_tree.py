"""Finds and kills the processes of an instance by the mark that each of them has.

The mark is the variable ``TIDEMILL_INSTANCE`` in a process's environment. It finds processes that have left their
process group, session and parent. A pid namespace needs neither method, since all its processes die together.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tidemill._shared.descendants import descendants

MARK = "TIDEMILL_INSTANCE"

_ROUNDS = 500
_ROUND_S = 0.01


def kill_marked(mark: str) -> None:
    """Send SIGKILL to every process with ``mark`` in its environment, until none is left.

    Args:
        mark: Mark of the instance, ``JOB/INDEX``.
    """
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS):
        pids = [pid for pid in _all_pids() if pid != os.getpid() and _is_marked(pid, wanted)]
        if not pids:
            return
        for pid in pids:
            _kill(pid)
        time.sleep(_ROUND_S)


def marked(start: str) -> Iterator[tuple[int, str]]:
    """Yield the id and the mark of each process whose mark has this start.

    Args:
        start: Begin of the mark.
    """
    wanted = f"{MARK}={start}".encode()
    for pid in _all_pids():
        for variable in _environment(pid):
            if variable.startswith(wanted):
                yield pid, variable.partition(b"=")[2].decode(errors="replace")


def namespace_init(root: int) -> int | None:
    """Return process 1 of the pid namespace that a process below ``root`` created; None if none did.

    Args:
        root: Process id of an ancestor.
    """
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            ids = next((line.split() for line in lines if line.startswith("NSpid:")), ["NSpid:"])
            if len(ids) > 2 and ids[-1] == "1":
                return pid
    return None


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, called often


def _is_marked(pid: int, wanted: bytes) -> bool:
    return wanted in _environment(pid)


def _environment(pid: int) -> list[bytes]:
    """Return the variables with which a process was started; none if it has exited, or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
