"""Unpack a gzip stream in bounded memory, regardless of the sizes that the archive claims."""

from collections.abc import Iterator
from typing import Any, Protocol

from tidemill.shim.codec import codec
from tidemill.shim.feeder.faults import ObjectFault

_MAGIC = b"\x1f\x8b"
_READ_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20
_GZIP_WINDOW = 31


class Readable(Protocol):
    """A source of bytes. ``read`` returns at most ``size`` bytes, possibly fewer, and none at the end."""

    def read(self, size: int, /) -> bytes: ...


def inflate(file: Readable, *, uri: str) -> Iterator[bytes]:
    """Yield the unpacked content of all members of a gzip file, in pieces. An empty file yields nothing.

    Args:
        file: Source of the packed bytes; may be unbuffered.
        uri: URI of the object, for messages.

    Raises:
        ObjectFault: The file is not gzip, is damaged, or is truncated.
    """
    try:
        yield from _unpack_members(file, uri)
    except codec.error as error:
        raise _not_gzip(uri, str(error)) from error


def _unpack_members(file: Readable, uri: str) -> Iterator[bytes]:
    member: Any = None
    seen = False
    while data := file.read(_READ_BYTES):
        if member is None and seen:
            data = data.lstrip(b"\0")  # archives from tapes and block devices are padded
        while data:
            if member is None:
                member, seen = _begin_member(data, uri), True
            yield from _unpack(member, data)
            data, member = (member.unused_data.lstrip(b"\0"), None) if member.eof else (b"", member)
    if member is not None:
        raise ObjectFault(f"{uri} is truncated: its gzip stream has no end. Upload it again")


def _begin_member(data: bytes, uri: str) -> Any:
    # Check here, because isal would wait for the rest of a header, and zlib for the second byte.
    if not _MAGIC.startswith(data[: len(_MAGIC)]):
        raise _not_gzip(uri, f"a member begins with {data[:4].hex()}")
    return codec.decompressobj(_GZIP_WINDOW)


def _unpack(member: Any, data: bytes) -> Iterator[bytes]:
    """Yield the output of a member for more input, until all input is used or the member ends."""
    while True:
        piece = member.decompress(data, _PIECE_BYTES)
        if piece:
            yield piece
        data = member.unconsumed_tail
        if member.eof or (not data and len(piece) < _PIECE_BYTES):
            return


def _not_gzip(uri: str, reason: str) -> ObjectFault:
    return ObjectFault(f"{uri} is damaged or is not gzip, as CompressionType of its channel says: {reason}")
