"""Mount overlays and FUSE file systems in new namespaces, then become a command.

Usage: ``python -I -S lay_over.py PLAN_FD COMMAND...``

This is a script, not a module of the stack: it is started separately, and imports only the standard library and
`core/kernel`. The command, which is a sandbox, inherits the mounts. It runs in the same process, so that signals and
the exit status need no process in between.
"""

import json
import os
import stat
import sys

# A script has no packages on its path, and `tidemill.sandbox` imports more than a start may take.
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from tidemill.core import kernel

_SETUP_FAILED = 70


def main(arguments: list[str]) -> None:
    """Read the plan, mount, and run the command. Never returns.

    Raises:
        OSError: The kernel forbids a step.
    """
    with os.fdopen(int(arguments[0]), "rb") as file:
        plan = json.load(file)
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare_user(kernel.NEW_MOUNT)
    kernel.make_mounts_private()
    directory = os.getcwd()  # noqa: PTH109 - pathlib costs 10 ms of start
    for overlay in plan["overlays"]:
        # Relative names: in the options of a mount, a comma or a colon of a path would have to be escaped.
        os.chdir(overlay["directory"])
        options = "lowerdir={files},upperdir={writes},workdir={work},userxattr".format_map(overlay)
        kernel.mount("tidemill", overlay["target"], "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
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
    kernel.mount("tidemill", target, "fuse", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    import socket  # not at the top: it costs a few ms, and most jobs have only overlays

    with socket.socket(fileno=server) as sock:
        socket.send_fds(sock, [b"m"], [fuse])
    # Only the server may have a copy: then the kernel reports errors to readers as soon as the server has ended.
    os.close(fuse)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as failure:
        sys.stderr.write(f"tidemill-sandbox: {failure}\n")
        sys.exit(_SETUP_FAILED)
