"""Record framings in Python: bytes in, records out. The native framers match them, error texts included.

A framer accepts pieces of any size, buffers incomplete records, and stops at the first error, after it has yielded the
records before the error.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator

from sagemaker_tensorflow.crc32c import crc32c, mask_crc32c
from sagemaker_tensorflow.options import ReaderOptions

_RECORDIO_MAGIC = 0xCED7230A
_GZIP_MAGIC = b"\x1f\x8b\x08"
_IS_GZIP = (
    " It begins as gzip does: give the channel CompressionType Gzip (TrainingInput(..., compression='Gzip')), or store"
    " the data decompressed"
)
_IS_RECORDIO = (
    " It begins with the magic number of RecordIO: pass record_format='RecordIO', or leave RecordWrapperType out of the"
    " channel"
)


class FramingError(Exception):
    """Raised if the stream is not a valid sequence of records."""


class Framer(ABC):
    """Splits a stream into records."""

    def __init__(self, options: ReaderOptions) -> None:
        self.record_offset = 0
        """Byte of the stream at which the current record begins."""
        self.record_number = 0
        """Number of the current record, from 0."""
        self.warnings: list[str] = []
        """Warnings that the caller prints and removes."""
        self.taken = 0
        """Bytes of the stream that have become records."""
        self._max_record_bytes = options.max_record_bytes
        self._buffer = bytearray()
        self._at = 0

    def take(self, data: bytes) -> Iterator[bytes]:
        """Add a piece and yield the records that are now complete.

        Raises:
            FramingError: The next bytes are not a valid record.
        """
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data
        return self._records()

    @abstractmethod
    def finish(self) -> Iterator[bytes]:
        """End the stream: yield the last record, or raise FramingError if it is truncated."""

    @abstractmethod
    def _records(self) -> Iterator[bytes]:
        """Yield the complete records."""

    def _left(self) -> int:
        return len(self._buffer) - self._at

    def _unpack(self, form: str, offset: int = 0) -> tuple[int, ...]:
        return struct.unpack_from(form, self._buffer, self._at + offset)

    def _cause(self) -> str:
        """Return the likely cause of an invalid header; empty if unknown."""
        start = bytes(self._buffer[self._at : self._at + 4])
        if start.startswith(_GZIP_MAGIC):
            return _IS_GZIP
        return _IS_RECORDIO if start == _RECORDIO_MAGIC.to_bytes(4, "little") else ""

    def _advance(self, size: int) -> None:
        self._at += size
        self.taken += size

    def _check_length(self, size: int) -> None:
        if size > self._max_record_bytes:
            raise FramingError(f"Record too long: {size} bytes; {self._limit()}")

    def _limit(self) -> str:
        return f"max_record_bytes is {self._max_record_bytes}; if the data are sound, pass a greater one"


class _RecordIOFramer(Framer):
    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._strict_padding = options.strict_padding
        self._parts: list[bytes] = []
        self._continued = False

    def _records(self) -> Iterator[bytes]:
        while True:
            if not self._continued:
                self.record_offset = self.taken
            if self._left() < 8:
                return
            flag, length = self._header()
            padding = -length % 4
            if self._left() < 8 + length + padding:
                return
            record = self._end_part(flag, length, padding)
            if record is not None:
                yield record

    def _header(self) -> tuple[int, int]:
        magic, word = self._unpack("<II")
        if magic != _RECORDIO_MAGIC:
            raise FramingError(f"Invalid magic number: {magic}{self._cause()}")
        flag, length = word >> 29, word & 0x1FFFFFFF
        if flag > 3 or (flag in (0, 1)) == self._continued:
            inside = " inside a record of several parts" if self._continued else " without a begin"
            raise FramingError(f"Invalid RecordIO part: flag {flag}{' (0 to 3 are defined)' if flag > 3 else inside}")
        self._check_length(sum(map(len, self._parts)) + length)
        return flag, length

    def _end_part(self, flag: int, length: int, padding: int) -> bytes | None:
        begin = self._at + 8
        self._parts.append(bytes(self._buffer[begin : begin + length]))
        self._advance(8 + length + padding)
        self._continued = flag in (1, 2)
        if self._continued:
            return None
        record = b"".join(self._parts)
        self._parts.clear()
        self.record_offset = self.taken
        self.record_number += 1
        return record

    def finish(self) -> Iterator[bytes]:
        left = self._left()
        if left >= 8:
            flag, length = self._header()
            if left < 8 + length:
                raise FramingError(f"Truncated RecordIO record: {8 + length - left} more bytes were announced")
            if self._strict_padding:
                raise FramingError("Truncated RecordIO record: the padding of the last record is missing")
            record = self._end_part(flag, length, left - 8 - length)  # some writers omit the last padding
            if record is not None:
                yield record
        elif left:
            raise FramingError(f"Truncated RecordIO header: {left} of 8 bytes")
        if self._continued:
            raise FramingError("Truncated RecordIO record: its last part is missing")


class _TFRecordFramer(Framer):
    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._max_corrupted = options.max_corrupted_records
        self._corrupted = 0  # consecutive corrupted records

    def _records(self) -> Iterator[bytes]:
        while True:
            self.record_offset = self.taken
            if self._left() < 12:
                return
            length = self._header()
            if self._left() < 16 + length:
                return
            data = bytes(self._buffer[self._at + 12 : self._at + 12 + length])
            (checksum,) = self._unpack("<I", 12 + length)
            sound = checksum == mask_crc32c(crc32c(data))
            if not sound:
                self._skip()
            self._advance(16 + length)
            self.record_number += 1
            if sound:
                self._corrupted = 0
                yield data

    def _header(self) -> int:
        length, checksum = self._unpack("<QI")
        if checksum != mask_crc32c(crc32c(bytes(self._buffer[self._at : self._at + 8]))):
            raise FramingError(f"CRC check on header failed.{self._cause()}")
        self._check_length(length)
        return length

    def _skip(self) -> None:
        if self._corrupted >= self._max_corrupted:
            raise FramingError("CRC check on data failed.")
        self._corrupted += 1
        self.warnings.append(
            f"record {self.record_number} at byte offset {self.record_offset} is corrupt and skipped"
            f" ({self._corrupted} of {self._max_corrupted} in a row)"
        )

    def finish(self) -> Iterator[bytes]:
        left = self._left()
        if left >= 12:
            missing = 12 + self._header() - left
            cut = (
                f"{missing} more bytes of data were announced"
                if missing > 0
                else f"{-missing} of 4 bytes of its checksum"
            )
            raise FramingError(f"CRC check on data failed. The record is truncated: {cut}")
        if left:
            raise FramingError(f"CRC check on header failed. The header is truncated: {left} of 12 bytes")
        yield from ()


class _TextLineFramer(Framer):
    def _records(self) -> Iterator[bytes]:
        searched = self._at
        while True:
            end = self._buffer.find(b"\n", searched)
            if (end if end >= 0 else len(self._buffer)) - self._at > self._max_record_bytes:
                # Without the actual length: it depends on how much of the line has arrived.
                raise FramingError(f"Record too long: {self._limit()}")
            if end < 0:
                return
            record = bytes(self._buffer[self._at : end])
            self._advance(end + 1 - self._at)
            searched = self._at
            self.record_offset = self.taken
            self.record_number += 1
            yield record

    def finish(self) -> Iterator[bytes]:
        if self._left():
            record = bytes(self._buffer[self._at :])
            self._advance(len(record))
            self.record_offset = self.taken
            self.record_number += 1
            yield record


def make_framer(options: ReaderOptions) -> Framer:
    """Return the framer for `options.record_format`.

    Args:
        options: `record_format` is `RecordIO`, `TFRecord` or `TextLine`.

    Returns:
        A framer for one epoch.

    Raises:
        KeyError: If the format is another.
    """
    return {"RecordIO": _RecordIOFramer, "TFRecord": _TFRecordFramer, "TextLine": _TextLineFramer}[
        options.record_format
    ](options)
