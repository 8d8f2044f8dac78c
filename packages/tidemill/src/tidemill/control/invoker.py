"""Call the model server of an instance, over a unix socket or through the relay of another machine."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httptools

from tidemill.core.socket_paths import short_path
from tidemill.executors.base import RelayedServer, ServerAddress
from tidemill.executors.cluster.relay_client import CONNECT_TIMEOUT_S, opening_line, tls_to, watch_peer

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
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = _Answers()
        self.sent = False

    @property
    def reusable(self) -> bool:
        """Whether the server accepts another request on this connection."""
        return self._answers.reusable

    @property
    def stale(self) -> bool:
        """Whether the server has closed the idle connection."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        self.sent = False
        self._writer.write(request)
        await self._writer.drain()
        answers = self._answers
        answers.begin()
        while not answers.complete:
            # If the server dies before it has read the whole request, this raises (ECONNRESET or EPIPE); if the server
            # dies later, this returns an end of file.
            data = await self._reader.read(1 << 18)
            self.sent = True
            if not data:
                raise ConnectionResetError("the server closed the connection before its answer was complete")
            answers.feed(data)
        return answers.answer

    def close(self) -> None:
        self._writer.transport.abort()  # a service that ends does not wait for the farewell of TLS


class Invoker:
    """A pool of connections to one instance.

    Attributes:
        address: Address of the server.
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._tls = tls_to(address) if isinstance(address, RelayedServer) else None
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
        server = self.address
        if isinstance(server, RelayedServer):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(server.host, server.port, ssl=self._tls)
            watch_peer(writer.get_extra_info("socket"))
            writer.write(opening_line(server, "serve"))
            return _ModelConnection(reader, writer)
        with short_path(server.path) as path:
            return _ModelConnection(*await asyncio.open_unix_connection(path))


def _unreachable(error: Exception, *, sent: bool) -> Unreachable:
    return Unreachable(f"the endpoint's server does not answer: {error}", sent=sent)
