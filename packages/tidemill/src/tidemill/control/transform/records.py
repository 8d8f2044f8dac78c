"""Split an object into records (lines, RecordIO or TFRecord), in bounded memory.

Formats: RecordIO is a magic number, a length and padding to four bytes around each record; TFRecord is a length, a
checksum, the record and its checksum.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import IO

_MAGIC = 0xCED7230A
_LENGTH_BITS = 29
_CRC_DELTA = 0xA282EAD8

Split = Callable[[IO[bytes], int], Iterator[tuple[bytes, bytes]]]
"""Called with a file and the maximum record size in bytes; yields each record without and with its framing."""


class BadObject(ValueError):
    """The content of an object does not have the job's SplitType; the message says where and why."""


def splitter(split_type: str) -> Split:
    """Return the function that splits objects of a SplitType into records.

    Args:
        split_type: SplitType of the request.

    Raises:
        KeyError: If there is no such type.
    """
    return _SPLITTERS[split_type]


def _whole(file: IO[bytes], limit_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise BadObject(f"it is larger than MaxPayloadInMB, {limit_bytes} bytes; give a SplitType or a larger limit")
    if data:
        yield data, data


def _lines(file: IO[bytes], limit_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    number = 0
    while line := file.readline(limit_bytes + 2):
        number += 1
        record = line.removesuffix(b"\n").removesuffix(b"\r")
        _check_size(len(record), limit_bytes, f"line {number}")
        if record:
            yield record, record + b"\n"


def _record_io(file: IO[bytes], limit_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    number = 0
    while head := file.read(8):
        number += 1
        at = f"RecordIO record {number}"
        magic, length = struct.unpack("<II", _whole_part(head, 8, at))
        if magic != _MAGIC:
            raise BadObject(f"{at} begins with {magic:#010x} instead of the magic number {_MAGIC:#010x}")
        if length >> _LENGTH_BITS:
            raise BadObject(f"{at} is one part of a record in several parts, which is not supported")
        _check_size(length, limit_bytes, at)
        body = _whole_part(file.read(padded := (length + 3) // 4 * 4), padded, at)
        yield body[:length], head + body


def _tf_records(file: IO[bytes], limit_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    number = 0
    while head := file.read(12):
        number += 1
        at = f"TFRecord record {number}"
        length, check = struct.unpack("<QI", _whole_part(head, 12, at))
        if _masked(head[:8]) != check:
            raise BadObject(f"{at}: the checksum of its length is wrong; the object is damaged or no TFRecord file")
        _check_size(length, limit_bytes, at)
        body = _whole_part(file.read(length + 4), length + 4, at)
        if _masked(body[:length]) != int.from_bytes(body[length:], "little"):
            raise BadObject(f"{at}: its checksum is wrong; the object is damaged")
        yield body[:length], head + body


def _masked(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecord."""
    from awscrt.checksums import crc32c  # takes long to import, and a service may never transform TFRecords

    value = crc32c(data)
    return ((value >> 15 | value << 17) + _CRC_DELTA) & 0xFFFFFFFF


def _whole_part(data: bytes, size_bytes: int, at: str) -> bytes:
    if len(data) < size_bytes:
        raise BadObject(f"it ends within {at}")
    return data


def _check_size(size_bytes: int, limit_bytes: int, at: str) -> None:
    if size_bytes > limit_bytes:
        raise BadObject(f"{at} is larger than MaxPayloadInMB, {limit_bytes} bytes")


_SPLITTERS: Mapping[str, Split] = {
    "None": _whole,
    "Line": _lines,
    "RecordIO": _record_io,
    "TFRecord": _tf_records,
}
