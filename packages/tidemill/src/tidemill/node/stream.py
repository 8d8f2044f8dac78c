"""Read what an instance adds to its log stream, to deliver it to the service: log lines, and samples."""

from collections.abc import Callable
from pathlib import Path

from tidemill.core.segments import segment_path, segments_of
from tidemill.instance.samples import SAMPLES_FILE

_MOST_BYTES = 1_000_000


class LogBytes:
    """The bytes of a stream's segments, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, offset: int, *, max_bytes: int) -> bytes:
        """Return complete lines that begin at an offset; empty if there is no complete line.

        Args:
            offset: Offset of the beginning of a line, in bytes.
            max_bytes: Maximum size of the result. A longer line is never returned.
        """
        for number in segments_of(self._directory):
            path = segment_path(self._directory, number)
            size = path.stat().st_size
            if offset >= size and number != segments_of(self._directory)[-1]:
                offset -= size
                continue
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(max_bytes)
            return data[: data.rfind(b"\n") + 1]
        return b""


class NewSamples:
    """The lines of a file of samples that were not delivered yet.

    Args:
        directory: Directory of the instance's log stream.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / SAMPLES_FILE
        self._seen = (0, 0)

    def deliver(self, send: Callable[[bytes], object]) -> None:
        """Send the new lines, if there are any. After an error of ``send``, the next call sends them again.

        When older samples were thinned, the file is a new one, of which everything is sent: the service ignores what is
        not later than the samples that it has.

        Args:
            send: Called with whole lines.
        """
        while lines := self._new_lines():
            send(lines)
            inode, offset = self._seen
            self._seen = inode, offset + len(lines)

    def _new_lines(self) -> bytes:
        try:
            inode = self._file.stat().st_ino
            if inode != self._seen[0]:
                self._seen = inode, 0
            with self._file.open("rb") as file:
                file.seek(self._seen[1])
                lines = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return b""
        return lines[: lines.rfind(b"\n") + 1]
