"""A client of HTTP/2 that sends any frames, also wrong ones, and reads those of the server."""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = (
    *(1, 3, 6),
    *(7, 9, 11),
)
PREDICT = "/tensorflow.serving.PredictionService/Predict"
DEADLINE_S = 60


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(key: int, value: int) -> bytes:
    return struct.pack(">HI", key, value)


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def block(path: str = PREDICT, **extra: str) -> bytes:
    """The headers of a call, which leave the table of headers as it is."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "te": "trailers",
        "content-type": "application/grpc",
        **{name.replace("_", "-"): value for name, value in extra.items()},
    }
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(list(fields.items()))


def prefixed(message: bytes, *, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def split(data: bytes) -> Iterator[Frame]:
    """The frames of what a server sent."""
    while data:
        length, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        yield Frame(kind, flags, int.from_bytes(data[5:9], "big"), data[9 : 9 + length])
        data = data[9 + length :]


class RawClient:
    """A connection on which the greeting was exchanged."""

    def __init__(
        self, port: int, *, settings: bytes = b"", greet: bool = True, sock: socket.socket | None = None
    ) -> None:
        self.socket = sock or socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(DEADLINE_S)
        self.file = self.socket.makefile("rb")
        self.decoder = Decoder()
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, stream: int, message: bytes, headers: bytes | None = None, *, size: int = 16_000) -> None:
        """Send a whole call, with as many frames as its message needs."""
        self.send(frame(HEADERS, END_HEADERS, stream, block() if headers is None else headers))
        for begin in range(0, max(len(message), 1), size):
            flags = END_STREAM if begin + size >= len(message) else 0
            self.send(frame(DATA, flags, stream, message[begin : begin + size]))

    def read(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        try:
            head = self.file.read(9)
            if len(head) < 9:
                return None
            length = int.from_bytes(head[:3], "big")
            return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), self.file.read(length))
        except ConnectionResetError:
            return None  # the server closed while more was coming in

    def find(self, kind: int, stream: int = 0, *, flags: int = 0) -> Frame:
        """The next frame of a kind."""
        while (got := self.read()) is not None:
            if (got.kind, got.stream) == (kind, stream) and got.flags & flags == flags:
                return got
        raise AssertionError(f"no frame {kind} on stream {stream}")

    def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """Headers and trailers together, and the data."""
        fields: dict[str, str] = {}
        data = b""
        while (got := self.read()) is not None:
            if got.stream == stream and got.kind == DATA:
                data += got.payload
            elif got.kind == HEADERS:
                decoded = dict(self.decoder.decode(got.payload))
                if got.stream == stream:
                    fields |= decoded
                    if got.flags & END_STREAM:
                        return fields, data
        raise AssertionError(f"no whole answer on stream {stream}: {fields}, {len(data)} bytes")

    def end(self) -> int:
        """The error code with which the server ends the connection."""
        code = int.from_bytes(self.find(GOAWAY).payload[4:8], "big")
        while self.read() is not None:
            pass
        return code

    def close(self) -> None:
        self.file.close()
        self.socket.close()
