"""A control group of the kernel that limits the memory of an instance exactly.

The kernel charges every page of the group's processes before a process gets the page, so a limit cannot be missed. Both
layouts of control groups work, if the service may create groups below its own:

- v2: one tree for all controllers. A group with processes cannot pass its controllers on, so the service first moves
  into a leaf of its own group (`delegate`). The groups of instances are siblings of that leaf.
- v1: a tree for memory. The groups of instances are children of the service's group.

Only memory is limited this way. The kernel's limit of processes counts threads too, and one process with TensorFlow has
dozens of threads, so it cannot enforce a number of processes.
"""

import contextlib
import itertools
import os
import time
from pathlib import Path

_SERVICE = "tidemill-service"
_PREFIX = "tidemill-instance-"
_REMOVAL_ROUNDS, _REMOVAL_ROUND_S = 100, 0.01
_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
_OPTIONS = {
    # Without swap: an instance at its limit would else go on, slowly, in the swap space of the machine.
    1: (("memory.swappiness", "0"),),
    # The kernel kills the whole instance, not its largest process. With v1 the shim does so.
    2: (("memory.swap.max", "0"), ("memory.oom.group", "1")),
}
_numbers = itertools.count()


class CgroupUnavailable(Exception):
    """Control groups cannot be used. The message is the reason."""


class Cgroup:
    """A control group with a memory limit.

    Args:
        memory_bytes: The limit. The group's memory is not swapped.

    Attributes:
        layout: 1 or 2.

    Raises:
        CgroupUnavailable: The group cannot be created.
    """

    def __init__(self, *, memory_bytes: int) -> None:
        self.layout, parent = _parent()
        _remove_stale(parent)
        self._limit_bytes = memory_bytes
        self._directory = parent / f"{_PREFIX}{os.getpid()}-{_start_of(os.getpid())}-{next(_numbers)}"
        try:
            self._directory.mkdir()
            try:
                self._limit()
            except OSError:
                self.remove()
                raise
        except OSError as error:
            raise CgroupUnavailable(f"no group can be created in {parent}: {error.strerror}") from error

    def enter(self) -> None:
        """Move the calling process into the group; its children start there.

        Raises:
            OSError: The kernel refuses it.
        """
        (self._directory / "cgroup.procs").write_text("0")

    def exceeded(self) -> bool:
        """Return whether the kernel has killed a process because the group reached its limit.

        A kill counts only if the group reached its own limit: otherwise the memory of the machine or of a group above
        ran out.
        """
        if self.layout == 1:
            reached = int((self._directory / "memory.failcnt").read_text())
            return reached > 0 and self.has_killed()
        return _count(self._directory / "memory.events", "oom") > 0 and self.has_killed()

    def has_killed(self) -> bool:
        """Return whether the kernel has killed a process of the group for lack of memory, of the group or elsewhere."""
        return _oom_kills(self._directory, self.layout) > 0

    def peak_bytes(self) -> int:
        """Return the peak of the group's memory; the limit if the kernel has no peak of a v2 group (before 5.19)."""
        name = "memory.max_usage_in_bytes" if self.layout == 1 else "memory.peak"
        try:
            return int((self._directory / name).read_text())
        except FileNotFoundError:
            return self._limit_bytes

    def remove(self) -> None:
        """Remove the group, whose processes have been killed. A group that cannot be removed now is removed later."""
        for _ in range(_REMOVAL_ROUNDS):
            if _removed(self._directory):
                return
            time.sleep(_REMOVAL_ROUND_S)  # the last process is still exiting; the kernel reports no end of it

    def _limit(self) -> None:
        (self._directory / _LIMIT_FILES[self.layout]).write_text(str(self._limit_bytes))
        for name, value in _OPTIONS[self.layout]:
            path = self._directory / name
            if path.exists():  # absent in kernels without swap, and before 4.19
                path.write_text(value)


def delegate() -> None:
    """Prepare the control group of this process for groups of instances. Called once, when the service starts.

    With layout v2 this process moves into a leaf of its group. It stays where it is if the group belongs to another
    user, has no memory controller, or contains other processes, and if it belongs to a service of systemd that is not
    delegated: the next start of the unit could not enter it.
    """
    layout, own = _own()
    if own is not None and layout == 2 and own.name == _SERVICE:  # systemd has moved it there (DelegateSubgroup=)
        with contextlib.suppress(OSError):
            (own.parent / "cgroup.subtree_control").write_text("+memory")
        return
    if own is None or layout != 2 or _refusal(own) or _belongs_to_systemd(own):
        return
    leaf = own / _SERVICE
    try:
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text("0")
        (own / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        with contextlib.suppress(OSError):
            (own / "cgroup.procs").write_text("0")
            leaf.rmdir()
    else:
        _remove_stale(own)


def _belongs_to_systemd(group: Path) -> bool:
    if group.suffix != ".service":
        return False
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(group, name) != b"1"
    return True


def oom_kills() -> int:
    """Return how many processes in the control group of this process the kernel has killed for lack of memory.

    Return those of the whole machine if the group has no such count, e.g. because it is the topmost group.
    """
    layout, own = _own()
    if own is not None:
        with contextlib.suppress(OSError):
            return _oom_kills(own, layout)
    with contextlib.suppress(OSError):
        return _count(Path("/proc/vmstat"), "oom_kill")
    return 0


def available_layout() -> int:
    """Return the layout, 1 or 2, of the control groups that a service started from here could use.

    Raises:
        CgroupUnavailable: It could use none.
    """
    layout, group, prepared = _usable_group()
    if not prepared and len((group / "cgroup.procs").read_text().split()) > 1:
        raise CgroupUnavailable(f"the group {group} contains other processes")
    return layout


def _oom_kills(group: Path, layout: int) -> int:
    return _count(group / ("memory.oom_control" if layout == 1 else "memory.events"), "oom_kill")


def _count(file: Path, name: str) -> int:
    """Return a number of a file with lines of a name and a number; 0 if the file does not have the name."""
    pairs = (line.split() for line in file.read_text().splitlines())
    return next((int(count) for key, count in pairs if key == name), 0)


def _parent() -> tuple[int, Path]:
    """Return the layout, and the group in which groups of instances are created."""
    layout, group, prepared = _usable_group()
    if not prepared:
        raise CgroupUnavailable(f"the service shares the group {group} with processes that are not its own")
    return layout, group


def _usable_group() -> tuple[int, Path, bool]:
    """Return the layout, the group for groups of instances, and whether it needs no preparation by `delegate`."""
    layout, own = _own()
    if own is None:
        raise CgroupUnavailable("no control groups for memory are mounted")
    in_leaf = layout == 2 and own.name == _SERVICE
    group = own.parent if in_leaf else own
    refusal = _refusal(group)
    if refusal:
        raise CgroupUnavailable(refusal)
    return layout, group, layout == 1 or in_leaf


def _own() -> tuple[int, Path | None]:
    """Return the layout for memory, and the directory of this process's group; None if it is not mounted."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except FileNotFoundError:
        return 2, None  # a kernel without control groups
    path = next((path for _, controllers, path in groups if "memory" in controllers.split(",")), None)
    layout = 1 if path is not None else 2
    if path is None:
        path = next((path for number, _, path in groups if number == "0"), None)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        (_, _, _, root, mount, *_), (kind, _, options, *_) = left.split(" "), right.split(" ")
        if path is None or kind != ("cgroup" if layout == 1 else "cgroup2"):
            continue
        if (layout == 2 or "memory" in options.split(",")) and Path(path).is_relative_to(root):
            return layout, Path(mount) / Path(path).relative_to(root)
    return layout, None


def _refusal(group: Path) -> str:
    """Return why groups cannot be created in ``group``; empty if they can."""
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        controllers = ["memory"]  # v1: the tree is that of its controller
    except OSError as error:
        return f"the group {group} cannot be read: {error.strerror}"
    if "memory" not in controllers:
        return f"the group {group} has no memory controller"
    needed = [group, group / "cgroup.procs"]
    if (group / "cgroup.subtree_control").exists():
        needed.append(group / "cgroup.subtree_control")
    return "" if all(os.access(path, os.W_OK) for path in needed) else f"the group {group} is not writable"


def _remove_stale(parent: Path) -> None:
    """Remove the groups of processes that have been killed."""
    for directory in parent.glob(f"{_PREFIX}*-*-*"):
        pid, started, _ = directory.name.removeprefix(_PREFIX).split("-", 2)
        if _start_of(int(pid)) != started:
            _removed(directory)


def _removed(directory: Path) -> bool:
    """Remove a group with the groups below it. Return False if processes are left in it."""
    try:
        for path, _, _ in os.walk(directory, topdown=False):
            Path(path).rmdir()
    except OSError:
        return not directory.exists()
    return True


def _start_of(pid: int) -> str:
    """Return the start time of a process, which tells it from a later one with its number; empty without a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
