"""Joins the namespaces of another process, as ``nsenter`` does, from a process with one thread."""

from __future__ import annotations

import ctypes
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.warm.peer import WarmRefusal

if TYPE_CHECKING:
    from tidemill_runtime.warm.peer import Peer

NS_GET_USERNS = 0xB701
KINDS = ("cgroup", "ipc", "uts", "net", "pid", "mnt")
"""The order in which namespaces are joined: after ``mnt`` no file outside can be opened."""

_libc = ctypes.CDLL(None, use_errno=True)


def differing(peer: Peer) -> frozenset[str]:
    """Return the kinds of namespaces that differ between the peer and this process.

    Args:
        peer: The process to compare with.

    Returns:
        Names of `/proc/PID/ns`, e.g. ``mnt``.
    """
    return frozenset(kind for kind in (*KINDS, "user") if _identity(peer, kind) != _own(kind))


def join(peer: Peer, kinds: frozenset[str]) -> None:
    """Move this process into the peer's namespaces and root directory; its children also enter the pid namespace.

    Raises:
        Refused: The kernel does not allow it.
    """
    if not kinds:
        return
    handles = {kind: peer.open(f"ns/{kind}") for kind in kinds}
    root = peer.open("root", os.O_PATH | os.O_DIRECTORY)
    try:
        here = _own("user")
        if "mnt" in handles and "user" in handles:
            # A sandbox may have entered a second user namespace after it created its mounts. The rights over the
            # mounts come from the first one.
            owner = fcntl.ioctl(handles["mnt"], NS_GET_USERNS)
            here = _enter_user(owner, here)
            os.close(owner)
        for kind in KINDS:
            if kind in handles:
                _setns(handles[kind], kind)
        if "mnt" in handles:
            os.fchdir(root)
            os.chroot(".")
        if "user" in handles:
            _enter_user(handles["user"], here)
    except OSError as error:
        raise WarmRefusal(f"the job's sandbox cannot be joined: {error.strerror}") from error
    finally:
        for fd in (*handles.values(), root):
            os.close(fd)


def _identity(peer: Peer, kind: str) -> tuple[int, int]:
    fd = peer.open(f"ns/{kind}")
    try:
        return _key(os.fstat(fd))
    finally:
        os.close(fd)


def _own(kind: str) -> tuple[int, int]:
    return _key(Path(f"/proc/self/ns/{kind}").stat())


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _enter_user(fd: int, here: tuple[int, int]) -> tuple[int, int]:
    there = _key(os.fstat(fd))
    if there != here:
        _setns(fd, "user")
    return there


def _setns(fd: int, kind: str) -> None:
    if _libc.setns(fd, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({kind} namespace)")
