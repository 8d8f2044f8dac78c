"""Splits segments of clients' streams, so that late events never make one larger and larger.

The numbers of a client's segments are far apart. The end of a full segment becomes one with a number between that of
the segment and the next one. If there is none, the next one gets a larger number. A reader that lists the segments
again after each one misses nothing; it may see events again.

The end is copied before it is cut off. A file beside the groups, ``GROUP-STREAM.split``, says what to cut off, so a
kill between the two leaves no event twice after the next start.
"""

import os
from itertools import pairwise
from pathlib import Path

from tidemill.core import faults
from tidemill.core.files import read_json, remove_unfinished, sync_directory, write_durably, write_json
from tidemill.core.segments import segment_path, segments_of
from tidemill.store.logs.segment_file import SegmentFile

SEGMENT_STEP = 1_000_000
"""Difference between the numbers of two segments that were written one after the other."""


class SegmentSplits:
    """Splits segments, one of each stream at a time.

    Args:
        root: Directory of all logs.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def complete_all(self) -> None:
        """Complete the splits that a killed service has begun."""
        remove_unfinished(self._root)
        for begun in self._root.glob("*.split"):
            group, _, stream = begun.stem.partition("-")
            self.complete(self._root / group / stream)

    def complete(self, directory: Path) -> None:
        """Complete the split of a stream that was interrupted, if one was: cut off what has been copied.

        Args:
            directory: Of the stream; need not exist any more.
        """
        begun_path = self._begun(directory)
        begun = read_json(begun_path)
        if begun is None:
            return
        path = segment_path(directory, begun["segment"])
        if segment_path(directory, begun["copy"]).exists() and path.exists():
            with path.open("r+b") as file:
                file.truncate(begun["at"])
                os.fsync(file.fileno())
        begun_path.unlink()
        # Were it there after a power failure, it would cut off what was stored later.
        sync_directory(self._root)

    def split(self, directory: Path, number: int, *, at: int) -> None:
        """Make the end of a segment one of its own.

        Args:
            directory: Of the stream.
            number: Number of the segment.
            at: Where the first line of the end begins.
        """
        copy = number_after(directory, number)
        with SegmentFile(segment_path(directory, number)) as file:
            data = file.read(at, file.end)
        write_json(self._begun(directory), {"segment": number, "at": at, "copy": copy})
        write_durably(segment_path(directory, copy), data)
        faults.point("splits.copied")
        self.complete(directory)

    def _begun(self, directory: Path) -> Path:
        return self._root / f"{directory.parent.name}-{directory.name}.split"


def number_after(directory: Path, number: int) -> int:
    """Return a free number between a segment and the next one. No segment of the stream may be written meanwhile.

    Args:
        directory: Of the stream.
        number: Number of the segment; 0 for one before all.
    """
    following = [each for each in segments_of(directory) if each > number]
    if not following:
        return number + SEGMENT_STEP
    if following[0] == number + 1:
        return _moved_up(directory, following)
    return number + (following[0] - number) // 2


def _moved_up(directory: Path, following: list[int]) -> int:
    """Give a segment and those with the numbers directly behind it larger ones; return the first number, now free.

    The last one is the first to move, so the segments are in order at each moment, and a reader finds each.
    """
    count = next((at for at, (one, other) in enumerate(pairwise(following), 1) if other > one + 1), len(following))
    bound = following[count] if count < len(following) else following[-1] + 2 * SEGMENT_STEP
    for number in reversed(following[:count]):
        moved = number + (bound - number) // 2
        segment_path(directory, number).rename(segment_path(directory, moved))
        sync_directory(directory)
        bound = moved
    return following[0]
