"""Split an object into request bodies, with one or as many filtered records as fit."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from tidemill.control.transform.processing import Processing, ProcessingFault
from tidemill.control.transform.records import BadObject, Split


@dataclass(frozen=True, slots=True)
class Payload:
    """The body of one request.

    Attributes:
        first: Number of its first record in the object, counted from 1.
        count: Number of records.
        records: The unfiltered records, if results are joined to them.
    """

    first: int
    count: int
    body: bytes
    records: tuple[bytes, ...] = ()

    @property
    def place(self) -> str:
        """The record numbers, for messages."""
        return f"record {self.first}" if self.count == 1 else f"records {self.first} to {self.first + self.count - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadCutter:
    """Cuts objects into payloads.

    Attributes:
        split: Splits an object into records.
        framed: Keep the frames of records, which separate the records of one request.
        single: Send one record per request.
        limit_bytes: Maximum size of a body in bytes.
        gzipped: Decompress objects with gzip.
        processing: Filters records.
    """

    split: Split
    framed: bool
    single: bool
    limit_bytes: int
    gzipped: bool
    processing: Processing

    def payloads(self, file: IO[bytes]) -> Iterator[Payload]:
        """Yield the payloads of an object in order.

        Raises:
            BadObject: The object cannot be split, or a record cannot be filtered.
        """
        try:
            yield from self._packed(cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if self.gzipped else file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadObject(f"it cannot be decompressed as CompressionType Gzip: {error}") from error

    def _packed(self, file: IO[bytes]) -> Iterator[Payload]:
        waiting: list[bytes] = []
        sources: list[bytes] = []
        size_bytes = first = 0
        for number, (bare, framed) in enumerate(self.split(file, self.limit_bytes), start=1):
            part = self._part(bare, framed, number)
            if waiting and (self.single or size_bytes + len(part) > self.limit_bytes):
                yield self._payload(first, waiting, sources)
                waiting.clear()
                sources.clear()
                size_bytes = 0
            first = first if waiting else number
            waiting.append(part)
            size_bytes += len(part)
            if self.processing.joins:
                sources.append(bare)
        if waiting:
            yield self._payload(first, waiting, sources)

    def _part(self, bare: bytes, framed: bytes, number: int) -> bytes:
        """Return the bytes of one record in a body."""
        try:
            filtered = self.processing.input_of(bare)
        except ProcessingFault as fault:
            raise BadObject(f"record {number}: {fault}") from fault
        if filtered is bare:
            return framed if self.framed else bare
        return filtered + b"\n" if self.framed else filtered

    def _payload(self, first: int, parts: list[bytes], sources: list[bytes]) -> Payload:
        body = b"".join(parts)
        if self.processing.of_lines:
            body = body.removesuffix(b"\n")
        return Payload(first, len(parts), body, tuple(sources))
