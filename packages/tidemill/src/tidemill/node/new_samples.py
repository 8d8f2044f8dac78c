"""Read what is new in the file of an instance's samples, to deliver it to the service."""

from collections.abc import Callable
from pathlib import Path

from tidemill.instance.samples import SAMPLES_FILE

_MOST_BYTES = 1_000_000


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
