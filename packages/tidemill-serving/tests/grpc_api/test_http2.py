"""gRPC's form of HTTP/2, spoken frame by frame to a real server."""

import contextlib
import gzip
import signal
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from frames_of_clients import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    RawClient,
    block,
    frame,
    number,
    prefixed,
    setting,
)
from tensorflow_serving.apis import predict_pb2

Client = Any  # of conftest.py
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5
MANY = 60_000


@pytest.fixture
def raw(server: Any) -> Iterator[Any]:
    """Connect to the server; the connections are closed after the test."""
    opened: list[RawClient] = []

    def connect(**options: Any) -> RawClient:
        opened.append(RawClient(server.grpc_port, **options))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
    assert server.process.poll() is None


@pytest.fixture
def predict(client: Client) -> bytes:
    """A message that is answered with 4.0."""
    return prefixed(client.request("half_plus", {"x": [2.0]}).SerializeToString())


def values(data: bytes) -> list[float]:
    assert data[0] == 0
    assert struct.unpack(">I", data[1:5]) == (len(data) - 5,)
    return list(predict_pb2.PredictResponse.FromString(data[5:]).outputs["y"].float_val)


def test_an_answer_has_headers_one_message_and_the_status(raw: Any, predict: bytes) -> None:
    client = raw()
    client.call(1, predict)
    fields, data = client.answer(1)
    assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert values(data) == [4.0]


def test_headers_may_come_in_pieces_with_padding_a_priority_and_trailers(raw: Any, predict: bytes) -> None:
    client = raw()
    headers = block()
    first = b"\x03" + b"\0\0\0\0\x10" + headers[:20] + b"\0\0\0"
    client.send(frame(HEADERS, PADDED | WITH_PRIORITY, 1, first))
    client.send(frame(CONTINUATION, 0, 1, headers[20:40]) + frame(CONTINUATION, END_HEADERS, 1, headers[40:]))
    client.send(frame(DATA, PADDED, 1, b"\x02" + predict[:7] + b"\0\0") + frame(DATA, 0, 1, predict[7:]))
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0\x01a\x01b"))
    assert values(client.answer(1)[1]) == [4.0]


def test_bytes_may_come_one_by_one(raw: Any, predict: bytes) -> None:
    client = raw(greet=False)
    call = frame(HEADERS, END_HEADERS, 1, block()) + frame(DATA, END_STREAM, 1, predict)
    for byte in PREFACE + frame(SETTINGS, 0, 0) + call:
        client.send(bytes((byte,)))
    assert values(client.answer(1)[1]) == [4.0]


def test_settings_and_pings_are_acknowledged_and_unknown_frames_ignored(raw: Any, predict: bytes) -> None:
    client = raw(settings=setting(0xFE03, 1))
    client.find(SETTINGS, flags=ACK)
    client.send(frame(0x55, 0xFF, 7, b"?") + frame(PRIORITY, 0, 3, b"\0\0\0\0\x10") + frame(PING, 0, 0, b"12345678"))
    assert client.find(PING, flags=ACK).payload == b"12345678"
    client.call(5, predict)
    assert values(client.answer(5)[1]) == [4.0]


def test_calls_of_one_connection_are_answered_in_any_number(raw: Any, predict: bytes) -> None:
    client = raw()
    for stream in range(1, 401, 2):
        client.call(stream, predict)
    ended: set[int] = set()
    while len(ended) < 200:
        got = client.read()
        if got.kind == HEADERS and got.flags & END_STREAM:
            ended.add(got.stream)
    assert ended == set(range(1, 401, 2))


def test_an_answer_never_exceeds_the_windows_of_the_client(raw: Any, client: Client) -> None:
    message = prefixed(client.request("half_plus", {"x": [2.0] * MANY}).SerializeToString())
    peer = raw(settings=setting(INITIAL_WINDOW_SIZE, 1000))
    peer.call(1, message)
    data = b""
    granted, connection = 1000, 65_535
    while len(data) < granted:
        data += peer.find(DATA, 1).payload
    assert len(data) == granted
    peer.send(frame(PING, 0, 0, b"12345678"))
    while (got := peer.read()).kind != PING:
        assert got.kind != DATA, "more than the window allows"
    peer.send(frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 500_000) + setting(MAX_FRAME_SIZE, 30_000)))
    while len(data) < connection:
        data += peer.find(DATA, 1).payload
    assert len(data) == connection
    peer.send(frame(WINDOW_UPDATE, 0, 0, number(500_000)))
    fields, rest = peer.answer(1)
    assert fields == {"grpc-status": "0"}
    assert values(data + rest) == [4.0] * MANY


def test_a_message_above_the_servers_windows_is_let_in_by_updates(raw: Any, client: Client) -> None:
    message = prefixed(client.request("half_plus", {"x": [2.0] * 10 * MANY}).SerializeToString())
    assert len(message) > 2 * 2**20
    peer = raw(settings=setting(INITIAL_WINDOW_SIZE, 2**30))
    peer.send(frame(WINDOW_UPDATE, 0, 0, number(2**30)) + frame(HEADERS, END_HEADERS, 1, block()))
    room, sent = 2**20, 0
    while sent < len(message):
        part = message[sent : sent + min(room, 16_384)]
        sent, room = sent + len(part), room - len(part)
        peer.send(frame(DATA, END_STREAM if sent == len(message) else 0, 1, part))
        while room < 16_384:
            room += int.from_bytes(peer.find(WINDOW_UPDATE, 1).payload, "big")
    assert values(peer.answer(1)[1]) == [4.0] * 10 * MANY


@pytest.mark.parametrize("name", ["Gzip", "Deflate"])
def test_compressed_messages_are_read(client: Client, name: str) -> None:
    request = client.request("half_plus", {"x": [2.0] * 5000})
    answered = client.prediction.Predict(request, timeout=60, compression=getattr(grpc.Compression, name))
    assert list(answered.outputs["y"].float_val) == [4.0] * 5000


@pytest.mark.parametrize(
    ("headers", "message", "status", "text"),
    [
        ({}, b"", 12, "there came none"),
        ({}, prefixed(b"") * 2, 12, "there came more"),
        ({}, prefixed(b"abc")[:-1], 3, "the message ends after 2 of its 3 bytes"),
        ({}, prefixed(b"\xff"), 3, "the bytes are no PredictRequest"),
        ({}, prefixed(b"", flag=1), 3, "grpc-encoding names no compression"),
        ({"grpc_encoding": "snappy"}, prefixed(b"abc", flag=1), 12, "grpc-encoding 'snappy' is unknown"),
        ({"grpc_encoding": "gzip"}, prefixed(b"abc", flag=1), 3, "damaged"),
        ({"grpc_encoding": "gzip"}, prefixed(gzip.compress(b"a")[:-4], flag=1), 3, "damaged"),
        ({"grpc_encoding": "deflate"}, prefixed(zlib.compress(b"a") + b"b", flag=1), 3, "damaged"),
        ({"grpc_encoding": "gzip"}, prefixed(gzip.compress(bytes(101_000_000), 1), flag=1), 8, "larger than max"),
        ({}, struct.pack(">BI", 0, 2**31) + b"abc", 8, f"Received message larger than max ({2**31} vs. 100000000)"),
        ({"grpc_timeout": "soon"}, prefixed(b""), 3, "grpc-timeout b'soon' is no time"),
    ],
)
def test_a_call_that_is_not_in_order_gets_a_status_with_the_reason(
    raw: Any, headers: dict[str, str], message: bytes, status: int, text: str
) -> None:
    client = raw()
    client.call(1, message, block(**headers))
    fields, data = client.answer(1)
    assert (fields["grpc-status"], data) == (str(status), b"")
    assert text in fields["grpc-message"].replace("%25", "%")
    assert fields["grpc-accept-encoding"] == "identity, deflate, gzip"


def test_a_call_whose_deadline_is_over_is_not_begun(raw: Any) -> None:
    client = raw()
    client.call(1, prefixed(b""), block("/tensorflow.serving.ModelService/GetModelStatus", grpc_timeout="1n"))
    assert client.answer(1)[0]["grpc-status"] == str(grpc.StatusCode.DEADLINE_EXCEEDED.value[0])


def test_a_request_that_is_not_grpc_is_unsupported(raw: Any) -> None:
    client = raw()
    client.call(1, b"", block(**{"content-type": "application/json"}))
    assert client.answer(1)[0] == {":status": "415"}
    client.call(3, b"", block(**{":method": "GET"}))
    assert client.answer(3)[0] == {":status": "415"}


def test_a_call_that_the_client_resets_is_dropped_and_the_others_answered(raw: Any, predict: bytes) -> None:
    client = raw()
    client.call(1, predict)
    client.send(frame(RST_STREAM, 0, 1, number(8)))
    client.send(frame(HEADERS, END_HEADERS, 3, block()) + frame(RST_STREAM, 0, 3, number(8)))
    client.send(frame(DATA, END_STREAM, 3, predict))  # was on its way
    client.call(5, predict)
    assert values(client.answer(5)[1]) == [4.0]


def test_calls_above_the_limit_of_a_connection_are_refused_and_can_be_sent_again(raw: Any, predict: bytes) -> None:
    client = raw()
    for stream in range(1, 2003, 2):
        client.send(frame(HEADERS, END_HEADERS, stream, block()))
    assert client.find(RST_STREAM, 2001).payload == number(REFUSED_STREAM)
    client.send(frame(DATA, END_STREAM, 1, predict))
    assert values(client.answer(1)[1]) == [4.0]
    client.call(2003, predict)
    assert values(client.answer(2003)[1]) == [4.0]


def test_data_of_a_refused_call_is_dropped(raw: Any, predict: bytes) -> None:
    client = raw()
    client.send(frame(HEADERS, END_HEADERS, 1, block()) + frame(DATA, 0, 1, struct.pack(">BI", 0, 2**31)))
    client.call(3, predict)
    assert values(client.answer(3)[1]) == [4.0]


OPEN = frame(HEADERS, END_HEADERS, 1, block())
HUFFMAN_FAULT = b"\x40\x01a\x81\x00"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(DATA, 0, 1, b"a"), PROTOCOL_ERROR),
        (frame(DATA, 0, 0, b"a"), PROTOCOL_ERROR),
        (OPEN + frame(DATA, PADDED, 1, b"\x05abc"), PROTOCOL_ERROR),
        (OPEN + frame(DATA, 0, 1, bytes(16_385)), FRAME_SIZE_ERROR),
        (frame(HEADERS, END_HEADERS, 2, block()), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 1, HUFFMAN_FAULT), COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), COMPRESSION_ERROR),
        (frame(HEADERS, WITH_PRIORITY, 1, b"\0"), FRAME_SIZE_ERROR),
        (frame(HEADERS, 0, 1, block()) + frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1, block()) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1, b""), PROTOCOL_ERROR),
        (OPEN + OPEN, PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
        (frame(RST_STREAM, 0, 1, bytes(4)), PROTOCOL_ERROR),
        (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
        (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 2**31)), FLOW_CONTROL_ERROR),
        (frame(SETTINGS, 0, 0, setting(MAX_FRAME_SIZE, 100)), PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, END_HEADERS, 1, number(2) + block()), PROTOCOL_ERROR),
        (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
        (frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
        (frame(GOAWAY, 0, 0, bytes(7)), PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, number(0)), PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, number(2**31 - 1)), FLOW_CONTROL_ERROR),
        (OPEN + frame(WINDOW_UPDATE, 0, 1, number(2**31 - 1)), FLOW_CONTROL_ERROR),
        (frame(WINDOW_UPDATE, 0, 1, number(1)), PROTOCOL_ERROR),
    ],
)
def test_a_protocol_violation_ends_the_connection_with_its_error(raw: Any, data: bytes, code: int) -> None:
    client = raw()
    with contextlib.suppress(OSError):  # the server may end the connection before it has read everything
        client.send(data)
    assert client.end() == code


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", PREFACE[:-1] + b"x", PREFACE + frame(PING, 0, 0, bytes(8))]
)
def test_a_connection_without_the_http2_preface_is_closed(raw: Any, data: bytes) -> None:
    client = raw(greet=False)
    client.send(data)
    assert client.end() == PROTOCOL_ERROR


def resets() -> Iterator[bytes]:
    for stream in range(1, 20_001, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, block()) + frame(RST_STREAM, 0, stream, number(8))


def bomb() -> bytes:
    """4,000 references to one header of 4,000 bytes."""
    entry = b"\x40\x01a\x7f" + bytes((4000 - 127 & 0x7F | 0x80, 4000 - 127 >> 7)) + b"v" * 4000
    return frame(HEADERS, END_HEADERS, 1, entry + b"\xbe" * 4000)


FLOODS = {
    "pings": lambda: [frame(PING, 0, 0, bytes(8)) * 100] * 200,
    "settings": lambda: [frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 9)) * 100] * 200,
    "empty data": lambda: [OPEN, *[frame(DATA, 0, 1) * 100] * 200],
    "data without a call": lambda: [OPEN, frame(RST_STREAM, 0, 1, number(8)), *[frame(DATA, 0, 1) * 100] * 200],
    "priorities": lambda: [frame(PRIORITY, 0, 3, bytes(5)) * 100] * 200,
    "window updates": lambda: [frame(WINDOW_UPDATE, 0, 0, number(1)) * 100] * 200,
    "unknown frames": lambda: [frame(0x77, 0, 0) * 100] * 200,
    "empty continuations": lambda: [frame(HEADERS, 0, 1, block()), *[frame(CONTINUATION, 0, 1) * 100] * 200],
    "endless headers": lambda: [
        frame(HEADERS, 0, 1, block()),
        *[frame(CONTINUATION, 0, 1, b"\0\x01a\x01b" * 500)] * 99,
    ],
    "resets": resets,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_without_calls_ends_the_connection(raw: Any, name: str, predict: bytes) -> None:
    client, other = raw(), raw()
    with contextlib.suppress(OSError):  # ended meanwhile
        for data in FLOODS[name]():
            client.send(data)
    assert client.end() == ENHANCE_YOUR_CALM
    other.call(1, predict)
    assert values(other.answer(1)[1]) == [4.0]


def test_headers_that_become_too_large_when_they_are_decoded_are_refused(raw: Any) -> None:
    client = raw()
    client.send(bomb())
    assert client.end() == COMPRESSION_ERROR


def test_a_client_that_sends_goaway_gets_its_answers(raw: Any, predict: bytes) -> None:
    client = raw()
    client.call(1, predict)
    client.send(frame(GOAWAY, 0, 0, bytes(8)))
    assert values(client.answer(1)[1]) == [4.0]
    assert client.read() is None


def test_sigterm_sends_goaway_and_later_calls_go_to_another_server(start: Any, models: Path) -> None:
    server = start(models / "half_plus", arguments=("--grpc-port", "0"))
    client = RawClient(server.grpc_port)
    client.call(1, prefixed(b""))
    assert client.answer(1)[0]["grpc-status"] == "3"
    server.process.send_signal(signal.SIGTERM)
    assert client.find(GOAWAY).payload == number(2**31 - 1) + number(0)
    ping = client.find(PING)
    client.call(3, prefixed(b""))  # on its way when the announcement came
    client.send(frame(PING, ACK, 0, ping.payload))
    client.call(5, prefixed(b""))
    assert client.answer(3)[0]["grpc-status"] == "3"
    assert client.find(GOAWAY).payload == number(3) + number(0)
    assert client.read() is None
    client.close()
    assert server.wait() == 0
