"""Bodies of S3's requests: streamed, decoded and verified on the way, by signature and checksums.

A handler gets a ``BodyStream`` for a streaming member. The stream raises at its end if the hash, a checksum, a
signature or the length is wrong, so a handler must not publish anything before the stream is exhausted.
"""

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from tidemill.errors import AwsError, PayloadMismatch
from tidemill.wire.bodies.chunked import ChunkedDecoder, ChunkSigner
from tidemill.wire.request import Request
from tidemill.wire.signing.sigv4 import UNSIGNED_PAYLOAD, Claim

Receive = Callable[[], Awaitable[tuple[bytes, bool]]]
"""Returns the next bytes of a body and whether more follow; raises `ClientLeft` if the client disconnects before."""

_PREFIX = "x-amz-checksum-"
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

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_ALGORITHM_HEADER = "x-amz-sdk-checksum-algorithm"
_STREAMING = (_SIGNED, _SIGNED_TRAILER, _UNSIGNED_TRAILER)


class Checksum(Protocol):
    """A running checksum."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes to the checksum.

        Args:
            data: A piece of the body; not kept.
        """

    def digest(self) -> bytes:
        """Return the checksum of all bytes added, most significant byte first."""


class BodyStream:
    """An asynchronous iterator over the verified, decoded bytes of a request body.

    Attributes:
        checksums: The verified checksums, by the names of S3's input members, e.g. ``{"ChecksumCRC32": "DUoRhQ=="}``.
            Complete once the stream is exhausted, since a trailer comes last.
        size_bytes: Announced decoded size; None if the client did not announce it.
        is_exhausted: Whether the end was reached and all checks passed.
    """

    def __init__(
        self,
        receive: Receive,
        *,
        limit_bytes: int,
        size_bytes: int | None,
        decoder: ChunkedDecoder | None = None,
        sha256: str | None = None,
        digests: Mapping[str, bytes] | None = None,
        trailers: frozenset[str] = frozenset(),
    ) -> None:
        self.checksums: dict[str, str] = {}
        self.size_bytes = size_bytes
        self.is_exhausted = False
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._received_bytes = 0
        self._decoder = decoder
        self._sha256 = sha256
        self._digests = dict(digests or {})
        self._ready: deque[bytes] = deque()
        self._more = True
        self._running: dict[str, Checksum] = {name: _running(name) for name in {*self._digests, *trailers}}
        self._hash = hashlib.sha256() if sha256 is not None else None

    def __aiter__(self) -> "BodyStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if not self._more:
                if not self.is_exhausted:
                    self._finish()
                raise StopAsyncIteration
            await self._pull()
        return self._ready.popleft()

    def leave_sha256(self) -> str | None:
        """Return the SHA-256 that the signature covers, in hexadecimal, and do not compare it at the end.

        For a reader that computes the SHA-256 itself, in another thread: the reader has to compare it. None if the
        signature does not cover the whole body, or if bytes were read already.
        """
        if self._received_bytes:
            return None
        self._hash = None
        return self._sha256

    async def read(self) -> bytes:
        """Return the remaining bytes, verified."""
        return b"".join([piece async for piece in self])

    async def _pull(self) -> None:
        data, self._more = await self._receive()
        for piece in self._decoder.feed(data) if self._decoder is not None else [data]:
            self._take(piece)

    def _take(self, piece: bytes) -> None:
        if not piece:
            return
        self._received_bytes += len(piece)
        if self._received_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes)
        for checksum in self._running.values():
            checksum.update(piece)
        if self._hash is not None:
            self._hash.update(piece)
        self._ready.append(piece)

    def _finish(self) -> None:
        trailers = self._decoder.finish() if self._decoder is not None else {}
        if self._hash is not None and not hmac.compare_digest(self._hash.hexdigest(), self._sha256 or ""):
            raise PayloadMismatch
        late = {name: _expected_digest(text, header=name) for name, text in trailers.items()}
        for header, digest in (*self._digests.items(), *late.items()):
            if self._running[header].digest() != digest:
                raise AwsError(f"The {header} you specified did not match the calculated checksum.", code="BadDigest")
            member = MEMBERS.get(header.removeprefix(_PREFIX)) if header.startswith(_PREFIX) else None
            if member is not None:
                self.checksums[member] = base64.b64encode(digest).decode("ascii")
        self.is_exhausted = True


def open_body(
    request: Request, claim: Claim, receive: Receive, *, payload: str, limit_bytes: int, checks_digest: bool = True
) -> BodyStream:
    """Return the stream of an S3 request's body.

    Args:
        request: Head of the request, already verified.
        claim: The signer; the chain of chunk signatures continues from its signature.
        payload: The signed value for the body: its hash, or the keyword for how it is sent.
        limit_bytes: Maximum decoded size.
        checks_digest: Whether checksum headers are about this body, and not about an object made elsewhere.

    Raises:
        AwsError: The head announces an invalid size, form, trailer or checksum.
    """
    digests: dict[str, bytes] = {}
    if checks_digest:
        digests = _announced_digests(request.headers)
        _check_algorithm(request)
    if payload in _STREAMING:
        return _open_chunked(request, claim, receive, payload=payload, limit_bytes=limit_bytes, digests=digests)
    if payload != UNSIGNED_PAYLOAD and not _SHA256.fullmatch(payload):
        raise AwsError(
            f"x-amz-content-sha256 must be {UNSIGNED_PAYLOAD}, {', '.join(_STREAMING)}, or a SHA-256 in hexadecimal;"
            f" received {payload[:96]!r}.",
            code="InvalidArgument",
        )
    announced_bytes = request.content_length or 0
    if announced_bytes > limit_bytes:
        raise too_large(limit_bytes)
    return BodyStream(
        receive,
        limit_bytes=limit_bytes,
        size_bytes=None if "transfer-encoding" in request.headers else announced_bytes,
        sha256=None if payload == UNSIGNED_PAYLOAD else payload,
        digests=digests,
    )


def new_checksum(algorithm: str) -> Checksum:
    """Start a checksum.

    Args:
        algorithm: A key of ``MEMBERS``.
    """
    return _MAKERS[algorithm]()


def inflated(body: bytes, *, limit_bytes: int) -> bytes:
    """Return the content of a body that is compressed by gzip.

    Raises:
        AwsError: RequestEntityTooLarge (413), the content is above the limit; SerializationException, it is no gzip.
    """
    reader = zlib.decompressobj(wbits=31)
    try:
        content = reader.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise AwsError(f"The body is not compressed by gzip: {error}", code="SerializationException") from error
    if len(content) > limit_bytes:
        raise too_large(limit_bytes)
    if not reader.eof:
        raise AwsError("The body is not compressed by gzip: it ends early", code="SerializationException")
    return content


def too_large(limit_bytes: int) -> AwsError:
    """Return the error for a body above its limit.

    Args:
        limit_bytes: The limit that the body exceeds.

    Returns:
        HTTP status 413; the connection is closed.
    """
    return AwsError(
        f"The request body is larger than the {limit_bytes} bytes that are allowed here.",
        code="RequestEntityTooLarge",
        close=True,
    )


def _open_chunked(
    request: Request,
    claim: Claim,
    receive: Receive,
    *,
    payload: str,
    limit_bytes: int,
    digests: Mapping[str, bytes],
) -> BodyStream:
    decoded_bytes = _decoded_bytes(request)
    if decoded_bytes is not None and decoded_bytes > limit_bytes:
        raise too_large(limit_bytes)
    if payload != _UNSIGNED_TRAILER and not claim.key:
        raise AwsError("This form of presigned URL does not sign chunks.", code="InvalidArgument")
    trailers = _announced_trailers(request) if payload != _SIGNED else frozenset()
    signer = ChunkSigner(claim.key, claim.stamp, claim.scope, claim.signature) if payload != _UNSIGNED_TRAILER else None
    return BodyStream(
        receive,
        limit_bytes=limit_bytes,
        size_bytes=decoded_bytes,
        decoder=ChunkedDecoder(
            decoded_bytes=decoded_bytes, signer=signer, trailers=None if payload == _SIGNED else trailers
        ),
        digests=digests,
        trailers=trailers,
    )


def _decoded_bytes(request: Request) -> int | None:
    """Return the size of the payload; None if boto3 uploads a stream whose size it does not know."""
    text = request.headers.get("x-amz-decoded-content-length")
    if text is None and "transfer-encoding" in request.headers:
        return None
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise AwsError(
            f"A body in chunks needs the header x-amz-decoded-content-length; received {(text or '')[:32]!r}.",
            code="MissingContentLength",
        )
    return int(text)


def _check_algorithm(request: Request) -> None:
    """Refuse a request that names a checksum algorithm but has no checksum: nothing would be verified."""
    algorithm = request.headers.get(_ALGORITHM_HEADER)
    sent = request.headers.get("x-amz-trailer") or any(_PREFIX + name in request.headers for name in MEMBERS)
    if algorithm and not sent:
        raise AwsError(
            f"The header {_ALGORITHM_HEADER} is {algorithm[:32]!r}, but no checksum was sent; send"
            f" {_PREFIX}{algorithm[:32].lower()} as a header or a trailer.",
            code="InvalidRequest",
        )


def _announced_trailers(request: Request) -> frozenset[str]:
    text = request.headers.get("x-amz-trailer", "")
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    known = {_PREFIX + name for name in MEMBERS}
    if not known.issuperset(names) or len(names) > 1:
        raise AwsError(
            f"The value specified in the x-amz-trailer header is not supported: {text[:128]!r}; one of"
            f" {', '.join(sorted(known))} is.",
            code="InvalidRequest",
        )
    return frozenset(names)


def _running(header: str) -> Checksum:
    return new_checksum("md5" if header == "content-md5" else header.removeprefix(_PREFIX))


def _announced_digests(headers: Mapping[str, str]) -> dict[str, bytes]:
    """Return what a request's head announces of its body: a checksum and an MD5 at most, by the name of the header.

    Args:
        headers: Headers of the request, names in lower case.

    Raises:
        AwsError: InvalidRequest, there are several checksums, or one is malformed. InvalidDigest, the MD5 is malformed.
    """
    found = [name for name in MEMBERS if _PREFIX + name in headers]
    if len(found) > 1:
        raise AwsError(
            f"Expecting a single {_PREFIX} header; received {', '.join(sorted(found))}.",
            code="InvalidRequest",
        )
    names = [_PREFIX + name for name in found]
    digests = {name: _expected_digest(headers[name], header=name) for name in names}
    if "content-md5" in headers:
        digests["content-md5"] = _expected_digest(
            headers["content-md5"], header="Content-MD5", size_bytes=16, code="InvalidDigest"
        )
    return digests


def _expected_digest(text: str, *, header: str, size_bytes: int | None = None, code: str = "InvalidRequest") -> bytes:
    """Decode a base64 checksum.

    Raises:
        AwsError: ``code`` (400), it is not base64 of the right size.
    """
    size = size_bytes or _SIZES[header.removeprefix(_PREFIX)]
    try:
        digest = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size:
        raise AwsError(
            f"Value for {header} header is invalid: {text[:96]!r} is not base64 of {size} bytes.",
            code=code,
        )
    return digest


class _CyclicChecksum:
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

    return _CyclicChecksum(crc32, 4)


def _crc32c() -> Checksum:
    from awscrt.checksums import crc32c

    return _CyclicChecksum(crc32c, 4)


def _crc64nvme() -> Checksum:
    from awscrt.checksums import crc64nvme

    return _CyclicChecksum(crc64nvme, 8)


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
