"""A connection without a socket, on a clock of the test: its time limits, and frames at random.

The random frames take ``FUZZ_S`` seconds, as those of test_hostile_calls.py.
"""

import math
import os
import random
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from connection_in_memory import GREETING, Clock, Echo, Peer, Transport
from frames_of_clients import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PING,
    PREDICT,
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

from tidemill_serving.channel_arguments import ChannelArguments, read_channel_arguments
from tidemill_serving.errors import Code, StartFailed
from tidemill_serving.grpc_api.connection import GrpcConnection
from tidemill_serving.grpc_api.streaming import StreamedCalls

FUZZ_S = float(os.environ.get("FUZZ_S", "2"))
IDLE_S = ChannelArguments().idle_s
INTERNAL_ERROR = 2
OPEN = frame(HEADERS, END_HEADERS, 1, block())


def test_a_client_without_a_preface_is_disconnected() -> None:
    for begin in (b"", PREFACE[:10], PREFACE):
        peer = Peer(head_timeout_s=10)
        peer.send(begin)
        peer.wait(10)
        assert peer.transport.is_open
        peer.wait(1)
        assert not peer.transport.is_open


def test_a_frame_or_headers_without_an_end_are_not_waited_for() -> None:
    for begin in (frame(PING, 0, 0, bytes(8))[:5], frame(HEADERS, 0, 1, block())):
        peer = Peer(slow_window_s=30)
        peer.send(GREETING + begin)
        peer.wait(30)
        assert peer.codes == []
        peer.wait(1)
        assert peer.codes == [ENHANCE_YOUR_CALM]
        assert peer.transport.is_open, "the client has to be able to read the reason"
        peer.wait(3)
        assert not peer.transport.is_open


def test_a_message_that_comes_too_slowly_is_refused_and_the_connection_goes_on() -> None:
    peer = Peer(slow_window_s=30, slow_bytes_per_s=10)
    peer.send(GREETING + OPEN + frame(DATA, 0, 1, bytes(400)))
    peer.wait(30)
    peer.send(frame(DATA, 0, 1, bytes(299)))
    peer.wait(29)
    assert not any(each.kind == HEADERS for each in peer.frames)
    peer.wait(1)
    (answer,) = (dict(Decoder().decode(each.payload)) for each in peer.frames if each.kind == HEADERS)
    assert answer["grpc-status"] == str(Code.DEADLINE_EXCEEDED.number)
    assert answer["grpc-message"] == "The message came too slowly: 299 bytes in 30 s"
    peer.send(frame(HEADERS, END_HEADERS, 3, block()) + frame(DATA, END_STREAM, 3, prefixed(b"a")))
    assert len(peer.calls) == 1
    assert peer.codes == []
    peer.lose()


def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    peer = Peer(slow_window_s=30)
    peer.send(PREFACE + frame(SETTINGS, 0, 0, setting(4, 0)) + OPEN + frame(DATA, END_STREAM, 1, prefixed(b"abc")))
    peer.wait(20)
    peer.send(frame(WINDOW_UPDATE, 0, 1, number(1)))
    peer.wait(30)
    assert peer.transport.is_open
    peer.wait(1)
    assert not peer.transport.is_open
    peer.lose()


def test_nothing_is_read_from_a_client_while_it_reads_nothing() -> None:
    peer = Peer()
    peer.send(GREETING)
    peer.connection.pause_writing()
    assert not peer.transport.reads
    before = peer.transport.written
    peer.send(OPEN + frame(DATA, END_STREAM, 1, prefixed(b"abc")))  # had been read already
    assert b"abc" not in peer.transport.written[len(before) :]
    peer.connection.resume_writing()
    peer.clock.turn()
    assert peer.transport.reads
    assert b"abc" in peer.transport.written[len(before) :]


def test_an_idle_connection_is_closed_politely() -> None:
    peer = Peer()
    peer.send(GREETING)
    peer.wait(IDLE_S)
    assert peer.transport.is_open
    peer.wait(1)
    assert peer.codes == [0]
    assert not peer.transport.is_open


def test_a_call_in_progress_keeps_its_connection_open() -> None:
    peer = Peer(waits=True)
    peer.send(GREETING + OPEN + frame(DATA, END_STREAM, 1, prefixed(b"abc")))
    peer.wait(IDLE_S + 60)
    assert peer.transport.is_open
    peer.calls[0].answer(b"late")
    peer.clock.turn()
    assert b"late" in peer.transport.written


def test_messages_of_all_connections_together_are_limited() -> None:
    peer = Peer(waits=True, buffered_bytes=1000)
    peer.send(GREETING + OPEN + frame(DATA, END_STREAM, 1, prefixed(bytes(900))))
    peer.send(frame(HEADERS, END_HEADERS, 3, block()) + frame(DATA, 0, 3, bytes(200)))
    (answer,) = (dict(Decoder().decode(each.payload)) for each in peer.frames if each.kind == HEADERS)
    assert answer["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.number)
    assert answer["grpc-message"] == "The server holds too many messages at the moment; try again later"
    assert peer.traffic.buffered_bytes == 905
    peer.lose()


def test_connections_above_the_limit_are_not_accepted() -> None:
    peer = Peer(connections=1)
    transport: Any = Transport()
    GrpcConnection(peer.traffic).connection_made(transport)
    assert not transport.is_open
    assert peer.traffic.connections == {peer.connection}


def test_a_late_answer_to_a_call_that_was_reset_is_not_sent() -> None:
    peer = Peer(waits=True)
    peer.send(GREETING + OPEN + frame(DATA, END_STREAM, 1, prefixed(b"abc")) + frame(RST_STREAM, 0, 1, number(8)))
    assert peer.calls[0].is_over
    assert peer.calls[0].parts == []
    peer.calls[0].answer(b"late")
    peer.calls[0].fail(Code.INTERNAL, "late")
    peer.clock.turn()
    assert b"late" not in peer.transport.written
    peer.lose()


def conversation(chance: random.Random) -> list[bytes]:
    """Frames of a client that are mostly in order."""
    made: list[bytes] = []
    stream = 1
    for _ in range(chance.randint(1, 12)):
        kind = chance.randrange(9)
        if kind < 4:
            message = prefixed(chance.randbytes(chance.choice((0, 3, 300, 20_000))))
            headers = block(x=chance.choice(("", "a" * 300, "b")))
            cut = chance.randrange(len(headers) + 1)
            made += [frame(HEADERS, 0, stream, headers[:cut]), frame(CONTINUATION, END_HEADERS, stream, headers[cut:])]
            made += [frame(DATA, 0, stream, message[:16_000]), frame(DATA, END_STREAM, stream, message[16_000:])]
            stream += 2
        elif kind == 4:
            made.append(frame(SETTINGS, 0, 0, setting(chance.randint(1, 6), chance.choice((0, 1, 20_000, 2**31 - 1)))))
        elif kind == 5:
            made.append(frame(WINDOW_UPDATE, 0, chance.choice((0, 1, stream)), number(chance.choice((1, 100, 2**20)))))
        elif kind == 6:
            made.append(frame(RST_STREAM, 0, max(1, stream - 2), number(8)))
        elif kind == 7:
            made.append(frame(PING, chance.randrange(2), 0, chance.choice((b"lastcall", bytes(8)))))
        else:
            made.append(frame(chance.randrange(11), chance.randrange(256), chance.choice((0, 1, stream)), bytes(8)))
    return made


def damaged(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 3))):
        if not made:  # a short frame was cut away
            break
        at = chance.randrange(len(made))
        if chance.random() < 0.7:
            made[at] ^= 1 << chance.randrange(8)
        else:
            del made[at : at + chance.randint(1, 9)]
    return bytes(made)


def for_a_while() -> Iterator[int]:
    end = time.monotonic() + FUZZ_S
    turn = 0
    while turn < 200 or time.monotonic() < end:
        yield turn
        turn += 1


def test_a_connection_ends_at_its_age_when_its_calls_have_ended() -> None:
    age = "grpc.max_connection_age_ms=60000"
    for grace, ends in (("", False), (",grpc.max_connection_age_grace_ms=10000", True)):
        peer = Peer(waits=True, arguments=age + grace)
        peer.send(GREETING + OPEN + frame(DATA, END_STREAM, 1, prefixed(b"a")))
        peer.wait(59)
        assert peer.codes == []
        peer.wait(5)
        assert peer.codes == [0, 0], "announced, and ended"
        peer.wait(20)
        assert peer.transport.is_open is not ends
        if not ends:
            peer.calls[0].answer(b"b")
            peer.clock.turn()
            assert not peer.transport.is_open
        peer.lose()


def test_a_silent_client_has_to_answer_pings_while_it_has_calls() -> None:
    arguments = "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=5000"
    peer = Peer(waits=True, arguments=arguments)
    peer.send(GREETING)
    peer.wait(100)
    assert not any(each.kind == PING for each in peer.frames)
    peer.send(OPEN + frame(DATA, END_STREAM, 1, prefixed(b"a")))
    peer.wait(31)
    (ping,) = (each for each in peer.frames if each.kind == PING)
    peer.send(frame(PING, ACK, 0, ping.payload))
    peer.wait(29)
    assert peer.transport.is_open
    peer.wait(8)
    assert not peer.transport.is_open
    peer.lose()
    for more, is_open in (("", True), (",grpc.keepalive_permit_without_calls=1", False)):
        peer = Peer(arguments=arguments + more)
        peer.send(GREETING)
        peer.wait(40)
        assert peer.transport.is_open is is_open


def test_the_arguments_of_channels_are_those_of_grpc() -> None:
    text = "grpc.max_receive_message_length=-1,grpc.keepalive_time_ms=2147483647,grpc.default_compression_level=1"
    made = read_channel_arguments(text + ", grpc.max_metadata_size=9000,grpc.max_connection_idle_ms=1500,")
    assert (made.receive_bytes, made.keepalive_s, made.compression) == (2**31 - 1, math.inf, b"gzip")
    assert (made.head_bytes, made.idle_s) == (9000, 1.5)
    assert {name for name, _ in read_channel_arguments("a=1,grpc.so_reuseport=x").without_effect} == {
        "a",
        "grpc.so_reuseport",
    }
    for wrong in (
        "none",
        "grpc.max_concurrent_streams=0",
        "grpc.default_compression_algorithm=9",
        "grpc.keepalive_time_ms=x",
    ):
        with pytest.raises(StartFailed, match="--grpc-channel-arguments: '" + wrong):
            read_channel_arguments(wrong)


def test_no_frames_cause_a_defect_or_leave_state_behind(capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(22)
    answered = ended = 0
    for turn in for_a_while():
        clock = Clock()
        streams = StreamedCalls(cast("Any", clock), {PREDICT.encode(): Echo})
        streamed = {PREDICT.encode(): streams} if turn % 2 else {}
        peer = Peer(waits=turn % 3 == 0, clock=clock, streamed=streamed)
        data = damaged(b"".join(conversation(chance)), chance)
        if turn % 20:
            data = GREETING + data
        while data and peer.transport.is_open:
            size = chance.choice((1, 9, 1000, len(data)))
            peer.send(data[:size])
            data = data[size:]
            if chance.random() < 0.1:
                peer.connection.pause_writing()
                peer.connection.resume_writing()
            if peer.waits and peer.calls and chance.random() < 0.5:
                call = peer.calls.pop()
                call.answer(bytes(100)) if chance.random() < 0.5 else call.fail(Code.INTERNAL, "é" * 3000)
            if chance.random() < 0.02:
                peer.connection.announce_end()
            if chance.random() < 0.02:
                peer.connection.stop()
        assert INTERNAL_ERROR not in peer.codes, capsys.readouterr().err
        decoder = Decoder()
        for each in peer.frames:
            if each.kind == HEADERS:
                assert decoder.decode(each.payload)
                answered += 1
        ended += bool(peer.codes)
        peer.wait(40)
        peer.lose()
        assert streams.num_open == 0
    assert answered > 100
    assert ended > 20
    assert capsys.readouterr().err == ""
