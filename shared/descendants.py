"""Find, kill and reap the descendants of a process. Standard library only; Python 3.7 or newer."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_ROUNDS = 500
_ROUND_S = 0.01


def descendants(root: int) -> list[int]:
    """Return the ids of the live descendants of ``root``: parents before children, older before younger.

    Args:
        root: Process id; not in the result.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - called often
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - called often
            fields = file.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                children.setdefault(int(fields[1]), []).append((int(fields[19]), int(name)))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for _, child in sorted(children.get(pid, ()))]
        found += level
    return found


def kill_descendants() -> None:
    """Send SIGKILL to all descendants of the calling process and reap them, until none is left.

    The caller must be a subreaper (PR_SET_CHILD_SUBREAPER), so that orphans become its children.
    """
    for _ in range(_ROUNDS):
        pids = descendants(os.getpid())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if reap_all() and not pids:
            return
        time.sleep(_ROUND_S)  # poll: the kernel reports an exit only to the parent, which may be another process


def reap_all() -> bool:
    """Reap children that have ended; return whether no child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
