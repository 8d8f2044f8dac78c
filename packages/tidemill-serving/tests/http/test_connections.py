"""HTTP on real sockets, with a test application and time limits short enough to wait for."""

import asyncio
import gzip
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving._shared.http.listener import Listener
from tidemill_serving.errors import StartFailed
from tidemill_serving.http.listener import bind_tcp, bind_unix, new_listener
from tidemill_serving.http.message import HttpRequest, Reply, Response

DEADLINE_S = 20
Handler = Callable[[HttpRequest, Reply], None]


def echo(request: HttpRequest, reply: Reply) -> None:
    reply(Response(200, request.target + b"|" + request.body, b"text/plain"))


@asynccontextmanager
async def listening(handler: Handler = echo, **limits: float) -> AsyncIterator[tuple[Listener, int]]:
    loop = asyncio.get_running_loop()
    listener = new_listener(handler, limits=Limits(**limits), loop=loop)  # type: ignore[arg-type]
    sock = bind_tcp("127.0.0.1", 0)
    await listener.open(sock)
    try:
        yield listener, sock.getsockname()[1]
    finally:
        await listener.drain(grace_s=0, timeout_s=1)


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send the parts, then read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE_S)
    finally:
        writer.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test()

    asyncio.run(main())


def status_of(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


HEAD = b"POST /p HTTP/1.1\r\nHost: h\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (HEAD + CLOSE + b"Content-Length: 2\r\n\r\nhi", 200),
        (HEAD + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\n" + CLOSE + b"\r\n", 200),
        (b"POST /p HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"Host: other\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: -2\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400),
        (HEAD + b"X: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (HEAD + b"X: " + b"a" * 17_000 + b"\r\n\r\n", 431),
        (HEAD + b"".join(b"X-%d: 1\r\n" % index for index in range(200)) + b"\r\n", 431),
        (HEAD + b"".join(b"X-%d: %s\r\n" % (index, b"a" * 15_000) for index in range(5)) + b"\r\n", 431),
        (b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
        (HEAD + b"X: " + b"a" * 8_000_000 + b"\r\n\r\n", 431),
        (HEAD + b"Content-Length: 2000\r\n\r\n", 413),
        (HEAD + b"Content-Length: 2000\r\n\r\n" + b"a" * 2000, 413),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2000 + b"\r\n0\r\n\r\n", 413),
        (HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (HEAD + b"Expect: coffee\r\nContent-Length: 1\r\n\r\n", 417),
        (HEAD + CLOSE + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\na", 415),
        (HEAD + CLOSE + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", 400),
    ],
)
def test_a_request_has_its_status(raw: bytes, status: int) -> None:
    async def test() -> None:
        async with listening(body_bytes=1000) as (_, port):
            assert status_of(await exchange(port, raw)) == status

    run(test)


def gzipped(plain: bytes) -> bytes:
    body = gzip.compress(plain)
    return HEAD + CLOSE + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_gzip_bodies_are_decompressed_up_to_the_limit() -> None:
    async def test() -> None:
        async with listening(body_bytes=100_000) as (listener, port):
            assert (await exchange(port, gzipped(b"a" * 1000))).endswith(b"/p|" + b"a" * 1000)
            assert status_of(await exchange(port, gzipped(b"a" * 100_001))) == 413
            assert status_of(await exchange(port, gzipped(b"a" * 50_000_000))) == 413
            assert listener.traffic.buffered_bytes == 0

    run(test)


def test_a_gzip_body_of_very_many_members_is_refused_at_once() -> None:
    async def test() -> None:
        member = gzip.compress(b"")
        many, some = member * 200_000, member * 2_000 + gzip.compress(b"hi") * 2
        async with listening(body_bytes=8_000_000) as (_, port):
            for body, expected in ((many, b"more than 10000 members"), (some, b"/p|hihi")):
                raw = HEAD + CLOSE + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                assert expected in await exchange(port, raw)

    run(test)


def test_a_gzip_body_cut_short_is_refused() -> None:
    async def test() -> None:
        body = gzip.compress(b"abc")[:-6]
        raw = HEAD + CLOSE + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        async with listening() as (_, port):
            assert b"ends before its last member" in await exchange(port, raw)

    run(test)


def test_pipelined_requests_are_answered_in_order_even_when_answers_come_late() -> None:
    def late_or_now(request: HttpRequest, reply: Reply) -> None:
        if request.target.startswith(b"/late"):
            asyncio.get_running_loop().call_later(0.01, echo, request, reply)
        else:
            echo(request, reply)

    async def test() -> None:
        async with listening(late_or_now) as (_, port):
            targets = [b"/late%d" % i if i % 3 == 0 else b"/now%d" % i for i in range(60)]
            raw = b"".join(b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % target for target in targets)
            raw += b"GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            answered = await exchange(port, raw)
            found = [part.partition(b"|")[0] for part in answered.split(b"\r\n\r\n")[1:]]
            assert [part.removesuffix(b"HTTP/1.1 200 OK") for part in found] == [*targets, b"/end"]

    run(test)


def test_a_request_is_over_when_its_connection_was_reset_or_it_took_too_long() -> None:
    async def test() -> None:
        requests: list[HttpRequest] = []
        arrived = asyncio.Event()

        def hold(request: HttpRequest, reply: Reply) -> None:
            requests.append(request)
            arrived.set()

        async with listening(hold, answer_timeout_s=0.1) as (_, port):
            answer = await exchange(port, HEAD + CLOSE + b"Content-Length: 0\r\n\r\n")
            assert status_of(answer) == 504
            assert requests[0].is_over()
        async with listening(hold) as (_, port):
            arrived.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
            await arrived.wait()
            assert not requests[1].is_over()
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            while not requests[1].is_over():
                await asyncio.sleep(0.01)

    run(test)


def test_thousands_of_pipelined_requests_do_not_exhaust_the_stack() -> None:
    async def test() -> None:
        async with listening(pipelined=4) as (_, port):
            raw = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 5000
            raw += b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            assert (await exchange(port, raw)).count(b"HTTP/1.1 200 OK") == 5001

    run(test)


def test_a_connection_is_kept_alive_and_counts_date_and_length() -> None:
    async def test() -> None:
        async with listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for body in (b"", b"x" * 300_000):
                writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"Content-Length: %d\r\n" % (len(body) + 3) in head
                assert b" GMT\r\n" in head
                assert b"Connection" not in head
                assert await reader.readexactly(len(body) + 3) == b"/p|" + body
            writer.close()

    run(test)


def test_expect_100_continue_is_answered_before_the_body_comes() -> None:
    async def test() -> None:
        async with listening(body_bytes=10) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hi")
            assert (await reader.readuntil(b"/p|hi")).startswith(b"HTTP/1.1 200")
            writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 11\r\n\r\n")
            assert status_of(await reader.read()) == 413
            writer.close()

    run(test)


def test_an_upgrade_offer_is_ignored() -> None:
    async def test() -> None:
        async with listening() as (_, port):
            offer = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
            answered = await exchange(port, offer, b"GET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert b"/a|" in answered
            assert b"/b|" in answered

    run(test)


@pytest.mark.parametrize("cut", [0, 20, -3])
def test_an_upgrade_offer_may_have_a_body(cut: int) -> None:
    async def test() -> None:
        async with listening() as (_, port):
            offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
            sized = HEAD + offer + b"Content-Length: 4\r\n\r\nbody"
            chunked = HEAD + offer + b"Transfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n0\r\n\r\n"
            last = HEAD + CLOSE + b"Content-Length: 3\r\n\r\nend"
            raw = sized + chunked + last
            answered = await exchange(port, raw[:cut], raw[cut:])
            assert [part[:4] for part in answered.split(b"/p|")[1:]] == [b"body", b"more", b"end"]

    run(test)


def test_an_invalid_request_with_an_upgrade_offer_is_answered() -> None:
    async def test() -> None:
        async with listening(body_bytes=10) as (_, port):
            for head in (b"", b"Host: h\r\nContent-Length: 11\r\n"):
                raw = b"POST /a HTTP/1.1\r\n" + head + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                assert status_of(await exchange(port, raw)) == (413 if head else 400)

    run(test)


@pytest.mark.parametrize(
    ("raw", "limits"),
    [
        (b"POST /p HT", {"head_timeout_s": 0.1}),
        (HEAD, {"head_timeout_s": 0.1}),
        (HEAD + b"Content-Length: 500\r\n\r\nabc", {"slow_window_s": 0.1}),
    ],
)
def test_a_slow_sender_is_answered_408(raw: bytes, limits: dict[str, float]) -> None:
    async def test() -> None:
        async with listening(**limits) as (_, port):
            assert status_of(await exchange(port, raw)) == 408

    run(test)


def test_an_idle_connection_is_closed_without_an_answer() -> None:
    async def test() -> None:
        async with listening(keep_alive_s=0.1) as (_, port):
            assert await exchange(port, b"") == b""

    run(test)


def test_a_missing_answer_is_504_and_a_late_one_is_ignored() -> None:
    held: list[Reply] = []

    async def test() -> None:
        async with listening(lambda _, reply: held.append(reply), answer_timeout_s=0.1) as (listener, port):
            assert status_of(await exchange(port, HEAD + b"Content-Length: 2\r\n\r\nhi")) == 504
            held[0](Response(200, b""))
            assert listener.traffic.buffered_bytes == 0

    run(test)


def test_bodies_of_all_connections_together_are_limited() -> None:
    held: list[Reply] = []

    async def test() -> None:
        async with listening(lambda _, reply: held.append(reply), buffered_bytes=150) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Content-Length: 100\r\n\r\n" + b"a" * 100)
            while not held:
                await asyncio.sleep(0)
            refused = await exchange(port, HEAD + b"Content-Length: 100\r\n\r\n" + b"a" * 100)
            assert status_of(refused) == 503
            assert b"Retry-After: 1\r\n" in refused
            held[0](Response(200, b""))
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            assert listener.traffic.buffered_bytes == 0
            writer.close()

    run(test)


def test_connections_above_the_limit_are_answered_503() -> None:
    async def test() -> None:
        async with listening(connections=1) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"/|")
            assert status_of(await exchange(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")) == 503
            writer.close()

    run(test)


def test_the_bytes_of_a_disconnected_client_are_released() -> None:
    held: list[Reply] = []

    async def test() -> None:
        async with listening(lambda _, reply: held.append(reply)) as (listener, port):
            for raw in (b"Content-Length: 50\r\n\r\n" + b"a" * 20, b"Content-Length: 2\r\n\r\nhi"):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(HEAD + raw)
                while not listener.traffic.buffered_bytes:
                    await asyncio.sleep(0)
                writer.transport.abort()
                if held:
                    held[0](Response(200, b""))
                while listener.traffic.buffered_bytes:
                    await asyncio.sleep(0)

    run(test)


def test_a_unix_socket_is_private_and_may_have_a_long_path(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "endpoint.sock"
    path.parent.mkdir()
    with bind_unix(path) as first:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        first.listen()
        with pytest.raises(StartFailed, match="another server listens there"):
            bind_unix(path)
    short = tmp_path / "s"
    with bind_unix(short) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.listen(0)
        waiting.connect(str(short))
        with pytest.raises(StartFailed, match="a busy server listens there"):
            bind_unix(short)
    bind_unix(path).close()  # leaves a socket without a listener, as a killed server does


def test_a_file_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.sock"
    path.write_text("mine")
    with pytest.raises(StartFailed, match="it exists and is no socket"):
        bind_unix(path)
    assert path.read_text() == "mine"


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"cannot listen on 127.0.0.1 port {port}"):
            bind_tcp("127.0.0.1", port)


def test_draining_waits_for_answers_up_to_its_time_limit() -> None:
    held: list[Reply] = []

    async def test() -> None:
        async with listening(lambda _, reply: held.append(reply)) as (listener, port):
            request = asyncio.create_task(exchange(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
            while not held:
                await asyncio.sleep(0)
            assert not await listener.drain(grace_s=0, timeout_s=0.05)
            assert await request == b""

    run(test)
