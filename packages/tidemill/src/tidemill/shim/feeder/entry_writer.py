"""Write an entry of a channel to a FIFO: unchanged, unpacked, or wrapped into a RecordIO record."""

import os
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.instance import records
from tidemill.instance.spec import Entry, InlineText, ObjectFile, RemoteObject
from tidemill.shim.feeder.faults import ObjectFault, StoreFault
from tidemill.shim.feeder.inflate import Readable, inflate
from tidemill.shim.feeder.pipe_writer import PipeWriter

_SMALL_BYTES = 1 << 14  # smaller pieces share a page of the pipe, which is faster than a page for each
_IN_MEMORY_BYTES = 1 << 23
_PASSED_BYTES = 1 << 18
_MAGIC = 0xCED7230A
_PART_BYTES = (1 << 29) - 4  # the longest length that 29 bits hold and that needs no padding
_WHOLE, _BEGIN, _MIDDLE, _END = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryWriter:
    """Writes entries.

    Attributes:
        gzip: Unpack objects. Text of a manifest is never packed.
        record_io: Wrap every entry into one record.
        spool: Directory for temporary files with unpacked objects, whose length must be known first.
        part_bytes: Maximum size of one part of a record, in bytes; a multiple of 4.
    """

    gzip: bool
    record_io: bool
    spool: Path
    part_bytes: int = _PART_BYTES

    def write_batch(self, batch: Sequence[Mapping[str, Any]], pipe: PipeWriter) -> None:
        """Write entries that are not remote, each as `tidemill.instance.records.entry_to_json` returns it.

        Raises as `write`.
        """
        files = self._files(batch)
        position = 0
        while position < len(batch):
            if files:
                position += self._send(batch[position:], files[position:], pipe)
            if position < len(batch):
                self.write(records.entry_from_json(batch[position]), pipe)
                position += 1

    def _files(self, batch: Sequence[Mapping[str, Any]]) -> Sequence[tuple[str, int]]:
        """Return path and size of each entry if `PipeWriter.send_files` can send them all; else nothing."""
        if self.gzip or not PipeWriter.can_send_files():
            return ()
        try:
            files = [(entry["file"], entry["size_bytes"]) for entry in batch]
        except KeyError:  # the text of a manifest
            return ()
        must_be_split = self.record_io and any(size_bytes > self.part_bytes for _, size_bytes in files)
        return () if must_be_split else files

    def _send(self, batch: Sequence[Mapping[str, Any]], files: Sequence[tuple[str, int]], pipe: PipeWriter) -> int:
        """Send files up to the first one that has to be written by `write`, and return their number."""
        sent, ended_at = pipe.send_files(files, record_io=self.record_io)
        pipe.entries += sent
        if ended_at is not None:
            raise _ended_early(batch[sent]["uri"], ended_at)
        return sent

    def write(self, entry: Entry, pipe: PipeWriter, *, body: Readable | None = None) -> None:
        """Write one entry.

        Args:
            pipe: Writes to the FIFO.
            body: Content of the entry, if it is a remote object; required then. Default: None.

        Raises:
            ChannelFault: The entry cannot be written completely; a part of it may be in the FIFO.
            ReaderGone: The reader has left.
            Cancelled: The job is over.
        """
        self._write(entry, pipe, body)
        pipe.entries += 1

    def _write(self, entry: Entry, pipe: PipeWriter, body: Readable | None) -> None:
        if isinstance(entry, InlineText):
            text = entry.text.encode(errors="surrogatepass")
            pipe.write(_record(text) if self.record_io else text)
            return
        if isinstance(entry, RemoteObject):
            if body is None:
                raise StoreFault(f"{entry.uri} is of a remote store, and nobody has fetched it")
            self._write_remote(entry, body, pipe)
            return
        fd = _open(entry)
        try:
            if not self.gzip:
                self._write_file(fd, entry.size_bytes, pipe, uri=entry.uri)
                return
            with open(fd, "rb", buffering=0, closefd=False) as file:
                self._write_unpacked(inflate(file, uri=entry.uri), pipe, uri=entry.uri)
        finally:
            os.close(fd)

    def _write_remote(self, entry: RemoteObject, body: Readable, pipe: PipeWriter) -> None:
        if self.gzip:
            self._write_unpacked(inflate(body, uri=entry.uri), pipe, uri=entry.uri)
        elif self.record_io:
            for _, length, flag in _parts(entry.size_bytes, self.part_bytes):
                pipe.write(_header(length, flag))
                _pass_on(body, length, pipe, uri=entry.uri)
                pipe.write(bytes(-length % 4))
        else:
            _pass_on(body, entry.size_bytes, pipe, uri=entry.uri)

    def _write_unpacked(self, pieces: Iterable[bytes], pipe: PipeWriter, *, uri: str) -> None:
        if self.record_io:
            self._write_spooled(pieces, pipe, uri=uri)
            return
        for piece in pieces:
            pipe.write(piece)

    def _write_file(self, fd: int, size_bytes: int, pipe: PipeWriter, *, uri: str) -> None:
        if not self.record_io:
            _copy(fd, 0, size_bytes, pipe, uri=uri)
            return
        for offset, length, flag in _parts(size_bytes, self.part_bytes):
            pipe.write(_header(length, flag))
            _copy(fd, offset, length, pipe, uri=uri)
            pipe.write(bytes(-length % 4))

    def _write_spooled(self, pieces: Iterable[bytes], pipe: PipeWriter, *, uri: str) -> None:
        """Unpack an object completely before writing it, on disk if it is long: a record begins with its length."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(self.spool)) as spooled:
            for piece in pieces:
                spooled.write(piece)
            size_bytes = spooled.tell()
            if size_bytes <= min(_IN_MEMORY_BYTES, self.part_bytes):
                spooled.seek(0)
                pipe.write(_record(spooled.read()))
                return
            spooled.rollover()
            spooled.flush()
            self._write_file(spooled.fileno(), size_bytes, pipe, uri=uri)


def _open(entry: ObjectFile) -> int:
    try:
        fd = os.open(entry.file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ObjectFault(
            f"{entry.uri} was deleted or replaced after the job was created. Keep the objects of a Pipe channel until"
            " the job has ended"
        ) from error
    except OSError as error:
        raise StoreFault(f"{entry.uri} cannot be read from the object store: {error.strerror}") from error
    size_bytes = os.fstat(fd).st_size
    if size_bytes != entry.size_bytes:
        os.close(fd)
        raise StoreFault(f"{entry.uri} is damaged in the object store: {size_bytes} bytes of {entry.size_bytes}")
    return fd


def _copy(fd: int, offset: int, size_bytes: int, pipe: PipeWriter, *, uri: str) -> None:
    if size_bytes < _SMALL_BYTES:
        data = os.pread(fd, size_bytes, offset)
        pipe.write(data)
        moved = len(data)
    else:
        moved = pipe.send_file(fd, offset, size_bytes)
    if moved != size_bytes:
        raise _ended_early(uri, offset + moved)


def _ended_early(uri: str, at_bytes: int) -> StoreFault:
    return StoreFault(f"{uri} is damaged in the object store: it ended early, at byte {at_bytes}")


def _pass_on(body: Readable, size_bytes: int, pipe: PipeWriter, *, uri: str) -> None:
    """Write the next ``size_bytes`` of an object; raise StoreFault if it ends before."""
    while size_bytes:
        piece = body.read(min(size_bytes, _PASSED_BYTES))
        if not piece:
            raise StoreFault(f"{uri} ended early, {size_bytes} bytes before its end")
        pipe.write(piece)
        size_bytes -= len(piece)


def _parts(size_bytes: int, part_bytes: int) -> Iterable[tuple[int, int, int]]:
    """Return offset, length and flag of each part of a record."""
    if size_bytes <= part_bytes:
        return [(0, size_bytes, _WHOLE)]
    starts = range(0, size_bytes, part_bytes)
    flags = [_BEGIN, *[_MIDDLE] * (len(starts) - 2), _END]
    return [(start, min(part_bytes, size_bytes - start), flag) for start, flag in zip(starts, flags, strict=True)]


def _header(length: int, flag: int) -> bytes:
    return struct.pack("<II", _MAGIC, flag << 29 | length)


def _record(data: bytes) -> bytes:
    return _header(len(data), _WHOLE) + data + bytes(-len(data) % 4)
