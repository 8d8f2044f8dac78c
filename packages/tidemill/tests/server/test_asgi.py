"""An ASGI application behind the service's HTTP server: streams both ways, failures, disconnects, shutdown."""

import asyncio
import contextlib
import http.client
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from structlog.testing import LogCapture

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))

import toys

from tidemill.server.asgi import AsgiServer

DEADLINE_S = 20
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\n"
PIECE = b"x" * 100_000


@dataclass(frozen=True)
class Answer:
    """A reply, read to its end."""

    status: int
    headers: Message
    content: bytes


App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


@pytest.fixture
def log() -> Iterator[LogCapture]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(**before)


def run(app: App, test: Callable[[AsgiServer, int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = AsgiServer(app)
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


async def streaming(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["path"].encode())]})
    for piece in (b"one", b"", b"two"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


def test_an_answer_of_unknown_length_is_chunked() -> None:
    reply = get(streaming, "/a%20b")
    assert (reply.headers["transfer-encoding"], reply.headers["x-path"]) == ("chunked", "/a b")
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
    ("target", "status"), [(b"http://localhost", 200), (b"http://localhost/a?b", 200), (b"localhost:80", 400)]
)
def test_a_target_may_be_a_whole_url(target: bytes, status: int) -> None:
    with toys.serving(streaming) as port, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall((HEAD + b"Connection: close\r\n\r\n") % target)
        assert int(sock.makefile("rb").readline().split()[1]) == status


def test_an_application_that_fails_is_logged_and_answered_500(log: LogCapture) -> None:
    async def failing(scope: dict[str, Any], receive: Any, send: Any) -> None:
        raise ValueError("inside")

    reply = get(failing)
    assert reply.status == 500
    assert b"inside" not in reply.content
    assert [entry["event"] for entry in log.entries] == ["http.application_failed", "http.not_answered"]


@pytest.mark.parametrize("size_bytes", [2, 4])
def test_an_answer_that_is_not_as_long_as_announced_is_cut_off(log: LogCapture, size_bytes: int) -> None:
    async def lying(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b"y" * (size_bytes - 1)})

    with pytest.raises(http.client.IncompleteRead):
        get(lying)
    assert log.entries[0]["event"] == "http.application_failed"


def test_a_body_is_read_only_as_fast_as_the_application_reads_it() -> None:
    async def test(server: AsgiServer, port: int) -> None:
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

    async def slow(scope: dict[str, Any], receive: Any, send: Any) -> None:
        started.set()
        await go_on.wait()
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            sizes.append(len(message["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(sum(sizes)).encode()})

    started, go_on, sizes = asyncio.Event(), asyncio.Event(), list[int]()
    run(slow, test)


def test_an_application_waits_for_a_slow_client_and_is_notified_of_its_disconnection() -> None:
    async def test(server: AsgiServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write((HEAD + b"\r\n") % b"/")
        await started.wait()
        while len(sent) < 2 or sent[-1] != sent[-2]:  # until nothing more arrives within a tenth of a second
            sent.append(pieces)
            await asyncio.sleep(0.1)
        assert pieces < 1000
        writer.transport.abort()
        await disconnected.wait()

    async def endless(scope: dict[str, Any], receive: Any, send: Any) -> None:
        nonlocal pieces
        assert (await receive())["type"] == "http.request"
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        started.set()
        while not gone.done():
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            pieces += 1
        assert (await gone)["type"] == "http.disconnect"
        disconnected.set()

    pieces, sent = 0, list[int]()
    started, disconnected = asyncio.Event(), asyncio.Event()
    run(endless, test)


def test_an_offer_of_http_2_is_ignored() -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    assert get(streaming, method="POST", headers=headers, body=b"abc").status == 200


def test_the_shutdown_waits_for_answers_in_progress_up_to_its_time_limit(log: LogCapture) -> None:
    async def test(server: AsgiServer, port: int) -> None:
        replies = []
        for path in (b"/soon", b"/never"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((HEAD + b"\r\n") % path)
            replies.append((reader, writer))
        while len(waiting) < 2:
            await asyncio.sleep(0)
        drained = asyncio.ensure_future(server.drain(timeout_s=1))
        await asyncio.sleep(0)
        waiting["/soon"].set()
        await drained
        answers = [await reader.read() for reader, _ in replies]
        assert b"Connection: close" in answers[0]
        assert answers[1] == b""
        for _, writer in replies:
            writer.close()

    async def held(scope: dict[str, Any], receive: Any, send: Any) -> None:
        waiting[scope["path"]] = asyncio.Event()
        await waiting[scope["path"]].wait()
        await streaming(scope, receive, send)

    waiting: dict[str, asyncio.Event] = {}
    run(held, test)
    assert [(entry["event"], entry["requests"]) for entry in log.entries] == [("http.requests_cut", 1)]


def test_nothing_is_left_to_the_event_loop_to_report(caplog: pytest.LogCaptureFixture) -> None:
    assert get(streaming).status == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
