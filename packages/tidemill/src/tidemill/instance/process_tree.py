"""Finds and kills processes: by descent from one process, or by the mark that every process of an instance has.

The mark is the variable ``TIDEMILL_INSTANCE`` in a process's environment. It finds processes that have left their
process group, session and parent. A pid namespace needs neither method, since all its processes die together.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "descendants", "kill_descendants", "kill_marked", "namespace_init", "reap_all"]

MARK = "TIDEMILL_INSTANCE"

_ROUNDS = 500
_ROUND_S = 0.01


def descendants(root: int) -> list[int]:
    """Return the live processes below ``root``, parents before their children, older before younger."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid in _all_pids():
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append((int(fields[19]), pid))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for _, child in sorted(children.get(pid, ()))]
        found += level
    return found


def kill_descendants() -> None:
    """Send SIGKILL to all processes below the calling process and reap them, until none is left.

    The caller must be a subreaper (PR_SET_CHILD_SUBREAPER), so that orphans stay below it.
    """
    for _ in range(_ROUNDS):
        pids = descendants(os.getpid())
        for pid in pids:
            _kill(pid)
        if reap_all() and not pids:
            return
        time.sleep(_ROUND_S)  # the kernel notifies only the parent of a death, which may be another process


def kill_marked(mark: str) -> None:
    """Send SIGKILL to every process with ``mark`` in its environment, until none is left."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS):
        pids = [pid for pid in _all_pids() if pid != os.getpid() and _is_marked(pid, wanted)]
        if not pids:
            return
        for pid in pids:
            _kill(pid)
        time.sleep(_ROUND_S)


def namespace_init(root: int) -> int | None:
    """Return process 1 of the pid namespace that a process below ``root`` created; None if none did."""
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == "1" and len(line.split()) > 2:
                    return pid
    return None


def reap_all() -> bool:
    """Reap children that have ended; return whether no child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, called often


def _is_marked(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # the process has exited, or belongs to another user


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
