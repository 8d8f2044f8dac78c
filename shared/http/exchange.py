"""One HTTP request and its answer: the interface for applications."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from io import FileIO
from types import MappingProxyType

from .limits import Headers, Refusal, Traffic

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %s\r\n" % (each, each.phrase.encode()) for each in HTTPStatus}
_BODILESS = (204, 304)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JOINED_BYTES = 64 * 1024  # parts of an answer up to this size are copied into one
_FILE_BYTES = 8 * 1024 * 1024  # more than a socket's buffer takes, so that few calls send a file


class ClientLeft(Exception):
    """The client disconnected before its request had ended."""


class Exchange:
    """Request whose head is parsed, and its answer.

    Attributes:
        traffic: State shared by all connections.
        transport: Transport of the connection.
        finished: Callback of the connection: continues with the next exchange.
        read_on: Callback of the connection: resumes reading if there is room again.
        prove: Callback of the connection, for the application: this request is signed. None if one of its requests was
            known to be signed before. See `Room`.
        method: HTTP method, e.g. ``POST``.
        target: Path and query as sent.
        headers: Headers in the order received, names in lower case.
        fields: Headers by name; the values of a repeated header are joined by commas.
        version: ``1.0`` or ``1.1``.
        keep_alive: Whether the client wants to keep the connection open.
        expects_continue: Whether the client waits for ``100 Continue`` before it sends the body.
        body_bytes: Bytes of the body received so far.
        unread_bytes: Received bytes that the application has not taken yet.
        held_bytes: Received bytes that count as buffered until the answer is sent.
        complete: Whether the whole body was received.
        exhausted: Whether the application has taken the whole body.
        started: Whether the application has received the request.
        writable: Whether the client reads the answer fast enough for more to be sent.
        begun: Whether a part of the answer was sent.
        answered: Whether the whole answer was sent.
        closes: Whether the connection closes after the answer; decided when the answer begins.
        gone: Whether the client has left, so that the answer is dropped.
        refusal: The server's answer instead of the application's; None for a valid request.
    """

    method = target = b""
    headers: Sequence[tuple[bytes, bytes]] = ()
    fields: Mapping[bytes, bytes] = MappingProxyType({})
    version = "1.1"
    keep_alive = expects_continue = False
    body_bytes = unread_bytes = held_bytes = 0
    complete = exhausted = started = begun = answered = closes = gone = False
    writable = True
    refusal: Refusal | None = None
    _response: tuple[int, Headers] = (200, ())
    _left_bytes: int | None = None
    _bodiless = _chunked = False
    _waiters: tuple[asyncio.Future[None], ...] = ()

    def __init__(
        self,
        traffic: Traffic,
        transport: asyncio.Transport,
        finished: Callable[[Exchange], None],
        read_on: Callable[[], None],
        prove: Callable[[], None] | None,
    ) -> None:
        self.traffic = traffic
        self.transport = transport
        self.finished = finished
        self.read_on = read_on
        self.prove = prove
        self._pieces: list[bytes] = []

    # The request

    def feed(self, data: bytes) -> None:
        """Add a piece of the body."""
        self._pieces.append(data)
        self.body_bytes += len(data)
        self.unread_bytes += len(data)

    def fill(self, body: bytes) -> None:
        """Set the whole body, and count it as buffered."""
        self.complete = True
        if body:
            self._pieces.append(body)
            self.body_bytes = self.unread_bytes = self.held_bytes = len(body)
            self.traffic.buffered_bytes += len(body)

    def take(self) -> bytes:
        """Return the part of the body received since the last call, and resume reading."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.unread_bytes = 0
        self.exhausted = self.complete
        if not self.complete:
            self.read_on()
        return data

    async def receive(self) -> tuple[bytes, bool]:
        """Return the next bytes of the body and whether more follow; wait for them if necessary.

        Raises:
            ClientLeft: The body will not end.
        """
        self.ask_for_body()
        while not self.gone and not self.answered:
            if self.unread_bytes or (self.complete and not self.exhausted):
                return self.take(), not self.complete
            await self.changed()
        raise ClientLeft

    def ask_for_body(self) -> None:
        """Send ``100 Continue`` if the client waits for it."""
        if self.expects_continue and not self.begun and not self.body_bytes:
            self.transport.write(_CONTINUE)
        self.expects_continue = False

    def hold(self, size_bytes: int) -> None:
        """Count bytes as buffered until the answer is sent."""
        self.held_bytes += size_bytes
        self.traffic.buffered_bytes += size_bytes

    def lose(self) -> None:
        """Record that the client has left."""
        self.gone = True
        if not self.started:
            self.hold(-self.held_bytes)
        self.notify()

    async def changed(self) -> None:
        """Wait until the body, the answer or the client's state has changed."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        await waiter

    def notify(self) -> None:
        """Wake all callers of `changed`."""
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The answer

    def refuse(self, refusal: Refusal) -> None:
        """Close the connection; if no part of an answer was sent yet, send the refusal first."""
        if self.gone or self.answered:
            return
        self.closes = True
        if self.begun:
            self.answered = True
            self.finished(self)
            return
        headers, body = self.traffic.refusal_form(refusal)
        self.start(refusal.status, (*headers, *refusal.headers))
        self._send(body, more=False)

    def start(self, status: int, headers: Headers) -> None:
        """Set status and headers of the answer. They are sent with the first part of its body."""
        self._response = status, headers

    def reply(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer.

        Args:
            status: Status code.
            headers: Tuple of headers without ``content-length`` and ``connection``. Heads are cached by status and
                headers.
        """
        traffic = self.traffic
        if self.held_bytes:
            traffic.buffered_bytes -= self.held_bytes
            self.held_bytes = 0
        if self.gone or self.answered:
            return
        unusual = self.closes or not self.keep_alive or traffic.draining or not self.complete
        if unusual or self.method == b"HEAD" or status in _BODILESS or len(body) > _JOINED_BYTES:
            self.start(status, headers)
            self._send(body, more=False)
            return
        self.begun = self.answered = True
        head = traffic.answer_heads.get((status, headers)) or self._answer_head(status, headers)
        self.transport.write(b"%bContent-Length: %d\r\nDate: %b\r\n\r\n%b" % (head, len(body), traffic.date, body))
        self.finished(self)

    def send(self, data: bytes, *, more: bool = False) -> None:
        """Send a part of the answer's body: the last part, unless ``more`` is True.

        The part is dropped if the client has left.

        Raises:
            RuntimeError: The body is longer or shorter than the ``content-length`` of the answer.
        """
        if not more and self.held_bytes:
            self.traffic.buffered_bytes -= self.held_bytes
            self.held_bytes = 0
        self._send(data, more=more)

    async def send_file(self, file: FileIO, offset: int, size_bytes: int) -> None:
        """Send a slice of a file as the body of the answer, without reading it into this process.

        The connection must not be encrypted. Returns early if the client leaves.

        Args:
            file: Open file.
            offset: Begin of the slice, in bytes.
            size_bytes: Its size, which the ``content-length`` of the answer announces.

        Raises:
            OSError: The file ends before the slice.
        """
        transport, end = self.transport, offset + size_bytes
        if transport.is_closing():
            return await self._lose_client()
        transport.set_write_buffer_limits(0)  # then this is writable only after all that was written is sent
        self._send(b"", more=True)
        # A descriptor of its own, because an event loop watches that of a transport for the transport only.
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as sock:
            while offset < end and not self.gone:
                offset += await self._send_slice(sock, file, offset, end - offset)
        if transport.is_closing():
            return await self._lose_client()
        transport.set_write_buffer_limits()
        self._left_bytes = 0
        return self.send(b"")

    async def _send_slice(self, sock: socket.socket, file: FileIO, offset: int, size_bytes: int) -> int:
        """Send as much as the socket takes now; return how much it was. If it takes nothing, wait until it does."""
        if not self.writable:
            await self.changed()
            return 0
        try:  # in a thread, because the disk may have to be read
            sent = await asyncio.to_thread(_send_some, sock, file, offset, min(size_bytes, _FILE_BYTES))
        except BlockingIOError:
            await self._room_in(sock)
            return 0
        except ConnectionError:
            await self._lose_client()
            return 0
        if not sent:
            raise OSError(f"{file.name} ended {size_bytes} bytes before the end of the slice that was to be sent")
        return sent

    async def _room_in(self, sock: socket.socket) -> None:
        """Wait until a socket takes data, unless the client has left meanwhile."""
        if self.gone:  # the socket is open, because its descriptor is our own
            return
        loop = asyncio.get_running_loop()
        loop.add_writer(sock, self.notify)
        try:
            await self.changed()
        finally:
            loop.remove_writer(sock)

    async def _lose_client(self) -> None:
        """Disconnect, and wait until the connection knows it."""
        self.transport.abort()
        while not self.gone:
            await self.changed()

    def _answer_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
        parts += [b"%b: %b\r\n" % header for header in headers]
        return self.traffic.remember_answer_head(status, headers, b"".join(parts))

    def _send(self, data: bytes, *, more: bool) -> None:
        if self.gone or self.answered:
            return
        parts = [] if self.begun else self._head(len(data), more=more)
        if self._chunked:
            parts += [b"%x\r\n" % len(data), data, b"\r\n"] if data else []
            parts += [] if more else [b"0\r\n\r\n"]
        elif not self._bodiless:
            if self._left_bytes is not None:
                self._count(len(data), more=more)
            parts.append(data)
        self.begun = True
        self.answered = not more
        if len(data) > _JOINED_BYTES:
            self.transport.writelines(parts)
        else:
            self.transport.write(b"".join(parts))
        if not more:
            self.finished(self)

    def _head(self, size_bytes: int, *, more: bool) -> list[bytes]:
        status, headers = self._response
        parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
        length: int | None = None
        close = self.closes or not self.keep_alive or self.traffic.draining or not (more or self.complete)
        for name, value in headers:
            if name == b"connection":
                close = close or value.lower() == b"close"
                continue
            if name == b"content-length":
                length = int(value)
            parts += (name, b": ", value, b"\r\n")
        self._bodiless = self.method == b"HEAD" or status in _BODILESS
        if length is None and not more and status not in _BODILESS:
            parts.append(b"Content-Length: %d\r\n" % size_bytes)
        elif length is None and not self._bodiless:
            self._chunked = self.version == "1.1"
            close = close or not self._chunked  # HTTP/1.0: closing the connection marks the end of the body
            parts += [b"Transfer-Encoding: chunked\r\n"] if self._chunked else []
        self._left_bytes = length
        self.closes = close
        parts += (b"Date: ", self.traffic.date, b"\r\nConnection: close\r\n\r\n" if close else b"\r\n\r\n")
        return parts

    def _count(self, size_bytes: int, *, more: bool) -> None:
        left_bytes = self._left_bytes = (self._left_bytes or 0) - size_bytes
        if left_bytes < 0 or (left_bytes and not more):
            difference = f"{abs(left_bytes)} bytes {'shorter' if left_bytes > 0 else 'longer'}"
            raise RuntimeError(f"the body of an answer is {difference} than its Content-Length")


def _send_some(sock: socket.socket, file: FileIO, offset: int, size_bytes: int) -> int:
    return os.sendfile(sock.fileno(), file.fileno(), offset, size_bytes)


Application = Callable[[Exchange], None]
"""Answers an exchange, now or later, on the event loop. It does not raise."""
