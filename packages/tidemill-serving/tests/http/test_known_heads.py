"""A repeated head is not parsed again, and every request is answered as if it were."""

import random

import pytest

from tidemill_serving._shared.http.connection import Connection
from tidemill_serving._shared.http.exchange import Exchange
from tidemill_serving._shared.http.limits import Limits, Traffic
from tidemill_serving._shared.http.room import Room
from tidemill_serving.http.message import refusal_form

NOW_S = 5.0
PIECES = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /",
    b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD /c HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /c HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    b"POST /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"POST /f HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /g HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"GET /h HTTP/1.1\n\nHost: x\r\n\r\n",
    b"GET /no-host HTTP/1.1\r\n\r\n",
    b"POST /i HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /too-large HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"nonsense\r\n\r\n",
    b"",
)


class Transport:
    """Records the written bytes."""

    def get_extra_info(self, _name: str) -> None:
        return None

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    resume_reading = abort = pause_reading


def echo(exchange: Exchange) -> None:
    body = exchange.take()
    exchange.start(200, exchange.headers if exchange.target == b"/b" else ())
    exchange.send(exchange.method + exchange.target + b"|" + body)


def new_traffic(*, remembers: bool) -> Traffic:
    traffic = Traffic(Limits(body_bytes=100), streams=False, refusal_form=refusal_form, now_s=lambda: NOW_S)
    traffic.date = b"now"
    if not remembers:
        traffic.remember_head = lambda text, head: None  # type: ignore[method-assign]
    return traffic


def connect(traffic: Traffic, application: object = echo) -> tuple[Connection, Transport]:
    transport = Transport()
    connection = Connection(application, traffic, Room(traffic.limits, now_s=traffic.now_s))  # type: ignore[arg-type]
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def test_with_known_heads_every_stream_is_answered_as_without() -> None:
    source = random.Random(11)
    remembering, forgetting = new_traffic(remembers=True), new_traffic(remembers=False)
    for _ in range(2_000):
        stream = b"".join(source.choice(PIECES) for _ in range(source.randint(1, 6)))
        cuts = sorted(source.randint(0, len(stream)) for _ in range(source.choice((0, 0, 1, 3))))
        parts = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        (one, answer), (other, expected) = connect(remembering), connect(forgetting)
        for part in parts:
            for connection, transport in ((one, answer), (other, expected)):
                if not transport.closed:
                    connection.data_received(part)
        assert (answer.written, answer.closed, one.busy) == (expected.written, expected.closed, other.busy), parts
    assert remembering.known_heads
    assert remembering.buffered_bytes == forgetting.buffered_bytes


def test_a_known_head_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = new_traffic(remembers=True)
    connect(traffic)[0].data_received(PIECES[0])
    connection, transport = connect(traffic)
    monkeypatch.setattr(connection, "_parser", None)
    connection.data_received(PIECES[0])
    connection.data_received(PIECES[1])
    assert transport.written.count(b"200 OK") == 2
    assert transport.written.endswith(b"POST/a|GET /")


def test_while_an_answer_is_awaited_known_heads_wait_in_line() -> None:
    traffic = new_traffic(remembers=True)
    connect(traffic)[0].data_received(PIECES[0])
    waiting: list[Exchange] = []
    connection, transport = connect(traffic, waiting.append)
    connection.data_received(PIECES[0])
    connection.data_received(PIECES[1])
    assert len(waiting) == 1
    echo(waiting[0])
    echo(waiting[1])
    assert transport.written.index(b"POST/a|12345") < transport.written.index(b"POST/a|GET /")


def test_the_heads_that_are_kept_are_limited() -> None:
    traffic = new_traffic(remembers=True)
    connection, transport = connect(traffic)
    for number in range(3_000):
        connection.data_received(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    assert transport.written.count(b"200 OK") == 3_000
    assert len(traffic.known_heads) <= 1024
    connection.data_received(b"GET /" + b"x" * 4_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert max(map(len, traffic.known_heads)) <= 2048
