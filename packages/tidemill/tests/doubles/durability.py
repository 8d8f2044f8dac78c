"""A record of what a process writes, syncs and acknowledges, and what a power failure at any moment would lose.

`Recording` compiles `durability.c` and preloads it into the processes under test, so that it sees the calls of Python,
SQLite and uvloop alike. A power failure may lose every write to a file that was not synced after it, and every new name
in a directory that was not synced after it. Kill -9 cannot show that, because the kernel keeps both.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["Event", "Recording", "Trace"]

_SOURCE = Path(__file__).with_name("durability.c")


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        thread: Thread id.
        kind: ``W`` before a write, ``f`` and ``F`` before and after a sync, ``N`` after a name was created, ``U`` after
            a name was removed, ``A`` before an acknowledgment is sent.
        inode: Number of the file or directory.
        text: Path; the beginning of what is sent for ``A``.
    """

    thread: str
    kind: str
    inode: str
    text: str


class Recording:
    """Records processes that have `variables` in their environment.

    Args:
        directory: Directory for the library and the log.
        root: Only files below this directory are recorded. Links in its path must be resolved.
    """

    def __init__(self, directory: Path, *, root: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("there is no C compiler (cc, gcc or clang)")
        library, self._log = directory / "durability.so", directory / "durability.log"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        self.variables = {
            "LD_PRELOAD": str(library),
            "DURABILITY_LOG": str(self._log),
            "DURABILITY_ROOT": str(root),
        }

    def trace(self) -> "Trace":
        """Return what was recorded until now."""
        lines = self._log.read_text(errors="replace").splitlines()
        return Trace([Event(*line.split("\t", 3)) for line in lines])


@dataclass
class _Disk:
    """What is certain to be on the disk, while a trace is replayed. Numbers are positions in the trace."""

    written: dict[str, int] = field(default_factory=dict)
    synced: dict[str, int] = field(default_factory=dict)
    named: dict[str, tuple[str, int]] = field(default_factory=dict)
    begun: dict[tuple[str, str], int] = field(default_factory=dict)
    inodes: dict[str, str] = field(default_factory=dict)

    def apply(self, at: int, event: Event) -> None:
        if event.kind == "W":
            self.written[event.inode] = at
        elif event.kind == "f":
            self.begun[event.thread, event.inode] = at
            self.inodes[event.text] = event.inode
        elif event.kind == "F":
            self.synced[event.inode] = max(self.synced.get(event.inode, -1), self.begun[event.thread, event.inode])
        elif event.kind == "N":
            self.named[event.text] = event.inode, at
        elif event.kind == "U":
            self.named.pop(event.text, None)

    def losses(self, path: str) -> Iterator[str]:
        """Yield what a power failure would lose of a file: its bytes, its name, the name of a directory above it."""
        inode, _ = self.named[path]
        if self.written.get(inode, -1) > self.synced.get(inode, -1):
            yield f"bytes of {path}"
        while path in self.named:
            _, at = self.named[path]
            parent = os.path.dirname(path)  # noqa: PTH120 - a text of the trace
            if at > self.synced.get(self.inodes.get(parent, ""), -1):
                yield f"name of {path}"
            path = parent


class Trace:
    """Events in their order.

    Args:
        events: The events.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)

    def positions(self, kind: str, wanted: Callable[[str], bool] = lambda _: True) -> list[int]:
        """Return the positions of events of a kind whose text is wanted."""
        return [at for at, event in enumerate(self.events) if event.kind == kind and wanted(event.text)]

    def lost(self, at: int, wanted: Callable[[str], bool]) -> list[str]:
        """Return what a power failure before the event at a position would lose of the recorded files.

        Args:
            at: The position.
            wanted: Whether the file of a path must survive.
        """
        disk = _Disk()
        for position, event in enumerate(self.events[:at]):
            disk.apply(position, event)
        return sorted({loss for path in disk.named if wanted(path) for loss in disk.losses(path)})

    def is_synced(self, at: int, *, before: int) -> bool:
        """Return whether a sync of the written file began after the write at ``at``, and ended before ``before``."""
        inode, begun = self.events[at].inode, set[str]()
        for event in self.events[at + 1 : before]:
            if event.inode == inode and event.kind == "f":
                begun.add(event.thread)
            elif event.inode == inode and event.kind == "F" and event.thread in begun:
                return True
        return False

    def without(self, kinds: str, wanted: Callable[[str], bool]) -> "Trace":
        """Return the trace of a program that lacks some calls: events of these kinds with these texts."""
        return Trace(each for each in self.events if not (each.kind in kinds and wanted(each.text)))
