"""Streams in the three framings, built from their definitions."""

import struct
from functools import lru_cache

MAGIC = 0xCED7230A


def crc32c(data: bytes) -> int:
    """Return the checksum, computed byte by byte from the definition."""
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _bits((register ^ byte) & 255)
    return register ^ 0xFFFFFFFF


@lru_cache(256)
def _bits(register: int) -> int:
    for _ in range(8):
        register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def recordio_part(data: bytes, flag: int = 0, *, padded: bool = True) -> bytes:
    padding = b"\0" * (-len(data) % 4) if padded else b""
    return struct.pack("<II", MAGIC, flag << 29 | len(data)) + data + padding


def tfrecord(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def encode(record_format: str, records: list[bytes]) -> bytes:
    one = {"RecordIO": recordio_part, "TFRecord": tfrecord, "TextLine": lambda line: line + b"\n"}[record_format]
    return b"".join(map(one, records))


def flipped(stream: bytes, at: int) -> bytes:
    """Return the stream with one bit of its byte `at` flipped."""
    return stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :]
