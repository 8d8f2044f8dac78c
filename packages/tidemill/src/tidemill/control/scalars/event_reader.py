"""Read the scalars in event files. This also runs as a separate program:

    python -I -S event_reader.py TASK < FILE > ANSWER

Users write the files, so nothing in one is trusted: lengths may lie, archives may expand to terabytes, and files may
grow or be damaged. The program limits its own CPU time and memory, and answers with what it has read until then. It
imports only the standard library, because tidemill's own packages take longer to import than most files to read.

TASK is one JSON object: ``cpu_s``; ``archive``, whether FILE is an archive with event files, or one event file; and
``offset``, from which to read an event file. ANSWER is one line of JSON; see `read_file` and `read_archive`.

An event file has records: 8 bytes of length and 4 of their checksum, the content, 4 bytes of its checksum. The content
is a protocol buffer `Event`: wall_time = 1 (double), step = 2 (int64), summary = 5. A summary has values = 1, each with
tag = 1, simple_value = 2 (float), tensor = 8 and metadata = 9, whose plugin_data = 1 has plugin_name = 1. TensorFlow 1
and tf.compat write scalars as simple values, TensorFlow 2 as tensors of the plugin ``scalars``.
"""

import json
import math
import resource
import signal
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, BinaryIO

KEPT_POINTS = 1000
"""Points of a tag beyond which neighbors are thinned: about so many to twice as many are left."""
MARK = "tfevents"
"""Part of the name of every event file."""

_MOST_TAGS = 500
_TAG_CHARACTERS = 512
_RECORD_MAX_BYTES = 64 << 20
_MEMORY_BYTES = 1 << 30
_HEAD = struct.Struct("<QI")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TIME_CHECKED_RECORDS = 512
_CHECKSUMS_KEPT = 4096
# Number of a type in TensorFlow: its struct format in tensor_content, and the field of TensorProto with its values.
_DTYPES = {1: ("f", 5), 2: ("d", 6), 3: ("i", 7), 4: ("B", 7), 5: ("h", 7), 6: ("b", 7), 9: ("q", 10), 10: ("?", 11)}
_DTYPES |= {17: ("H", 7), 19: ("e", 0), 22: ("I", 16), 23: ("Q", 17)}

Fields = Iterator[tuple[int, int, Any]]


class TimeSpent(BaseException):
    """The CPU time is over. No `Exception`, so that no reader of an archive catches it."""


class Damaged(Exception):
    """A file is no event file from here on; the message is for the user."""


class TagPoints:
    """The points of one tag, as three lists: steps, times in seconds since the epoch, and values.

    When there are twice as many as are kept, of each four neighbors the least and the greatest value stay.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.times: list[float] = []
        self.values: list[float] = []
        self.count = 0
        self.not_finite = 0

    def add(self, step: int, time_s: float, value: float) -> None:
        """Add a point; values that are not finite are counted, and left out.

        Args:
            step: Of the training.
            time_s: When it was written.
        """
        self.count += 1
        if not math.isfinite(value) or not math.isfinite(time_s):
            self.not_finite += 1
            return
        self.steps.append(step)
        self.times.append(time_s)
        self.values.append(value)
        if len(self.values) >= 2 * KEPT_POINTS:
            self._thin()

    def extend(self, other: dict[str, Any]) -> None:
        """Add the points that another reader has found, as `to_json` returns them."""
        for step, time_s, value in zip(other["steps"], other["times"], other["values"], strict=True):
            self.add(step, time_s, value)
        self.count += other["count"] - len(other["values"])
        self.not_finite += other["not_finite"]

    def to_json(self) -> dict[str, Any]:
        """Return the points as values of JSON."""
        return {
            "steps": self.steps,
            "times": self.times,
            "values": self.values,
            "count": self.count,
            "not_finite": self.not_finite,
        }

    def _thin(self) -> None:
        kept: list[int] = []
        values = self.values
        for begin in range(0, len(values) - 1, 4):
            places = range(begin, min(begin + 4, len(values)))
            kept += sorted({min(places, key=values.__getitem__), max(places, key=values.__getitem__)})
        if kept[-1] != len(values) - 1:
            kept.append(len(values) - 1)  # the last value is the one that people look for
        self.steps = [self.steps[place] for place in kept]
        self.times = [self.times[place] for place in kept]
        self.values = [values[place] for place in kept]


class EventScalars:
    """The scalars of one event file.

    Args:
        is_over: Called between records; whether to stop here. Default: never.
    """

    def __init__(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self.tags: dict[str, TagPoints] = {}
        self.dropped_tags = 0
        self._plugins: dict[str, str] = {}
        self._is_over = is_over

    def read(self, file: BinaryIO, *, offset: int = 0) -> tuple[int, str, bool]:
        """Read complete records.

        Args:
            file: At this offset.
            offset: Where the first record begins.

        Returns:
            Where the next record begins; what is wrong there, if anything is; and whether all complete records were
            read.
        """
        number = 0
        checksums: dict[int, int] = {}  # of lengths, most of which repeat
        while True:
            number += 1
            if number % _TIME_CHECKED_RECORDS == 0 and self._is_over():
                return offset, "", False
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return offset, "", True
            length, checksum = _HEAD.unpack(head)
            if checksums.get(length) != checksum and _masked_crc(head[:8]) != checksum:
                return offset, f"the record at byte {offset} is damaged: its length has another checksum", True
            if length > _RECORD_MAX_BYTES:
                if not _skipped(file, length + 4):
                    return offset, "", True
            else:
                content = file.read(length + 4)
                if len(content) < length + 4:
                    return offset, "", True  # the writer has not finished it
                try:
                    self._event(memoryview(content)[:length])
                except (Damaged, ValueError, IndexError, struct.error):
                    return offset, f"the record at byte {offset} is damaged: it is no event", True
            if len(checksums) < _CHECKSUMS_KEPT:
                checksums[length] = checksum
            offset += _HEAD.size + length + 4

    def to_json(self) -> dict[str, Any]:
        """Return the points by tag."""
        return {tag: points.to_json() for tag, points in self.tags.items()}

    def _event(self, content: memoryview) -> None:
        time_s, step = 0.0, 0
        summaries: list[memoryview] = []
        for field, kind, value in _fields(content):
            if field == 1 and kind == _FIXED64:
                time_s = _DOUBLE.unpack(value)[0]
            elif field == 2 and kind == _VARINT:
                step = value - (1 << 64) if value >> 63 else value
            elif field == 5 and kind == _BYTES:
                summaries.append(value)
        for summary in summaries:
            for field, kind, value in _fields(summary):
                if field == 1 and kind == _BYTES:
                    self._value(value, step, time_s)

    def _value(self, content: memoryview, step: int, time_s: float) -> None:
        tag, plugin, number, tensor = "", "", None, None
        for field, kind, value in _fields(content):
            if field == 1 and kind == _BYTES:
                tag = bytes(value[: 4 * _TAG_CHARACTERS]).decode(errors="replace")[:_TAG_CHARACTERS]
            elif field == 2 and kind == _FIXED32:
                number = _FLOAT.unpack(value)[0]
            elif field == 8 and kind == _BYTES:
                tensor = value
            elif field == 9 and kind == _BYTES:
                plugin = _plugin(value)
        if plugin and len(self._plugins) < 4 * _MOST_TAGS:
            self._plugins[tag] = plugin
        if number is None and tensor is not None and self._plugins.get(tag, "scalars") == "scalars":
            number = _scalar(tensor)
        if number is None:
            return
        if tag not in self.tags and len(self.tags) >= _MOST_TAGS:
            self.dropped_tags += 1
            return
        self.tags.setdefault(tag, TagPoints()).add(step, time_s, number)


def read_file(file: BinaryIO, *, offset: int, is_over: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Read the complete records of an event file from an offset on.

    Args:
        file: Opened; its position is set.
        offset: Where a record begins.
        is_over: Called between records; whether to stop.

    Returns:
        ``tags``, ``offset`` of the next record, ``damage`` if it is damaged, and whether it is ``complete``.
    """
    file.seek(offset)
    scalars = EventScalars(is_over)
    end, damage, complete = scalars.read(file, offset=offset)
    return {"tags": scalars.to_json(), "offset": end, "damage": damage, "complete": complete}


def read_archive(file: BinaryIO, *, is_over: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Read the event files in a tar archive, which may be compressed.

    Args:
        file: At its beginning.
        is_over: As for `read_file`.

    Returns:
        ``files``: a list of ``name`` and ``tags``; ``damage``; and whether it is ``complete``.
    """
    files: list[dict[str, Any]] = []
    damage, complete = "", True
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                if not member.isfile() or MARK not in member.name.rpartition("/")[2]:
                    continue
                scalars, content = EventScalars(is_over), archive.extractfile(member)
                if content is not None:
                    _, its, complete = scalars.read(content)  # type: ignore[arg-type] - it only reads
                    damage = damage or (its and f"{member.name[:_TAG_CHARACTERS]}: {its}")
                    files.append({"name": member.name.removeprefix("./")[:1024], "tags": scalars.to_json()})
                if not complete:
                    break
    except TimeSpent:
        complete = False
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        damage = f"the archive is damaged: {type(error).__name__}: {error}"
    return {"files": files, "damage": damage, "complete": complete}


def main() -> None:
    """Perform the task in the first argument, on the file that is the standard input."""
    task = json.loads(sys.argv[1])
    spent: list[bool] = []
    # Between records the reader stops by itself; the second signal ends what takes longer, as in a large archive.
    signal.signal(signal.SIGPROF, lambda number, frame: _end(spent, frame))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(task["cpu_s"]) + 6, int(task["cpu_s"]) + 6))
    signal.setitimer(signal.ITIMER_PROF, task["cpu_s"], min(1.0, task["cpu_s"]))
    file = sys.stdin.buffer
    if task["archive"]:
        answer = read_archive(file, is_over=lambda: bool(spent))
    else:
        answer = read_file(file, offset=task["offset"], is_over=lambda: bool(spent))
    signal.setitimer(signal.ITIMER_PROF, 0)
    sys.stdout.buffer.write(json.dumps(answer, allow_nan=False).encode() + b"\n")


def _end(spent: list[bool], frame: FrameType | None) -> None:
    spent.append(True)
    if len(spent) > 1:
        raise TimeSpent


def _skipped(file: BinaryIO, size: int) -> bool:
    """Skip bytes; return False if the file ends before."""
    while size > 0:
        piece = file.read(min(size, 1 << 20))
        if not piece:
            return False
        size -= len(piece)
    return True


def _fields(content: memoryview) -> Fields:
    """Yield number, kind and value of the fields of a message: an int for a varint, else bytes.

    Raises:
        Damaged: It is no message.
    """
    place, end = 0, len(content)
    while place < end:
        key, place = _varint(content, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield key >> 3, kind, value
            continue
        if kind == _BYTES:
            size, place = _varint(content, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Damaged
        if size > end - place:
            raise Damaged
        yield key >> 3, kind, content[place : place + size]
        place += size


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = content[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, place
        shift += 7
        if shift > 63:
            raise Damaged


def _plugin(metadata: memoryview) -> str:
    for field, kind, value in _fields(metadata):
        if field == 1 and kind == _BYTES:
            for inner, inner_kind, name in _fields(value):
                if inner == 1 and inner_kind == _BYTES:
                    return bytes(name[:64]).decode(errors="replace")
    return ""


def _scalar(tensor: memoryview) -> float | None:
    """Return the value of a tensor with one number; None for any other tensor."""
    dtype, content = 0, b""
    values: dict[int, tuple[int, Any]] = {}
    for field, kind, value in _fields(tensor):
        if field == 1 and kind == _VARINT:
            dtype = value
        elif field == 2 and kind == _BYTES:
            if any(inner == 2 and not _is_one(dimension) for inner, _, dimension in _fields(value)):
                return None
        elif field == 4 and kind == _BYTES:
            content = bytes(value)
        elif field in (5, 6, 7, 10, 11, 16, 17):
            values.setdefault(field, (kind, value))
    if dtype not in _DTYPES:
        return None
    form, place = _DTYPES[dtype]
    if content:
        return float(struct.unpack(f"<{form}", content)[0]) if len(content) == struct.calcsize(f"<{form}") else None
    if place not in values:
        return 0.0 if place else None  # protocol buffers leave out zeros
    return _number(form, *values[place])


def _is_one(dimension: Any) -> bool:
    """Return whether a dimension of a shape has the size 1."""
    return any(field == 1 and value == 1 for field, _, value in _fields(dimension))


def _number(form: str, kind: int, value: Any) -> float:
    """Return the first of a field's values, which may be packed."""
    if form in "fd":
        return float(struct.unpack_from(f"<{form}", value)[0])
    number = _varint(value, 0)[0] if kind == _BYTES else value
    return float(number - (1 << 64) if form in "ihbq" and number >> 63 else number)


def _table() -> list[int]:
    """Return the table of CRC-32C, by which records are checked."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC = _table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


if __name__ == "__main__":
    main()
