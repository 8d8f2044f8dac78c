"""Limits on heads and on time, on a real server."""

import contextlib
import http.client
import logging
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))

import toys

from tidemill._shared.http.exchange import Exchange
from tidemill._shared.http.limits import Limits
from tidemill.wire.gateway import LIMITS

SHORT = Limits(head_timeout_s=1, slow_window_s=0.3, linger_s=0.5)
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def echo(exchange: Exchange) -> None:
    """Read the body if requested, and answer with its size."""
    size_bytes = 0
    more = exchange.target != b"/unread"
    while more:
        data, more = await exchange.receive()
        size_bytes += len(data)
    exchange.start(200, [(b"connection", b"close")] if exchange.target == b"/unread" else [])
    exchange.send(str(size_bytes).encode())


@pytest.fixture(autouse=True)
def nothing_raised(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test if the server logs an error: a refusal is an answer without a traceback."""
    yield
    logged = caplog.get_records("call")
    assert [each.getMessage() for each in logged if each.exc_info or each.levelno >= logging.ERROR] == []


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with toys.serving(echo, limits=LIMITS) as port:
        yield port


@pytest.fixture
def sock(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        yield sock


@pytest.fixture(scope="module")
def hasty_port() -> Iterator[int]:
    """Yield the port of a server with short time limits, which on a busy machine even a good client may exceed."""
    with toys.serving(echo, limits=SHORT) as port:
        yield port


@pytest.fixture
def begun(hasty_port: int) -> Iterator[Callable[[bytes], socket.socket]]:
    """Yield a function that sends the first bytes of a connection well within the limits: else it begins again."""
    with contextlib.ExitStack() as opened:

        def begin(data: bytes) -> socket.socket:
            while True:
                begun_s = time.monotonic()
                sock = opened.enter_context(socket.create_connection(("127.0.0.1", hasty_port), timeout=20))
                with contextlib.suppress(ConnectionError):
                    sock.sendall(data)
                    if time.monotonic() - begun_s < SHORT.head_timeout_s / 2:
                        return sock

        yield begin


def read_reply(sock: socket.socket) -> tuple[int, bytes]:
    with http.client.HTTPResponse(sock, method="POST") as reply:
        reply.begin()
        return reply.status, reply.read()


def test_a_head_that_never_ends_is_408(begun: Callable[[bytes], socket.socket]) -> None:
    assert read_reply(begun(b"GET / HTTP/1.1\r\nHost: local"))[0] == 408


def test_each_of_many_silent_connections_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill._shared.http.listener._CHECKED_AT_ONCE", 2)
    with toys.serving(echo, limits=SHORT) as port, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(7)]
        for connection in connections:
            assert connection.recv(100) == b""


def test_a_silent_connection_is_closed(begun: Callable[[bytes], socket.socket]) -> None:
    assert begun(b"").recv(100) == b""


def test_line_breaks_before_a_request_do_not_hold_a_connection(begun: Callable[[bytes], socket.socket]) -> None:
    assert begun(b"\r\n\r\n").recv(100) == b""


def test_a_second_head_that_never_ends_is_408_too(begun: Callable[[bytes], socket.socket]) -> None:
    sock = begun(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_reply(sock) == (200, b"0")
    sock.sendall(b"GET / HT")
    assert read_reply(sock)[0] == 408


def test_a_body_that_stops_is_408(begun: Callable[[bytes], socket.socket]) -> None:
    status, body = read_reply(begun(HEAD + b"Content-Length: 10000\r\n\r\nabc"))
    assert status == 408
    assert b"bytes a second" in body


def test_a_body_that_is_fast_enough_may_take_longer_than_the_window(port: int) -> None:
    limits = Limits(slow_window_s=1, slow_bytes_per_s=100)  # on a busy machine even this client may pause for a while
    with toys.serving(echo, limits=limits) as slow, socket.create_connection(("127.0.0.1", slow), timeout=20) as sock:
        sock.sendall(HEAD + b"Content-Length: 6500\r\n\r\n")
        for _ in range(12):
            sock.sendall(b"x" * 500)
            assert select.select([sock], [], [], 0.1) == ([], [], [])  # a tenth of a second without a reply
        sock.sendall(b"x" * 500)
        assert read_reply(sock) == (200, b"6500")


def test_a_client_that_expects_100_continue_gets_it(sock: socket.socket) -> None:
    sock.sendall(HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    sock.sendall(b"abc")
    assert read_reply(sock) == (200, b"3")


def test_a_reply_before_the_body_was_read_arrives_although_the_client_goes_on_sending(sock: socket.socket) -> None:
    sock.sendall(b"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
    sock.sendall(b"x" * 4_000_000)
    assert read_reply(sock) == (200, b"0")


def test_requests_in_one_packet_are_answered_in_order(sock: socket.socket) -> None:
    request = HEAD + b"Content-Length: %d\r\n\r\n%s"
    sock.sendall(request % (1, b"a") + request % (2, b"bb") + request % (3, b"ccc"))
    assert [read_reply_kept(sock) for _ in range(3)] == [b"1", b"2", b"3"]


def read_reply_kept(sock: socket.socket) -> bytes:
    """Read one reply with a one-byte body, but nothing of the next."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1)
    return sock.recv(1)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"Host: a\r\n", 400),
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        (b"Content-Length: -3\r\n", 400),
        (b"Content-Length: 0x3\r\n", 400),
        (b"Transfer-Encoding: gzip, identity\r\nContent-Length: 1\r\n", 400),
        (b"X-Fold: a\r\n b\r\n", 400),
        (b"X Y: a\r\n", 400),
        (b"X-Long: " + b"x" * 17_000 + b"\r\n", 431),
        (b"X-Many: y\r\n" * 128, 431),
        (b"X-Large: " + b"x" * 200_000 + b"\r\n", 431),
        ((b"X-Many-Long: " + b"y" * 1000 + b"\r\n") * 200, 431),
    ],
)
def test_a_head_that_two_readers_could_read_differently_or_is_too_large_is_refused(
    sock: socket.socket, lines: bytes, status: int
) -> None:
    sock.sendall(HEAD + lines + b"\r\n")
    answered, body = read_reply(sock)
    assert answered == status
    assert b'"__type"' in body
    assert sock.recv(10) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x00\xf1\x01" * 40_000,
    ],
    ids=["no HTTP", "HTTP/0.9", "no ASCII", "TLS"],
)
def test_data_that_is_not_a_request_is_400(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    assert read_reply(sock)[0] == 400


def test_a_client_that_disconnects_while_it_is_refused_is_not_an_error(port: int) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(HEAD + (b"X-Many-Long: " + b"y" * 1000 + b"\r\n") * 100)


def test_a_request_line_that_is_too_long_is_414(sock: socket.socket) -> None:
    sock.sendall(b"GET /" + b"x" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_reply(sock)[0] == 414


def test_a_head_at_the_limits_is_read(sock: socket.socket) -> None:
    lines = b"".join(b"X-%03d: %s\r\n" % (number, b"y" * 400) for number in range(127))
    sock.sendall(HEAD + lines + b"\r\n")
    assert read_reply(sock)[0] == 200


def test_a_bad_chunk_ends_a_request_that_is_under_way(sock: socket.socket) -> None:
    sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
    assert read_reply(sock)[0] == 400


def test_the_default_limits_are_those_that_are_documented() -> None:
    assert (LIMITS.line_bytes, LIMITS.head_bytes, LIMITS.headers) == (16384, 65536, 128)
    assert (LIMITS.head_timeout_s, LIMITS.slow_window_s, LIMITS.slow_bytes_per_s) == (10, 30, 1024)
