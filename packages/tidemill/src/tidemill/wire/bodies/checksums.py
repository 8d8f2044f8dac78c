"""Checksums of object bodies: S3's algorithms, by the names used in headers and trailers."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidemill.errors import AwsError

__all__ = ["HEADER_PREFIX", "MEMBERS", "Checksum", "announced_digests", "expected_digest", "new_checksum"]

HEADER_PREFIX = "x-amz-checksum-"
MEMBERS = {
    "crc32": "ChecksumCRC32",
    "crc32c": "ChecksumCRC32C",
    "crc64nvme": "ChecksumCRC64NVME",
    "md5": "ChecksumMD5",
    "sha1": "ChecksumSHA1",
    "sha256": "ChecksumSHA256",
    "sha512": "ChecksumSHA512",
    "xxhash128": "ChecksumXXHASH128",
    "xxhash3": "ChecksumXXHASH3",
    "xxhash64": "ChecksumXXHASH64",
}
"""Algorithm as in ``x-amz-checksum-ALGORITHM`` -> member of S3's model."""

_SIZES = {
    "crc32": 4,
    "crc32c": 4,
    "crc64nvme": 8,
    "md5": 16,
    "sha1": 20,
    "sha256": 32,
    "sha512": 64,
    "xxhash128": 16,
    "xxhash3": 8,
    "xxhash64": 8,
}


class Checksum(Protocol):
    """A running checksum."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes to the checksum.

        Args:
            data: A piece of the body; not kept.
        """
        ...

    def digest(self) -> bytes:
        """Return the checksum of all bytes added, most significant byte first."""
        ...


def new_checksum(algorithm: str) -> Checksum:
    """Start a checksum.

    Args:
        algorithm: A key of ``MEMBERS``.
    """
    return _MAKERS[algorithm]()


def announced_digests(headers: Mapping[str, str]) -> dict[str, bytes]:
    """Return what a request's head announces of its body: a checksum and an MD5 at most, by the name of the header.

    Args:
        headers: Headers of the request, names in lower case.

    Raises:
        AwsError: InvalidRequest, there are several checksums, or one is malformed. InvalidDigest, the MD5 is malformed.
    """
    found = [name for name in MEMBERS if HEADER_PREFIX + name in headers]
    if len(found) > 1:
        raise AwsError(
            f"Expecting a single {HEADER_PREFIX} header; received {', '.join(sorted(found))}.",
            code="InvalidRequest",
            status=400,
        )
    names = [HEADER_PREFIX + name for name in found]
    digests = {name: expected_digest(headers[name], header=name) for name in names}
    if "content-md5" in headers:
        digests["content-md5"] = expected_digest(
            headers["content-md5"], header="Content-MD5", size_bytes=16, code="InvalidDigest"
        )
    return digests


def expected_digest(text: str, *, header: str, size_bytes: int | None = None, code: str = "InvalidRequest") -> bytes:
    """Decode a base64 checksum.

    Raises:
        AwsError: ``code`` (400), it is not base64 of the right size.
    """
    size = size_bytes or _SIZES[header.removeprefix(HEADER_PREFIX)]
    try:
        digest = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size:
        raise AwsError(
            f"Value for {header} header is invalid: {text[:96]!r} is not base64 of {size} bytes.",
            code=code,
            status=400,
        )
    return digest


class _Running:
    """A cyclic checksum, computed by a function that continues from the current value."""

    def __init__(self, function: Callable[[Any, int], int], size_bytes: int) -> None:
        self._function = function
        self._size_bytes = size_bytes
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size_bytes, "big")


class _XxHash:
    def __init__(self, maker: str) -> None:
        from awscrt.checksums import XXHash

        self._hash = getattr(XXHash, maker)()

    def update(self, data: bytes | memoryview, /) -> None:
        self._hash.update(bytes(data))  # takes no memoryview

    def digest(self) -> bytes:
        return bytes(self._hash.finalize())


def _crc32() -> Checksum:
    from isal.isal_zlib import crc32  # ten times as fast as zlib's

    return _Running(crc32, 4)


def _crc32c() -> Checksum:
    from awscrt.checksums import crc32c

    return _Running(crc32c, 4)


def _crc64nvme() -> Checksum:
    from awscrt.checksums import crc64nvme

    return _Running(crc64nvme, 8)


_MAKERS: dict[str, Callable[[], Checksum]] = {
    "crc32": _crc32,
    "crc32c": _crc32c,
    "crc64nvme": _crc64nvme,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "xxhash128": lambda: _XxHash("new_xxhash3_128"),
    "xxhash3": lambda: _XxHash("new_xxhash3_64"),
    "xxhash64": lambda: _XxHash("new_xxhash64"),
}
