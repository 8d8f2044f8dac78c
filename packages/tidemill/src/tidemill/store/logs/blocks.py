"""Blocks of complete stored lines of a log stream, for searches that examine every line."""

from collections.abc import Iterator
from pathlib import Path

from tidemill.store.logs.segment_file import SegmentFile, segments_before, segments_from
from tidemill.store.logs.streams import LogPosition

BLOCK_BYTES = 256 * 1024
"""Size of a block, if no line is longer."""


def blocks(directory: Path, begin: LogPosition) -> Iterator[tuple[bytes, LogPosition]]:
    """Yield blocks from a position to the end of the stream, each with the position after it.

    Args:
        begin: Position where a line begins; ``LogPosition(0, 0)`` is the first line.
    """
    for number, file in segments_from(directory, begin.segment):
        place = begin.offset if number == begin.segment else 0
        # There is no block where a writer that came back has cut the file.
        while place < file.end and (block := _lines_from(file, place)):
            place += len(block)
            yield block, LogPosition(number, place)


def blocks_backward(directory: Path) -> Iterator[bytes]:
    """Yield blocks from the end of a stream to its beginning; the lines of each are in the order of the log.

    Yields:
        Whole lines with LF.
    """
    for _, file in segments_before(directory):
        place = file.end
        while place > 0:
            start = file.line_begin(max(0, place - BLOCK_BYTES), before=place)
            yield file.read(start, place)
            place = start


def _lines_from(file: SegmentFile, place: int) -> bytes:
    size = BLOCK_BYTES
    while True:
        end = min(place + size, file.end)
        block = file.read(place, end)
        whole = block.rfind(b"\n") + 1
        if whole or end == file.end:
            return block[:whole]
        size *= 2
