"""Builds requests byte by byte, signed by botocore's own signer, and parses the answers."""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest import mock

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

__all__ = ["Answer", "Signed", "chunked_upload", "converse", "crc32", "json_call", "presigned"]

JSON = {"Content-Type": "application/x-amz-json-1.1"}


@dataclass
class Answer:
    """The answer of the service."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error code, from JSON or XML."""
        if self.body.startswith(b"{"):
            return str(json.loads(self.body).get("__type"))
        found = re.search(rb"<Code>(.*?)</Code>", self.body)
        return found[1].decode() if found else ""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


@dataclass
class Signed:
    """A request that botocore has signed; change it afterwards to make it invalid."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    stamp: str = ""
    extra: list[str] = field(default_factory=list)
    """Raw header lines."""

    @property
    def path(self) -> str:
        return "/" + self.url.partition("://")[2].partition("/")[2]

    def header(self, name: str) -> str:
        return next(value for key, value in self.headers if key.lower() == name.lower())

    def replaced(self, name: str, value: str | None) -> "Signed":
        kept = [(key, old) for key, old in self.headers if key.lower() != name.lower()]
        added = [(name, value)] if value is not None else []
        return Signed(self.method, self.url, kept + added, self.body, self.stamp, self.extra)

    def with_body(self, body: bytes) -> "Signed":
        changed = self.replaced("Content-Length", str(len(body)))
        changed.body = body
        return changed

    def raw(self) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, *self.extra, "", ""]).encode("latin-1") + self.body


def sign(
    port: int,
    *,
    key: str,
    secret: str,
    token: str | None = None,
    service: str = "sagemaker",
    region: str = "us-west-2",
    method: str = "POST",
    path: str = "/",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    shift_s: float = 0,
    signer: type[botocore.auth.SigV4Auth] | None = None,
    expires_s: int | None = None,
    host: str | None = None,
) -> Signed:
    """Sign with botocore, optionally with a shifted clock."""
    host = host or f"127.0.0.1:{port}"
    request = AWSRequest(method=method, url=f"http://{host}{path}", headers=headers or {}, data=body)
    request.context["client_config"] = None
    kind = signer or (botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth)
    options = {} if expires_s is None else {"expires": expires_s}
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=shift_s)
    with mock.patch.object(botocore.auth, "get_current_datetime", lambda: now.replace(tzinfo=None)):
        kind(Credentials(key, secret, token), service, region, **options).add_auth(request)
    found = [(name, value) for name, value in request.headers.items() if name.lower() != "host"]
    length = [("Content-Length", str(len(body)))] if body or method in ("POST", "PUT") else []
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    return Signed(method, request.url, [("Host", host), *found, *length], body, stamp)


def json_call(port: int, target: str, body: bytes, **options: object) -> Signed:
    """Return a signed request of a JSON service."""
    options.setdefault("headers", {**JSON, "X-Amz-Target": target})
    return sign(port, body=body, **options)  # type: ignore[arg-type]


def presigned(port: int, path: str, *, expires_s: int = 60, method: str = "GET", **options: object) -> Signed:
    """Return a presigned S3 request."""
    return sign(
        port,
        service="s3",
        method=method,
        path=path,
        signer=botocore.auth.S3SigV4QueryAuth,
        expires_s=expires_s,
        **options,  # type: ignore[arg-type]
    )


def crc32(data: bytes) -> str:
    import zlib

    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


class _Streaming(botocore.auth.S3SigV4Auth):
    """Signs the keyword for a body in chunks."""

    def payload(self, request: AWSRequest) -> str:
        return str(request.headers["X-Test-Payload"])

    def headers_to_sign(self, request: AWSRequest) -> object:
        found = super().headers_to_sign(request)
        del found["x-test-payload"]
        return found


@dataclass
class Upload:
    """A chunked upload in parts, any of which a test can make invalid."""

    head: Signed
    chunks: list[bytes]
    tail: bytes

    def raw(self) -> bytes:
        body = b"".join(self.chunks) + self.tail
        return self.head.with_body(body).raw()


def chunked_upload(
    port: int,
    pieces: Iterable[bytes],
    *,
    key: str,
    secret: str,
    kind: str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    decoded_bytes: int | None = None,
    announced: str | None = None,
    trailers: dict[str, str] | None = None,
    path: str = "/bucket/chunked",
) -> Upload:
    """Build a chunked PUT from the published description of the format, independently of the code under test."""
    data = list(pieces)
    headers = {
        "Content-Encoding": "aws-chunked",
        "X-Amz-Decoded-Content-Length": str(sum(map(len, data)) if decoded_bytes is None else decoded_bytes),
        "X-Test-Payload": kind,
    }
    if announced is not None:
        headers["X-Amz-Trailer"] = announced
    head = sign(
        port, key=key, secret=secret, service="s3", method="PUT", path=path, headers=headers, signer=_Streaming
    ).replaced("X-Test-Payload", None)
    if not kind.startswith("STREAMING-AWS4"):
        chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in data]
        lines = "".join(f"{name}:{value}\r\n" for name, value in (trailers or {}).items())
        return Upload(head, chunks, b"0\r\n" + lines.encode() + b"\r\n")
    chain = _Chain(head, secret)
    chunks = [b"%x;chunk-signature=%s\r\n%s\r\n" % (len(piece), chain.chunk(piece), piece) for piece in data]
    last = b"0;chunk-signature=%s\r\n" % chain.chunk(b"")
    if trailers is None:
        return Upload(head, chunks, last + b"\r\n")
    lines = "".join(f"{name}:{value}\r\n" for name, value in trailers.items())
    signature = chain.trailer(lines.replace("\r\n", "\n").encode())
    return Upload(head, chunks, last + lines.encode() + b"x-amz-trailer-signature:%s\r\n\r\n" % signature)


class _Chain:
    def __init__(self, head: Signed, secret: str) -> None:
        found = re.search(r"Credential=[^/]+/(\S+), .*Signature=(\w+)", head.header("Authorization"))
        assert found is not None
        self._scope, self._previous = found[1], found[2]
        self._stamp = head.header("X-Amz-Date")
        key = f"AWS4{secret}".encode()
        for part in self._scope.split("/"):
            key = hmac.new(key, part.encode(), "sha256").digest()
        self._key = key

    def chunk(self, data: bytes) -> bytes:
        return self._next("PAYLOAD", f"{hashlib.sha256().hexdigest()}\n{hashlib.sha256(data).hexdigest()}")

    def trailer(self, lines: bytes) -> bytes:
        return self._next("TRAILER", hashlib.sha256(lines).hexdigest())

    def _next(self, kind: str, rest: str) -> bytes:
        text = f"AWS4-HMAC-SHA256-{kind}\n{self._stamp}\n{self._scope}\n{self._previous}\n{rest}"
        self._previous = hmac.new(self._key, text.encode(), "sha256").hexdigest()
        return self._previous.encode()


def converse(port: int, data: bytes, *, shut: bool = False, timeout_s: float = 20) -> Answer:
    """Send bytes and read one reply.

    Args:
        port: Port of the service.
        data: The request; the service may stop reading it early.
        shut: Whether to shut down the write side afterwards, as a dying client does.
        timeout_s: Time limit of the reply.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        try:
            sock.sendall(data)
            if shut:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # there may still be a reply
        method = data.partition(b" ")[0].decode("latin-1")
        with http.client.HTTPResponse(sock, method=method) as reply:
            reply.begin()
            return Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
