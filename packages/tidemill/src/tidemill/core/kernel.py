"""Calls of the Linux kernel that Python's standard library lacks: namespaces, mounts, ends of processes.

The scripts of the sandbox import this module too, and must start within milliseconds: it imports no other module of the
stack. Every call raises OSError if the kernel refuses it.
"""

import ctypes
import os
import signal

NEW_MOUNT, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (1 << bit for bit in (17, 26, 27, 28, 29, 30))
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Check the result of a call of `libc`; ``what`` names the call.

    Raises:
        OSError: The result is not 0.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    check(libc.unshare(flags), "unshare")


def unshare_user(flags: int) -> None:
    """Enter a new user namespace, in which user and group stay the same, and other new namespaces."""
    uid, gid = os.getuid(), os.getgid()
    unshare(NEW_USER | flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:  # noqa: PTH123 - pathlib costs 10 ms of start
            file.write(text.encode())


def join_namespace(fd: int) -> None:
    """Enter an existing namespace of a job's network."""
    check(libc.setns(fd, 0), "enter a namespace of the job's network")


def make_mounts_private() -> None:
    """Keep the mounts of this namespace from others, and theirs from it."""
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system.

    Raises:
        OSError: The kernel refuses it; the message names kind and target.
    """
    result = libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode() or None)
    check(result, f"mount {kind} on {target}")


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends; the parent may have ended before."""
    check(libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "set the parent-death signal")


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants of this process, so that they can be found and killed."""
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
