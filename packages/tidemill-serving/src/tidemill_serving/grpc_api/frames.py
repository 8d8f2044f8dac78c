"""HTTP/2 frames (RFC 9113), and the header blocks of answers (RFC 7541).

Answers do not use HPACK's dynamic table: their header blocks are constants, and clients keep no state for them.
"""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
FRAME_BYTES = 16_384
"""Maximum payload of a frame in bytes, until the peer's settings allow more. The server's own settings never do."""
DEFAULT_WINDOW = 65_535
MAX_WINDOW = MAX_STREAM = 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY_FLAG = 0x4, 0x8, 0x20
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(3, 7)
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11

_HEAD = struct.Struct(">BHBBL")
_SETTING = struct.Struct(">HL")


class Http2Error(Exception):
    """Raised if a peer violates the protocol or a limit of this server. It ends the connection."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def read_head(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Return length, kind, flags and stream of the frame at a position. `data` must have `HEAD_BYTES` bytes there.

    Args:
        data: Bytes that hold the head.
        position: Offset of the head.

    Returns:
        Payload bytes, type, flags, and the stream without its reserved bit.
    """
    high, low, kind, flags, stream = _HEAD.unpack_from(data, position)
    return high << 16 | low, kind, flags, stream & MAX_STREAM


def frame_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the head of a frame with a payload of `size` bytes.

    Args:
        size: Payload bytes, below 2**24.
        kind: Type of the frame.
        stream: 0 for the connection.

    Returns:
        Nine bytes.
    """
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame.

    Args:
        kind: Type of the frame.
        stream: 0 for the connection.
        payload: At most 2**24 - 1 bytes.

    Returns:
        Head and payload.
    """
    return frame_head(len(payload), kind, flags, stream) + payload


def number_frame(kind: int, stream: int, number: int) -> bytes:
    """Return a RST_STREAM frame with an error code, or a WINDOW_UPDATE frame with an increment.

    Args:
        kind: RST_STREAM or WINDOW_UPDATE.
        stream: 0 for the window of the connection.
        number: Four bytes: the code or increment.
    """
    return frame(kind, 0, stream, number.to_bytes(4, "big"))


def goaway(last_stream: int, code: int) -> bytes:
    """Return a GOAWAY frame. The server does not process streams above `last_stream`.

    Args:
        last_stream: Highest stream that was or will be processed.
        code: Error code of HTTP/2; 0 for an orderly end.
    """
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big"))


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame.

    Args:
        values: By identifier, as in RFC 9113.
    """
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the key-value pairs of a SETTINGS frame.

    Raises:
        Http2Error: The payload is not a whole number of pairs.
    """
    if len(payload) % _SETTING.size:
        raise Http2Error(FRAME_SIZE_ERROR)
    return list(_SETTING.iter_unpack(payload))


def unpadded(payload: bytes) -> bytes:
    """Return the payload of a padded frame without its padding.

    Raises:
        Http2Error: The padding is longer than the payload.
    """
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR)
    return payload[1 : len(payload) - payload[0]]


def with_length(text: bytes) -> bytes:
    """Return an HPACK string without Huffman coding.

    Args:
        text: The string, of any length.

    Returns:
        The length in HPACK's 7-bit prefix, then the text.
    """
    if len(text) < 0x7F:
        return bytes((len(text),)) + text
    left = len(text) - 0x7F
    size = bytearray((0x7F,))
    while left >= 0x80:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return bytes(size) + text


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + with_length(name) + with_length(value)


NO_TABLE = b"\x20"
"""Start of a connection's first block: it sets the encoder's table size to 0, whatever the peer's settings allow."""
_STATUS_200 = b"\x88"
_STATUS = b"\x08"  # followed by the value
_CONTENT_TYPE = b"\x0f\x10" + with_length(b"application/grpc")
ANSWER_BLOCK = _STATUS_200 + _CONTENT_TYPE
"""Header block that precedes the message of an answer."""
OK_TRAILERS = _literal(b"grpc-status", b"0")
COMPRESSED_BLOCKS = {name: ANSWER_BLOCK + _literal(b"grpc-encoding", name) for name in (b"gzip", b"deflate")}
"""Header blocks that precede compressed messages, by the compression."""
UNSUPPORTED_BLOCK = _STATUS + with_length(b"415")
"""Header block that answers a request of another protocol than gRPC."""
_ACCEPTED = _literal(b"grpc-accept-encoding", b"identity, deflate, gzip")


def failure_block(status: int, message: bytes) -> bytes:
    """Return one block with the headers and trailers of a failed call.

    Args:
        status: gRPC status code.
        message: UTF-8 text.
    """
    return ANSWER_BLOCK + failure_trailers(status, message) + _ACCEPTED


def failure_trailers(status: int, message: bytes) -> bytes:
    """Return the trailers of a call that failed after its headers were sent.

    Args:
        status: gRPC status code.
        message: UTF-8 text.
    """
    text = b"".join(_PERCENT[byte] for byte in message)
    return _literal(b"grpc-status", b"%d" % status) + _literal(b"grpc-message", text)


_PERCENT = [bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in range(256)]
