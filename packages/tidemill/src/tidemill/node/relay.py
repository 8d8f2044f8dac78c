"""Let the service reach the model server of this machine: TLS connections that end at the server's unix socket.

`tidemill.executors.cluster.relay_client` says what the service sends. The relay does not look into what it forwards.
"""

import asyncio
import contextlib
import hmac
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import trustme

from tidemill.core.instances import ObjectReference
from tidemill.core.socket_paths import short_path

Bring = Callable[[ObjectReference, str], Awaitable[str]]
"""Copies an archive to the instance under a name; returns why it cannot, or nothing."""
_OPENING_S = 10.0
_LINE_MAX_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of the connection is a reset, as if the model server's own socket had been reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaying:
    """What the connections of a relay share.

    Attributes:
        server: Path of the model server's socket.
        secret: What the first line of a connection must contain.
        bring: Brings the archives of models.
    """

    server: Path
    secret: str
    bring: Bring


class Relay:
    """Listens for the service. `open` makes one.

    Attributes:
        port: TCP port on which it listens.
        certificate: PEM of the certificate by which the service knows it.
    """

    def __init__(self, listening: asyncio.Server, certificate: str) -> None:
        self._listening = listening
        self.port: int = listening.sockets[0].getsockname()[1]
        self.certificate = certificate

    @classmethod
    async def open(cls, host: str, relaying: Relaying) -> "Relay":
        """Listen on a free port of an address of this machine.

        Raises:
            OSError: It is no address of this machine.
        """
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        authority.issue_cert("relay.invalid", key_type=trustme.KeyType.ECDSA).configure_cert(context)
        listening = await asyncio.get_running_loop().create_server(
            lambda: _FromService(relaying), host, 0, ssl=context, ssl_handshake_timeout=_OPENING_S
        )
        return cls(listening, authority.cert_pem.bytes().decode())

    def close(self) -> None:
        """Listen no longer. Open connections go on until one of their ends closes them."""
        self._listening.close()


class _End(asyncio.Protocol):
    """One of the two connections of a forwarded stream. What it receives goes to the other one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other, self.transport = self.other, None, None
        if other is not None:
            other.end(reset=exc is not None)

    def end(self, *, reset: bool = True) -> None:
        """End this connection.

        Args:
            reset: Let the peer see a reset rather than an end of file. Default: true.
        """
        self.other = None
        if self.transport is None:
            return
        if reset:
            with contextlib.suppress(OSError):
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
        else:
            self.transport.close()


class _FromService(_End):
    """A connection of the service, which has to say first what it wants."""

    def __init__(self, relaying: Relaying) -> None:
        super().__init__()
        self._relaying = relaying
        self._held = b""
        self._work: asyncio.Task[None] | None = None
        self._limit = asyncio.get_running_loop().call_later(_OPENING_S, self.end)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._held += data
        if self._work is not None:
            return
        if b"\n" in self._held:
            self._limit.cancel()
            line, _, self._held = self._held.partition(b"\n")
            self._begin(*line.split(b" ", 2))
        elif len(self._held) > _LINE_MAX_BYTES:
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
        if self._work is not None:
            self._work.cancel()
        super().connection_lost(exc)

    def _begin(self, request: bytes, secret: bytes = b"", text: bytes = b"") -> None:
        if not hmac.compare_digest(secret, self._relaying.secret.encode()) or request not in (b"serve", b"bring"):
            self.end()
            return
        work = self._serve() if request == b"serve" else self._bring(text)
        self._work = asyncio.get_running_loop().create_task(work)

    async def _serve(self) -> None:
        """Connect to the model server and forward what has arrived meanwhile."""
        assert self.transport is not None
        self.transport.pause_reading()
        try:
            with short_path(self._relaying.server) as path:
                _, to_server = await asyncio.get_running_loop().create_unix_connection(_End, path)
        except OSError:  # it does not listen yet, or has died
            self.end()
            return
        to_server.other = self
        if self.transport is None:
            to_server.end(reset=True)
            return
        self.other, held, self._held = to_server, self._held, b""
        self.data_received(held)
        self.transport.resume_reading()

    async def _bring(self, text: bytes) -> None:
        try:
            wanted = json.loads(text)
            failure = await self._relaying.bring(ObjectReference(**wanted["archive"]), wanted["name"])
        except (ValueError, LookupError, TypeError) as error:
            failure = f"the request cannot be read: {type(error).__name__}: {error}"
        if self.transport is not None:
            self.transport.write(" ".join(failure.split())[:2000].encode() + b"\n")
            self.transport.close()
