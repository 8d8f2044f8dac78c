"""The list of mounts for a job's view of the machine, which both mount backends share.

The order matters: first everything read-only, then hidden files and directories, then private and writable ones, and
last the paths that must stay visible although they are in a hidden directory (a Python under HOME, an environment under
the state directory).
"""

import os
import pwd
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tidemill.sandbox.base import View, existing
from tidemill.sandbox.private_files import system_secrets

# A job of root could write these files as their owner, even without capabilities, so they are covered read-only.
PROC_COVERED = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")

# Accelerators stay usable; all other devices of the machine are hidden.
DEVICES = ("nvidia*", "dri", "kfd")

_SYSTEM = ("/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/proc", "/sys", "/opt", "/tmp", "/var/tmp")  # noqa: S108


class MountKind(StrEnum):
    """How a target is mounted."""

    EMPTY = "empty"
    LINK = "link"
    READ_ONLY = "read-only"
    WRITABLE = "writable"


@dataclass(frozen=True, slots=True)
class Mount:
    """One step. ``source`` is a path outside the sandbox, the text of a link, or empty for an empty directory."""

    kind: MountKind
    target: str
    source: str = ""


def job_home() -> Path:
    """Path of HOME inside a job: the user's home directory, so that a lookup by user id finds the same path."""
    home = Path(os.environ.get("HOME") or "/").resolve()
    return home if home.is_dir() and str(home) not in _SYSTEM else Path("/tmp/home")  # noqa: S108


def new_in_root(view: View) -> list[str]:
    """Return the directories of `View.mounted` whose first segment the machine lacks, e.g. ``/checkpoints``.

    Nothing can be created in a read-only root, so the sandbox builds a root of its own for them.

    Args:
        view: What the job may see.
    """
    return [str(target) for target, above in _missing(view) if above == Path("/")]


def mounts_of(view: View) -> list[Mount]:
    """Return the mounts above a read-only root, without ``/proc`` and ``/dev``.

    Args:
        view: What the job may see.

    Returns:
        In the order in which they are made.
    """
    temporary, shared, home = view.tmp / "tmp", view.tmp / "var", str(job_home())
    mounts = [mount for above in sorted({above for _, above in _missing(view)}) for mount in _renewed(above)]
    mounts += [*_opt(view), *_hidden(view)]
    mounts += [Mount(MountKind.READ_ONLY, f"/opt/ml/{below}", str(source)) for source, below in view.covers]
    mounts.append(Mount(MountKind.WRITABLE, "/tmp", str(temporary)))  # noqa: S108
    if Path("/var/tmp").is_dir() and Path("/var/tmp").resolve() != Path("/tmp").resolve():  # noqa: S108
        mounts.append(Mount(MountKind.WRITABLE, str(Path("/var/tmp").resolve()), str(shared)))  # noqa: S108
    mounts.append(Mount(MountKind.WRITABLE, home, str(view.home)))
    mounts += [Mount(MountKind.WRITABLE, str(Path(at).resolve()), str(source)) for source, at in view.mounted]
    mounts += _resolver()
    for path in existing((*view.read_only, *view.readable)):
        mounts.append(Mount(MountKind.READ_ONLY, str(path), str(path)))
    for path in existing(view.writable):
        mounts.append(Mount(MountKind.WRITABLE, str(path), str(path)))
    if Path("/etc/hosts").exists():
        mounts.append(Mount(MountKind.READ_ONLY, str(Path("/etc/hosts").resolve()), str(view.hosts_file)))
    return mounts


def _missing(view: View) -> list[tuple[Path, Path]]:
    """Return the directories of `View.mounted` that the machine lacks, each with the deepest directory above it.

    Directories in the job's private ones are left out: there they can be created.
    """
    private = (job_home(), Path("/opt"), Path("/tmp").resolve(), Path("/var/tmp").resolve())  # noqa: S108
    found: list[tuple[Path, Path]] = []
    for _, text in view.mounted:
        target = above = Path(text).resolve()
        while not above.is_dir():
            above = above.parent
        if above != target and not any(target.is_relative_to(each) for each in private):
            found.append((target, above))
    return found


def _renewed(directory: Path) -> list[Mount]:
    """Return the mounts that replace a directory by one with the same entries, in which others can be created."""
    if directory == Path("/"):
        return []
    children = sorted(directory.iterdir()) if os.access(directory, os.R_OK) else []
    return [Mount(MountKind.EMPTY, str(directory)), *map(_as_it_is, children)]


def _as_it_is(child: Path) -> Mount:
    """Return the mount that shows an entry of a replaced directory.

    A link stays a link: its target, mounted in its place, would show what is hidden there, as ``/run`` at ``/var/run``.
    """
    if child.is_symlink():
        return Mount(MountKind.LINK, str(child), str(child.readlink()))
    return Mount(MountKind.READ_ONLY, str(child), str(child))


def _hidden(view: View) -> list[Mount]:
    """Return the mounts that hide files and directories, each once.

    ``/run`` contains sockets of the machine's services, which obey their owner.
    """
    entry = Path(pwd.getpwuid(os.getuid()).pw_dir) if _has_entry() else Path("/")
    wanted = existing([*view.hidden, entry, Path("/run"), *system_secrets()])
    shown = set(existing(view.readable))
    wanted = [path for path in wanted if path.is_dir() or path.is_file()]  # not the null device
    wanted = [path for path in wanted if str(path) not in _SYSTEM and path != job_home() and path not in shown]
    # HOME and the temporary directories are replaced as a whole, and so are directories that are hidden themselves.
    covers = {*wanted, job_home(), *(Path(name).resolve() for name in ("/tmp", "/var/tmp"))}  # noqa: S108
    return [_hiding(path) for path in wanted if covers.isdisjoint(path.parents)]


def _hiding(path: Path) -> Mount:
    if path.is_dir():
        return Mount(MountKind.EMPTY, str(path))
    return Mount(MountKind.READ_ONLY, str(path), os.devnull)  # without devices on the mount, it cannot be opened


def _has_entry() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _opt(view: View) -> list[Mount]:
    others = [child for child in sorted(Path("/opt").iterdir()) if child.name != "ml"]
    return [
        Mount(MountKind.EMPTY, "/opt"),
        *map(_as_it_is, others),
        Mount(MountKind.WRITABLE, "/opt/ml", str(view.ml)),
    ]


def _resolver() -> list[Mount]:
    """Return the mount of ``/etc/resolv.conf``, which is often a link into ``/run``, which is hidden."""
    target = Path("/etc/resolv.conf").resolve()
    if target.is_file() and target.is_relative_to(Path("/run").resolve()):
        return [Mount(MountKind.READ_ONLY, str(target), str(target))]
    return []
