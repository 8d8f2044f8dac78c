"""Streams of messages on a connection without a socket: what hostile and slow clients can hold of the server."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from connection_in_memory import GREETING, Clock, Echo, Peer
from frames_of_clients import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    number,
    prefixed,
    setting,
)
from hpack import Decoder

from tidemill_serving.errors import Code
from tidemill_serving.grpc_api.streaming import StreamedCalls

ECHO = "/echo"
MANY = 5000
MOST_STREAMS = 1000  # of the whole server
CANCEL = 8


class EchoPeer(Peer):
    """A client of a method that sends each message back."""

    def __init__(self, **options: Any) -> None:
        clock = Clock()
        self.streams = StreamedCalls(cast("Any", clock), {ECHO.encode(): Echo})
        super().__init__(clock=clock, streamed={ECHO.encode(): self.streams}, **options)

    def open(self, stream: int = 1, **headers: str) -> bytes:
        return frame(HEADERS, END_HEADERS, stream, block(ECHO, **headers))

    def turns(self) -> None:
        while self.clock.ready:
            self.clock.turn()

    def messages(self, stream: int = 1) -> list[bytes]:
        data = b"".join(each.payload for each in self.frames if (each.kind, each.stream) == (DATA, stream))
        return list(unprefixed(data))

    def fields(self, stream: int) -> dict[str, str]:
        decoder = Decoder()
        found: dict[str, str] = {}
        for each in self.frames:
            if each.kind == HEADERS:
                decoded = dict(decoder.decode(each.payload))
                found |= decoded if each.stream == stream else {}
        return found


def unprefixed(data: bytes) -> Iterator[bytes]:
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        yield data[5:end]
        data = data[end:]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_messages_are_answered_as_they_come_a_few_in_each_turn() -> None:
    peer = EchoPeer()
    peer.send(GREETING + peer.open())
    sent = numbered(100)
    data = b"".join(prefixed(each) for each in sent)
    peer.connection.data_received(frame(DATA, 0, 1, data[:303]) + frame(DATA, 0, 1, data[303:]))
    peer.clock.turn()
    assert 0 < len(peer.messages()) < 50, "other connections have their turn"
    peer.turns()
    assert peer.messages() == sent
    peer.send(frame(DATA, END_STREAM, 1, b""))
    assert peer.fields(1)["grpc-status"] == "0"
    assert peer.streams.num_open == 0
    peer.lose()


def test_a_client_that_does_not_read_holds_one_answer() -> None:
    peer = EchoPeer()
    peer.send(PREFACE + frame(SETTINGS, 0, 0, setting(4, 0)) + peer.open())
    sent = numbered(MANY)
    data = b"".join(prefixed(each) for each in sent)
    for begin in range(0, len(data), 10_000):
        peer.send(frame(DATA, 0, 1, data[begin : begin + 10_000]))
    peer.turns()
    assert peer.messages() == []
    assert peer.traffic.buffered_bytes < len(data) + 10
    peer.send(frame(WINDOW_UPDATE, 0, 1, number(2**30)))
    peer.turns()
    peer.send(frame(DATA, END_STREAM, 1, b""))
    assert peer.messages() == sent
    assert peer.fields(1)["grpc-status"] == "0"
    peer.lose()


def test_the_client_may_send_without_end_as_its_messages_are_read() -> None:
    peer = EchoPeer()
    peer.send(
        GREETING + peer.open() + frame(WINDOW_UPDATE, 0, 1, number(2**30)) + frame(WINDOW_UPDATE, 0, 0, number(2**30))
    )
    message = prefixed(bytes(10_000))
    for _ in range(250):  # 2.5 MB: more than the window of a call
        peer.send(frame(DATA, 0, 1, message))
    allowed = sum(int.from_bytes(each.payload, "big") for each in peer.frames if (each.kind, each.stream) == (8, 1))
    assert 2**20 + allowed > 250 * len(message)
    assert peer.traffic.buffered_bytes == 0
    peer.lose()


def test_only_an_unfinished_message_counts_as_slow() -> None:
    peer = EchoPeer(slow_window_s=30)
    peer.send(GREETING + peer.open() + frame(DATA, 0, 1, prefixed(b"a")))
    peer.wait(100)
    assert peer.messages() == [b"a"]
    assert "grpc-status" not in peer.fields(1)
    peer.send(frame(DATA, 0, 1, prefixed(b"b")[:3]))
    peer.wait(32)
    assert peer.fields(1)["grpc-status"] == str(Code.DEADLINE_EXCEEDED.number)
    peer.lose()


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"\0\0\0\0\x05abc", Code.INVALID_ARGUMENT, "the stream ends after 8 bytes of a message of 10"),
        (b"\0\0\x01\0\1", Code.RESOURCE_EXHAUSTED, "Received message larger than max"),
        (b"\1\0\0\0\1a", Code.INVALID_ARGUMENT, "grpc-encoding names no compression"),
        (b"\0\0", Code.INVALID_ARGUMENT, "the stream ends after 2 bytes"),
    ],
)
def test_a_wrong_message_ends_the_stream_after_the_answers_before_it(data: bytes, code: Code, text: str) -> None:
    peer = EchoPeer()
    peer.send(GREETING + peer.open() + frame(DATA, END_STREAM, 1, prefixed(b"a") + data))
    assert peer.messages() == [b"a"]
    assert peer.fields(1)["grpc-status"] == str(code.number)
    assert text in peer.fields(1)["grpc-message"]
    peer.lose()


def test_streams_above_the_limit_are_refused_until_others_end() -> None:
    first = EchoPeer()
    second = Peer(clock=first.clock, streamed={ECHO.encode(): first.streams})
    opened = b"".join(first.open(2 * each + 1) for each in range(MOST_STREAMS))
    first.send(GREETING + opened)
    first.send(b"".join(frame(DATA, 0, 2 * each + 1, prefixed(b"a")) for each in range(MOST_STREAMS)))
    assert first.streams.num_open == MOST_STREAMS
    second.send(GREETING + first.open() + frame(DATA, 0, 1, prefixed(b"a")))
    (refused,) = (dict(Decoder().decode(each.payload)) for each in second.frames if each.kind == HEADERS)
    assert refused["grpc-status"] == str(Code.UNAVAILABLE.number)
    first.send(frame(RST_STREAM, 0, 1, number(CANCEL)))
    second.send(first.open(3) + frame(DATA, 0, 3, prefixed(b"b")))
    assert [each.payload for each in second.frames if each.kind == DATA] == [prefixed(b"b")]
    first.lose()
    second.lose()
    assert first.streams.num_open == 0


def test_deadlines_and_the_end_of_the_server_end_streams() -> None:
    peer = EchoPeer()
    peer.send(GREETING + peer.open(1, grpc_timeout="2S") + frame(DATA, 0, 1, prefixed(b"a")))
    peer.send(
        peer.open(3)
        + frame(DATA, 0, 3, prefixed(b"a"))
        + peer.open(5, grpc_timeout="x")
        + frame(DATA, 0, 5, prefixed(b"a"))
    )
    peer.wait(3)
    assert peer.fields(1)["grpc-status"] == str(Code.DEADLINE_EXCEEDED.number)
    assert peer.fields(5)["grpc-status"] == str(Code.INVALID_ARGUMENT.number)
    assert "grpc-status" not in peer.fields(3)
    peer.streams.close()
    peer.send(peer.open(7) + frame(DATA, 0, 7, prefixed(b"a")))
    assert [peer.fields(each)["grpc-status"] for each in (3, 7)] == [str(Code.UNAVAILABLE.number)] * 2
    peer.lose()


def test_half_a_message_is_not_followed_by_trailers() -> None:
    peer = EchoPeer()
    peer.send(PREFACE + frame(SETTINGS, 0, 0, setting(4, 3)) + peer.open() + frame(DATA, 0, 1, prefixed(b"abc")))
    assert b"".join(each.payload for each in peer.frames if each.kind == DATA) == prefixed(b"abc")[:3]
    peer.streams.close()
    peer.clock.turn()
    last = peer.frames[-1]
    assert (last.kind, last.stream, int.from_bytes(last.payload, "big")) == (RST_STREAM, 1, CANCEL)
    peer.lose()
