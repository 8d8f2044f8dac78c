"""Call the model server of an instance, over a unix socket or through the relay of another machine."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

import httptools

from tidemill.core.sockets import NOT_NOW, connect_unix, receive_now, send_now
from tidemill.executors.base import RelayedServer, ServerAddress
from tidemill.executors.cluster.relay_client import connect

_MAX_IDLE = 32


class Unreachable(Exception):
    """The server does not answer. ``sent`` tells whether the server may have received the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(slots=True)
class Answer:
    """A complete HTTP answer.

    Attributes:
        status: HTTP status code.
        headers: Headers; the names are in lower case.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def failure(self) -> str:
        """SageMaker's text for an answer with an error status, with the body as the model's message."""
        side = "client" if self.status < 500 else "server"
        text = self.body.decode("utf-8", "replace")
        return f'Received {side} error ({self.status}) from primary with message "{text}"'


class _Answers:
    """Collects the answers of a connection, one after the other, from httptools' callbacks."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.reusable = True
        self.begin()

    def begin(self) -> None:
        """Forget the last answer."""
        self.answer = Answer()
        self.complete = False
        self._chunks: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self.answer.body = b"".join(self._chunks)
        self.answer.status = self._parser.get_status_code()
        # Only valid here: after this callback the parser has reset its state and returns False.
        self.reusable = self._parser.should_keep_alive()
        self.complete = True


class _ModelConnection:
    """A connection of the running event loop.

    Args:
        sock: The connected socket, which does not block. asyncio's streams take more CPU time, above all with TLS.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._answers = _Answers()
        self._waiting: asyncio.Future[None] | None = None
        self._left = memoryview(b"")
        self.sent = False
        self.stale = False
        """Whether the server has closed the connection."""
        self._loop.add_reader(sock, self._receive)

    @property
    def reusable(self) -> bool:
        """Whether the server accepts another request on this connection."""
        return self._answers.reusable and not self._left and not self.stale

    async def exchange(self, request: bytes) -> Answer:
        self.sent = False
        self._answers.begin()
        self._waiting = self._loop.create_future()
        try:
            self._send(memoryview(request))
            await self._waiting
        finally:
            self._waiting = None
        return self._answers.answer

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _send(self, data: memoryview) -> None:
        try:
            sent = send_now(self._sock, data)
        except OSError as error:  # the server has died before it has read the whole request
            self._fail(error)
            return
        waits, self._left = bool(self._left), data[sent:]
        if self._left and not waits:
            self._loop.add_writer(self._sock, self._send_left)
        elif waits and not self._left:
            self._loop.remove_writer(self._sock)

    def _send_left(self) -> None:
        self._send(self._left)

    def _receive(self) -> None:
        try:
            data = receive_now(self._sock)
            if self._waiting is not None:
                self.sent = True
            if not data:
                raise ConnectionResetError("the server closed the connection before its answer was complete")
            self._answers.feed(data)
        except NOT_NOW:
            return
        except (OSError, httptools.HttpParserError) as error:
            self._fail(error)
            return
        if self._waiting is None:
            self.stale = True  # an answer that nobody has asked for
        elif self._answers.complete and not self._waiting.done():
            self._waiting.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.stale = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


class Invoker:
    """A pool of connections to one instance.

    Attributes:
        address: Address of the server.
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._idle: list[_ModelConnection] = []
        self._closed = False

    async def get(self, path: str, *, timeout_s: float) -> Answer:
        """Send a GET request. Return and raise as `send`.

        Args:
            path: Path of the model's server.
        """
        head = f"GET {path} HTTP/1.1\r\nhost: endpoint\r\n\r\n"
        return await self._send(head.encode(), timeout_s=timeout_s)

    async def send(
        self, method: str, path: str, body: bytes, *, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        """Send a request with a body and return its answer.

        Args:
            method: HTTP method.
            path: Path of the URL, e.g. ``/invocations``.
            body: Body of the request.
            headers: Headers besides Host and Content-Length.
            timeout_s: Time limit for connection and answer together, in seconds.

        Raises:
            Unreachable: The server does not listen, or ended before its answer was complete.
            TimeoutError: The answer was not complete within ``timeout_s``.
        """
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nhost: endpoint\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
        return await self._send(head.encode("latin-1") + body, timeout_s=timeout_s)

    def close(self) -> None:
        """Close all idle connections. A connection in use is closed after its answer."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _send(self, request: bytes, *, timeout_s: float) -> Answer:
        async with asyncio.timeout(timeout_s):
            while (kept := self._idle_connection()) is not None:
                # Do not repeat a request that the server may have received: the request may have killed the server.
                try:
                    return await self._exchange(kept, request)
                except Unreachable as error:
                    if error.sent:
                        raise
            try:
                connection = await self._connect()
            except OSError as error:
                raise _unreachable(error, sent=False) from error
            return await self._exchange(connection, request)

    def _idle_connection(self) -> _ModelConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.stale:
                return connection
            connection.close()
        return None

    async def _exchange(self, connection: _ModelConnection, request: bytes) -> Answer:
        """Send one request on ``connection`` and return its answer. Raises as `send`."""
        kept = False
        try:
            answer = await connection.exchange(request)
            kept = connection.reusable and not self._closed and len(self._idle) < _MAX_IDLE
        except (OSError, httptools.HttpParserError) as error:
            raise _unreachable(error, sent=connection.sent) from error
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    async def _connect(self) -> _ModelConnection:
        if isinstance(self.address, RelayedServer):
            return _ModelConnection(await connect(self.address))
        return _ModelConnection(connect_unix(self.address.path))


def _unreachable(error: Exception, *, sent: bool) -> Unreachable:
    return Unreachable(f"the endpoint's server does not answer: {error}", sent=sent)
