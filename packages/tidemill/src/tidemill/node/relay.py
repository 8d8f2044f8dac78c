"""Let the service reach the model server of this machine: TLS connections that end at the server's unix socket.

`tidemill.executors.cluster.relay_client` says what the service sends. What follows its first line is forwarded as it
is. Sockets are used directly: asyncio's transports and streams take about one and a half times the CPU for a request.
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

import trustme

from tidemill.core.instances import ObjectReference
from tidemill.core.sockets import NOT_NOW, connect_unix, family_of, readable, receive_now, send_now, shake_hands

Bring = Callable[[ObjectReference, str], Awaitable[str]]
"""Copies an archive to the instance under a name; returns why it cannot, or nothing."""
_OPENING_S = 10.0
_LINE_MAX_BYTES = 512 * 1024
_BACKLOG = 128
_PAUSE_S = 1.0
_MOST_STRANGERS = 256
"""Maximum number of connections that have not said yet what they want."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of the connection is a reset, as if the model server's own socket had been reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaying:
    """What a relay forwards.

    Attributes:
        server: Path of the model server's socket.
        secret: What the first line of a connection must contain.
        bring: Brings the archives of models.
    """

    server: Path
    secret: str
    bring: Bring


class Relay:
    """Listens for the service on a free port, until it is closed. Belongs to the running event loop.

    Args:
        host: Address of this machine at which it listens.

    Attributes:
        port: TCP port on which it listens.
        certificate: PEM of the certificate by which the service knows it.

    Raises:
        OSError: ``host`` is no address of this machine.
    """

    def __init__(self, host: str, relaying: Relaying) -> None:
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.certificate = authority.cert_pem.bytes().decode()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self._tls.num_tickets = 0  # the service keeps its connections
        authority.issue_cert("relay.invalid", key_type=trustme.KeyType.ECDSA).configure_cert(self._tls)
        self._relaying = relaying
        self._loop = asyncio.get_running_loop()
        self._streams: set[_Stream] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server((host, 0), family=family_of(host), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Listen no longer, and end all connections."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        for stream in list(self._streams):
            stream.end(reset=True)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except NOT_NOW:
            return
        except OSError:  # too many open files, which the listener would report again and again
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE_S, self._listen_again)
            return
        if len(self._tasks) >= _MOST_STRANGERS:
            _end(accepted, reset=True)
            return
        task = self._loop.create_task(self._welcome(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _listen_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    async def _welcome(self, accepted: socket.socket) -> None:
        """Do what the first line of a connection says."""
        accepted.setblocking(False)
        tls = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        try:
            tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_OPENING_S):
                await shake_hands(tls)
                request, text, rest = await self._greeting(tls)
            if request == b"bring":
                await self._bring(tls, text)
            else:
                server = connect_unix(self._relaying.server)
                self._streams.add(_Stream(self._loop, tls, server, rest, ended=self._streams.discard))
        except (OSError, ValueError, asyncio.CancelledError) as error:
            # A stranger, a peer that is gone, or a model server that does not listen.
            _end(tls, reset=True)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _greeting(self, tls: ssl.SSLSocket) -> tuple[bytes, bytes, bytes]:
        """Receive the first line. Return the request, its text, and what followed the line.

        Raises:
            OSError: The peer is gone.
            ValueError: The peer does not know the secret.
        """
        received = b""
        while b"\n" not in received:
            try:
                part = receive_now(tls)
            except NOT_NOW:
                await readable(tls)
                continue
            received += part
            if not part or len(received) > _LINE_MAX_BYTES:
                raise ValueError("no line")
        line, _, rest = received.partition(b"\n")
        request, secret, text = (line + b"  ").split(b" ", 2)
        if not hmac.compare_digest(secret, self._relaying.secret.encode()) or request not in (b"serve", b"bring"):
            raise ValueError("another secret")
        return request, text, rest

    async def _bring(self, tls: ssl.SSLSocket, text: bytes) -> None:
        try:
            wanted = json.loads(text)
            failure = await self._relaying.bring(ObjectReference(**wanted["archive"]), wanted["name"])
        except (ValueError, LookupError, TypeError) as error:
            failure = f"the request cannot be read: {type(error).__name__}: {error}"
        send_now(tls, memoryview(" ".join(failure.split())[:2000].encode() + b"\n"))
        _end(tls, reset=False)


class _Stream:
    """A connection of the service, and the one to the model server. What one receives is sent to the other.

    Args:
        rest: What the service has sent already.
        ended: Called with this object when both are closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: ssl.SSLSocket,
        server: socket.socket,
        rest: bytes,
        *,
        ended: "Callable[[_Stream], None]",
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._sockets = service, server
        for sock in self._sockets:
            sock.setblocking(False)
        _Way(loop, server, service, self)
        _Way(loop, service, server, self).send(memoryview(rest))

    def end(self, *, reset: bool) -> None:
        """Close both connections.

        Args:
            reset: Let the peers see a reset rather than an end of file.
        """
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            _end(sock, reset=reset)
        self._ended(self)


class _Way:
    """One direction of a stream. It receives nothing while there is something left to send."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, source: socket.socket, target: socket.socket, stream: _Stream
    ) -> None:
        self._loop = loop
        self._source = source
        self._target = target
        self._stream = stream
        self._left = memoryview(b"")
        loop.add_reader(source, self._forward)

    def send(self, data: memoryview) -> None:
        """Send data; if that is not possible at once, as soon as it is."""
        try:
            sent = send_now(self._target, data)
        except OSError:
            self._stream.end(reset=True)
            return
        waits, self._left = bool(self._left), data[sent:]
        if self._left and not waits:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._send_left)
        elif waits and not self._left:
            self._loop.remove_writer(self._target)
            self._loop.add_reader(self._source, self._forward)

    def _send_left(self) -> None:
        self.send(self._left)

    def _forward(self) -> None:
        try:
            data = receive_now(self._source)
        except NOT_NOW:
            return
        except OSError:
            self._stream.end(reset=True)
            return
        if data:
            self.send(memoryview(data))
        else:
            self._stream.end(reset=False)


def _end(sock: socket.socket, *, reset: bool) -> None:
    with contextlib.suppress(OSError, ValueError):
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif isinstance(sock, ssl.SSLSocket):
            sock.setblocking(False)
            sock.unwrap()  # says farewell, and does not wait for that of the service
    sock.close()
