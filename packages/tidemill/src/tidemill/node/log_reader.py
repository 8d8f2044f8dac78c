"""Read the stored lines of a log stream as one sequence of bytes, to deliver them to the service."""

from pathlib import Path

from tidemill.core.segments import segment_path, segments_of


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
