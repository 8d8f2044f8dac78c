"""The service's HTTP server in front of small applications: streams both ways, failures, disconnects, shutdown."""

import asyncio
import contextlib
import http.client
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import structlog
import toys
import uvloop
from structlog.testing import LogCapture

from tidemill._shared.http.exchange import ClientLeft, Exchange
from tidemill.wire.exchange import FileBody
from tidemill.wire.gateway import Answer as App
from tidemill.wire.gateway import HttpServer
from tidemill.wire.reply import HttpReply, send_reply

DEADLINE_S = 20
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\n"
PIECE = b"x" * 100_000
MIB = 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """A reply, read to its end."""

    status: int
    headers: Message
    content: bytes


@pytest.fixture
def log() -> Iterator[LogCapture]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(**before)


def run(app: App, test: Callable[[HttpServer, int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = HttpServer(app)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            await server.listener.open(sock)
            async with asyncio.timeout(DEADLINE_S):
                await test(server, sock.getsockname()[1])
                await server.drain(timeout_s=1)

    uvloop.run(main())


def get(app: App, path: str = "/", method: str = "GET", **options: Any) -> Answer:
    with toys.serving(app) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        connection.request(method, path, **options)
        with contextlib.closing(connection), connection.getresponse() as reply:
            return Answer(reply.status, reply.headers, reply.read())


async def streaming(exchange: Exchange) -> None:
    exchange.start(200, [(b"x-target", exchange.target)])
    for piece in (b"one", b"", b"two"):
        exchange.send(piece, more=True)
    exchange.send(b"")


def test_an_answer_of_unknown_length_is_chunked() -> None:
    reply = get(streaming, "/a%20b")
    assert (reply.headers["transfer-encoding"], reply.headers["x-target"]) == ("chunked", "/a%20b")
    assert reply.content == b"onetwo"


def test_the_answer_to_a_head_request_has_no_body() -> None:
    assert get(streaming, method="HEAD").content == b""


def test_to_a_client_of_http_1_0_the_end_of_the_connection_is_the_end_of_the_body() -> None:
    with toys.serving(streaming) as port, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = b"".join(iter(lambda: sock.recv(1000), b"")).partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert b"chunked" not in head
    assert body == b"onetwo"


@pytest.mark.parametrize(
    ("target", "status"), [(b"http://localhost/healthz", 200), (b"http://localhost/a?b", 403), (b"localhost:80", 400)]
)
def test_a_target_may_be_a_whole_url(target: bytes, status: int, toy: toys.Toys) -> None:
    gateway = toys.toy_gateway(toy, health={})
    with toys.serving(gateway) as port, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target)
        assert int(sock.makefile("rb").readline().split()[1]) == status


def test_an_application_that_fails_is_logged_and_answered_500(log: LogCapture) -> None:
    async def failing(exchange: Exchange) -> None:
        raise ValueError("inside")

    reply = get(failing)
    assert reply.status == 500
    assert b"inside" not in reply.content
    assert [entry["event"] for entry in log.entries] == ["http.application_failed", "http.not_answered"]


@pytest.mark.parametrize("size_bytes", [2, 4])
def test_an_answer_that_is_not_as_long_as_announced_is_cut_off(log: LogCapture, size_bytes: int) -> None:
    async def lying(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"3")])
        exchange.send(b"x", more=True)
        exchange.send(b"y" * (size_bytes - 1))

    with pytest.raises(http.client.IncompleteRead):
        get(lying)
    assert log.entries[0]["event"] == "http.application_failed"


def test_a_body_is_read_only_as_fast_as_the_application_reads_it() -> None:
    async def test(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD + b"Content-Length: %d\r\n\r\n") % (b"/", 400 * len(PIECE)))
        for _ in range(400):
            writer.write(PIECE)
        await started.wait()
        with pytest.raises(TimeoutError):  # 40 MB do not fit into the buffers between the two
            await asyncio.wait_for(writer.drain(), 0.2)
        go_on.set()
        await writer.drain()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(8) == b"40000000"
        assert max(sizes) < 1_000_000
        writer.close()

    async def slow(exchange: Exchange) -> None:
        started.set()
        await go_on.wait()
        more = True
        while more:
            data, more = await exchange.receive()
            sizes.append(len(data))
        exchange.start(200, [])
        exchange.send(str(sum(sizes)).encode())

    started, go_on, sizes = asyncio.Event(), asyncio.Event(), list[int]()
    run(slow, test)


def test_an_answer_waits_for_a_slow_client_and_ends_with_its_disconnection() -> None:
    async def test(server: HttpServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write((HEAD + b"\r\n") % b"/")
        await started.wait()
        while len(sent) < 2 or sent[-1] != sent[-2]:  # until nothing more arrives within a tenth of a second
            sent.append(pieces)
            await asyncio.sleep(0.1)
        assert pieces < 1000
        writer.transport.abort()
        await disconnected.wait()

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pieces
        try:
            started.set()
            while True:
                pieces += 1
                yield PIECE
        finally:
            disconnected.set()

    async def answer(exchange: Exchange) -> None:
        assert await exchange.receive() == (b"", False)
        await send_reply(exchange, HttpReply(200, [], endless()))

    pieces, sent = 0, list[int]()
    started, disconnected = asyncio.Event(), asyncio.Event()
    run(answer, test)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that is larger than the buffers of a connection."""
    path = tmp_path_factory.mktemp("file") / "content"
    path.write_bytes(random.Random(0).randbytes(20 * MIB))
    return path


def sending(body: FileBody, ended: asyncio.Event | None = None) -> App:
    async def answer(exchange: Exchange) -> None:
        await exchange.receive()
        await send_reply(exchange, HttpReply(200, [], body))
        if ended is not None:
            ended.set()

    return answer


def test_slices_of_a_file_are_sent_whole_one_after_another_to_a_slow_client(file: Path) -> None:
    async def test(server: HttpServer, port: int) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the server's buffer fills again and again
            sock.connect(("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=sock)
            writer.write((HEAD + b"\r\n") % b"/" * 2)
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"content-length: %d\r\n" % len(wanted) in head
                assert await reader.readexactly(len(wanted)) == wanted
            writer.close()

    wanted = file.read_bytes()[3:-5]
    run(sending(FileBody(path=file, offset=3, size_bytes=len(wanted))), test)


def test_a_client_that_leaves_ends_the_sending_of_a_file(
    file: Path, log: LogCapture, files_open_below: Callable[[Path], list[str]]
) -> None:
    async def test(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write((HEAD + b"\r\n") % b"/")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await ended.wait()

    ended = asyncio.Event()
    run(sending(FileBody(path=file, offset=0, size_bytes=20 * MIB), ended), test)
    assert log.entries == []
    assert files_open_below(file.parent) == []


def test_a_file_that_has_become_shorter_cuts_its_answer_off(file: Path, log: LogCapture) -> None:
    with pytest.raises(http.client.IncompleteRead):
        get(sending(FileBody(path=file, offset=19 * MIB, size_bytes=2 * MIB)))
    assert [entry["event"] for entry in log.entries] == ["http.application_failed", "http.not_answered"]


def test_a_reader_is_notified_of_the_disconnection() -> None:
    async def test(server: HttpServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD + b"Content-Length: 9\r\n\r\nhalf") % b"/")
        await started.wait()
        writer.transport.abort()
        await disconnected.wait()

    async def reading(exchange: Exchange) -> None:
        assert await exchange.receive() == (b"half", True)
        started.set()
        with pytest.raises(ClientLeft):
            await exchange.receive()
        disconnected.set()
        await exchange.receive()  # its error is no failure of the application

    started, disconnected = asyncio.Event(), asyncio.Event()
    run(reading, test)


def test_an_offer_of_http_2_is_ignored() -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    assert get(streaming, method="POST", headers=headers, body=b"abc").status == 200


def test_the_shutdown_waits_for_answers_in_progress_up_to_its_time_limit(log: LogCapture) -> None:
    async def test(server: HttpServer, port: int) -> None:
        replies = []
        for path in (b"/soon", b"/never"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((HEAD + b"\r\n") % path)
            replies.append((reader, writer))
        while len(waiting) < 2:
            await asyncio.sleep(0)
        drained = asyncio.ensure_future(server.drain(timeout_s=1))
        await asyncio.sleep(0)
        waiting[b"/soon"].set()
        await drained
        answers = [await reader.read() for reader, _ in replies]
        assert b"Connection: close" in answers[0]
        assert answers[1] == b""
        for _, writer in replies:
            writer.close()

    async def held(exchange: Exchange) -> None:
        waiting[exchange.target] = asyncio.Event()
        await waiting[exchange.target].wait()
        await streaming(exchange)

    waiting: dict[bytes, asyncio.Event] = {}
    run(held, test)
    assert [(entry["event"], entry["requests"]) for entry in log.entries] == [("http.requests_cut", 1)]


def test_nothing_is_left_to_the_event_loop_to_report(caplog: pytest.LogCaptureFixture) -> None:
    assert get(streaming).status == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
