"""Isolation mode ``mount`` by bubblewrap."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemill.core.instances import Isolation
from tidemill.sandbox.base import Launch, View, secret_file
from tidemill.sandbox.mounts import DEVICES, PROC_COVERED, MountKind, job_home, mounts_of, new_in_root
from tidemill.sandbox.overlays import overlaid

_FLAGS = {MountKind.READ_ONLY: "--ro-bind", MountKind.WRITABLE: "--bind"}


class BubblewrapSandbox:
    """Runs the command under ``bwrap``.

    The arguments are passed through a file descriptor: they contain the job's variables, which would otherwise be
    visible in the machine's process list. The environment of ``bwrap`` itself does not contain these variables, because
    some, such as ``LD_PRELOAD``, would affect it.
    """

    name = "bubblewrap"
    isolation = Isolation.MOUNT

    def base_dir(self, view: View) -> str:
        return "/opt/ml"

    def variables(self, view: View) -> dict[str, str]:
        return {"HOME": str(job_home()), "TMPDIR": "/tmp"}  # noqa: S108

    def wrap(self, argv: Sequence[str], *, view: View, variables: Mapping[str, str]) -> Launch:
        options = [*_namespaces(view), *_system(new_in_root(view)), *_mounts(view), "--clearenv"]
        for name, value in variables.items():
            options += ["--setenv", name, value]
        options += ["--chdir", variables.get("HOME", "/")]
        fd = secret_file(b"".join(option.encode(errors="surrogateescape") + b"\0" for option in options))
        program = shutil.which("bwrap") or "bwrap"
        launch = Launch(argv=(program, "--args", str(fd), "--", *argv), variables={}, descriptors=(fd,))
        return overlaid(launch, view.overlays, view.fuse)


def _namespaces(view: View) -> list[str]:
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--die-with-parent"),
        *("--cap-drop", "ALL", "--hostname", view.host_name),
    ]


def _system(new: Sequence[str]) -> list[str]:
    options = [*(_root(new) if new else ("--ro-bind", "/", "/")), "--dev", "/dev", "--proc", "/proc"]
    for name in PROC_COVERED:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for pattern in DEVICES:
        for device in sorted(Path("/dev").glob(pattern)):
            options += ["--dev-bind-try", str(device), str(device)]
    return options


def _root(new: Sequence[str]) -> list[str]:
    """Return the options for a root that has the machine's entries and the directories ``new``."""
    options: list[str] = []
    for entry in sorted(Path("/").iterdir()):
        at = str(entry)
        options += ["--symlink", str(entry.readlink()), at] if entry.is_symlink() else ["--ro-bind-try", at, at]
    for directory in new:
        options += ["--dir", directory]
    return [*options, "--remount-ro", "/"]


def _mounts(view: View) -> list[str]:
    options: list[str] = []
    for mount in mounts_of(view):
        if mount.kind is MountKind.EMPTY:
            options += ["--tmpfs", mount.target]
        elif mount.kind is MountKind.LINK:
            options += ["--symlink", mount.source, mount.target]
        else:
            options += [_FLAGS[mount.kind], mount.source, mount.target]
    return options
