"""Run a command in new namespaces: ``python -I -S enter.py PLAN_FD COMMAND...``.

This is a script, not a module of the stack: it is started separately, and imports only the standard library and
`core/kernel`. It creates user, mount, pid, uts and ipc namespaces with unshare(2), makes the mounts of the plan, drops
every capability and becomes the command. Two processes remain: this one outside, which passes on the exit status, and
process 1 inside, which reaps. If either ends, everything inside is killed.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

# A script has no packages on its path, and `tidemill.sandbox` imports more than a start may take.
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from tidemill.core import kernel

_MS_BIND, _MS_MOVE = 4096, 8192
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_SETUP_FAILED = 70


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def main(arguments: list[str]) -> int:
    """Read the plan, enter, run, and return the exit status of the command (128 + N for signal N).

    Args:
        arguments: One: the descriptor of the plan, which is JSON.
    """
    with os.fdopen(int(arguments[0]), "rb") as file:
        plan = json.load(file)
    _die_with_parent(os.getppid())
    kernel.unshare_user(kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_UTS | kernel.NEW_IPC)
    socket.sethostname(plan["host_name"])
    alive_fd, outer_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(outer_fd)
        _be_first(plan, arguments[1:], alive_fd)
    os.close(alive_fd)
    # Signals for the command are not for this process: only SIGKILL ends it early.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    return _status(os.waitpid(child, 0)[1])


def _be_first(plan: dict[str, Any], command: list[str], alive_fd: int) -> None:
    """Process 1 of the new pid namespace. Never returns."""
    status = _SETUP_FAILED
    try:
        # The outer process has no pid in this namespace to compare with; it is alive while it holds its pipe open.
        kernel.end_with_parent()
        if select.select([alive_fd], [], [], 0)[0]:
            return
        _lay_out(plan)
        child = os.fork()
        if child == 0:
            _become(plan, command)
        while True:
            pid, wait_status = os.waitpid(-1, 0)
            if pid == child:
                status = _status(wait_status)
                break
    except OSError as error:
        sys.stderr.write(f"tidemill-sandbox: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


def _lay_out(plan: dict[str, Any]) -> None:
    """Make the mounts. Sources are opened first, because later steps hide their directories."""
    kernel.make_mounts_private()
    if plan["new_in_root"]:
        _renew_root(plan["new_in_root"])
    mounts = [
        (kind, target, source if kind == "link" else _open(source) if source else -1)
        for kind, target, source in plan["mounts"]
    ]
    devices = [(path, _open(path)) for path in _device_paths(plan["devices"])]
    # This /proc is new in this namespace, and mounted while the old one is fully visible: the kernel requires both.
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    _set("/", attributes=_ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV)
    _set("/proc", clear=_ATTR_RDONLY)
    for name in plan["proc_covered"]:
        if os.path.exists(f"/proc/{name}"):  # noqa: PTH110 - pathlib costs 10 ms of start
            _bind(_open(f"/proc/{name}"), f"/proc/{name}")
            _set(f"/proc/{name}", attributes=_ATTR_RDONLY)
    _make_devices(devices)
    for kind, target, source in mounts:
        if kind == "empty":
            kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
            continue
        if kind == "link":
            os.symlink(str(source), target)  # noqa: PTH211
            continue
        _make_target(target, directory=os.path.isdir(f"/proc/self/fd/{source}"))  # noqa: PTH112
        _bind(source, target)
        read_only = _ATTR_RDONLY if kind == "read-only" else 0
        _set(target, attributes=read_only | _ATTR_NOSUID | _ATTR_NODEV, clear=_ATTR_RDONLY - read_only)


def _renew_root(new: list[str]) -> None:
    """Replace the root by one that has the machine's entries and the directories ``new``."""
    root = "/tmp"  # noqa: S108 - any directory: the new root is moved away from it
    with os.scandir("/") as entries:
        links = {entry.name: entry.is_symlink() for entry in entries}
    sources = {name: _open(f"/{name}") for name, is_link in links.items() if not is_link}
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    for name in links.keys() - sources.keys():
        os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")  # noqa: PTH115, PTH211
    for name, source in sources.items():
        _make_target(f"{root}/{name}", directory=os.path.isdir(f"/proc/self/fd/{source}"))  # noqa: PTH112
        _bind(source, f"{root}/{name}")
        if f"/{name}" == root:  # the copy of this directory has a copy of the new root on it
            kernel.check(kernel.libc.umount2(f"{root}{root}".encode(), _MNT_DETACH), f"unmount {root}{root}")
    for path in new:
        _make_target(root + path, directory=True)
    os.chdir(root)
    kernel.check(kernel.libc.mount(b".", b"/", None, _MS_MOVE, None), "move the new root")
    os.chroot(".")


def _device_paths(extra: list[str]) -> list[str]:
    names = ("null", "zero", "full", "random", "urandom", "tty")
    return [path for path in (*(f"/dev/{name}" for name in names), *extra) if os.path.exists(path)]  # noqa: PTH110


def _make_devices(devices: list[tuple[str, int]]) -> None:
    kernel.mount("tmpfs", "/dev", "tmpfs", kernel.MS_NOSUID, "mode=755")
    for path, source in devices:
        _make_target(path, directory=os.path.isdir(f"/proc/self/fd/{source}"))  # noqa: PTH112
        _bind(source, path)
        _set(path, attributes=_ATTR_NOSUID, clear=_ATTR_NODEV | _ATTR_RDONLY)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211
    for name in ("shm", "pts"):
        os.mkdir(f"/dev/{name}")  # noqa: PTH102
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")  # noqa: S108
    with contextlib.suppress(OSError):  # without it only pseudo-terminals are missing
        kernel.mount(
            "devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
        )
        os.symlink("pts/ptmx", "/dev/ptmx")  # noqa: PTH211


def _become(plan: dict[str, Any], command: list[str]) -> None:
    """Drop every capability permanently, and run the command. Never returns."""
    try:
        os.setsid()
        kernel.check(kernel.libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
        number = 0
        while kernel.libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
            number += 1
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        kernel.check(kernel.libc.capset(header, (ctypes.c_uint32 * 6)()), "drop capabilities")
        os.chdir(plan["directory"])
        os.execvpe(command[0], command, plan["variables"])  # noqa: S606 - a vector, as it shall be
    except OSError as error:
        sys.stderr.write(f"tidemill-sandbox: {command[0]}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(_SETUP_FAILED)


def _die_with_parent(parent: int) -> None:
    kernel.end_with_parent()
    if os.getppid() != parent:
        os._exit(_SETUP_FAILED)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _make_target(path: str, *, directory: bool) -> None:
    if os.path.exists(path):  # noqa: PTH110
        return
    os.makedirs(path if directory else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    if not directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _bind(source: int, target: str) -> None:
    path = f"/proc/self/fd/{source}".encode()
    kernel.check(kernel.libc.mount(path, os.fsencode(target), None, _MS_BIND | kernel.MS_REC, None), f"bind {target}")
    os.close(source)


def _set(target: str, *, attributes: int = 0, clear: int = 0) -> None:
    value = _MountAttributes(attributes, clear, 0, 0)
    path = os.fsencode(target)
    result = kernel.libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, ctypes.byref(value), ctypes.sizeof(value)
    )
    kernel.check(result, f"set mount attributes of {target}")


def _status(wait_status: int) -> int:
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as failure:
        sys.stderr.write(f"tidemill-sandbox: {failure}\n")
        sys.exit(_SETUP_FAILED)
