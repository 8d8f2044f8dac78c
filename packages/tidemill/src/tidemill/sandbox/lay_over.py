"""Mount overlays and FUSE file systems in new namespaces, then become a command.

Usage: ``python -I -S lay_over.py PLAN_FD COMMAND...``

This is a script, not a module of the stack: it is started separately, and imports only the standard library. The
command, which is a sandbox, inherits the mounts. It runs in the same process, so that signals and the exit status need
no process in between.
"""

import ctypes
import json
import os
import stat
import sys

_NEW_MOUNT, _NEW_USER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 16384, 1 << 18
_SETUP_FAILED = 70

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Read the plan, mount, and run the command. Never returns.

    Raises:
        OSError: The kernel forbids a step.
    """
    with os.fdopen(int(arguments[0]), "rb") as file:
        plan = json.load(file)
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEW_USER | _NEW_MOUNT), "unshare")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")
    directory = os.getcwd()  # noqa: PTH109 - pathlib costs 10 ms of start
    for overlay in plan["overlays"]:
        # Relative names: in the options of a mount, a comma or a colon of a path would have to be escaped.
        os.chdir(overlay["directory"])
        options = "lowerdir={files},upperdir={writes},workdir={work},userxattr".format_map(overlay)
        target = os.fsencode(overlay["target"])
        result = _libc.mount(b"tidemill", target, b"overlay", _MS_NOSUID | _MS_NODEV, options.encode())
        _check(result, "mount overlay")
    os.chdir(directory)
    for mount in plan["fuse"]:
        _mount_fuse(mount["target"], mount["socket"], uid, gid)
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - a vector, as it shall be


def _mount_fuse(target: str, server: int, uid: int, gid: int) -> None:
    """Mount a FUSE file system and send the descriptor of the mount to the process that serves it.

    The kernel requires that /dev/fuse is opened in the user namespace of the mount, so the server cannot open it.
    """
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    # allow_other: the sandbox creates another user namespace, whose processes are "others" to the kernel.
    options = f"fd={fuse},rootmode={stat.S_IFDIR:o},user_id={uid},group_id={gid},allow_other,default_permissions"
    # Not read-only: the sandbox could not change the attributes of /opt/ml and of all mounts below it. It mounts the
    # file system once more, read-only.
    result = _libc.mount(b"tidemill", os.fsencode(target), b"fuse", _MS_NOSUID | _MS_NODEV, options.encode())
    _check(result, "mount fuse")
    import socket  # not at the top: it costs a few ms, and most jobs have only overlays

    with socket.socket(fileno=server) as sock:
        socket.send_fds(sock, [b"m"], [fuse])
    # Only the server may have a copy: then the kernel reports errors to readers as soon as the server has ended.
    os.close(fuse)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as failure:
        sys.stderr.write(f"tidemill-sandbox: {failure}\n")
        sys.exit(_SETUP_FAILED)
