"""Link the files of a channel into two directories at once, which a job sees as one.

The kernel locks a directory while it adds a name, so two processes add names to one directory no faster than one
process does. Files with the same first segment of their paths are in the same part. So no directory below the top is in
both parts, and names that clash with each other are in one part, where linking finds the clash.
"""

import os
import select
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from tidemill._shared.trees import remove_tree
from tidemill.core.kernel import end_with_parent
from tidemill.instance.object_rows import FileRow
from tidemill.shim.objects import link_channel

PARTS = ("0", "1")
"""Names of the two directories."""
_LOOK_S = 0.1
_Batches = Iterable[Sequence[FileRow]]


def link_in_parts(read: Callable[[], _Batches], directory: Path, *, place: str, check: Callable[[], None]) -> None:
    """Create `PARTS` below ``directory``, which exists and is empty, and link the files of a channel into them.

    A second process links one of the parts. The caller must have no other threads.

    Args:
        read: Returns the files; called in both processes. See `tidemill.shim.objects.link_channel`.
        directory: Parent of the parts.
        place: The channel's directory as the job sees it, for messages.
        check: Called several times a second; an exception ends the work.

    Raises:
        ClientFailure: A key is not a path below the channel or collides with another key, or the disk is full.
        InternalFailure: A file of the store is missing or damaged.
    """

    def link(part: int, check: Callable[[], None]) -> None:
        (directory / PARTS[part]).mkdir()
        link_channel(_part(read(), part), directory / PARTS[part], place=place, check=check)

    with _child(lambda: link(1, lambda: None)) as child:
        link(0, check)
        while not child.has_ended(_LOOK_S):
            check()
    if child.failed:  # the same work in this process raises the failure, or succeeds if the child was killed
        with suppress(OSError):
            remove_tree(directory / PARTS[1])
        link(1, check)


def _part(batches: _Batches, part: int) -> Iterator[Sequence[FileRow]]:
    for batch in batches:
        yield [row for row in batch if crc32(row[1].partition("/")[0].encode(errors="surrogatepass")) % 2 == part]


class _Child:
    """A process that runs a function of this program.

    Attributes:
        failed: Whether the function raised, or the process was killed. Known when the context of `_child` has ended.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self.failed = False

    def has_ended(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` seconds for the end of the process. Return whether it has ended."""
        return bool(select.select([self._pidfd], [], [], timeout_s)[0])

    def end(self) -> None:
        """Kill the process if it still runs, and wait for its end."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.failed = os.waitpid(self._pid, 0)[1] != 0
        os.close(self._pidfd)


@contextmanager
def _child(work: Callable[[], None]) -> Generator[_Child]:
    """Run ``work`` in a child process, which is killed if it still runs when the context ends or this process does.

    The child inherits the locks of this process: they stay locked until both have ended.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            end_with_parent()
            if os.getppid() == parent:
                work()
                status = 0
        finally:
            os._exit(status)  # without the clean-up of this program, which belongs to the parent
    child = _Child(pid)
    try:
        yield child
    finally:
        child.end()
