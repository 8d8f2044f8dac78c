"""Compute CRC-32C with NumPy for the Python reader: the checksum of each byte, combined pairwise.

The checksum register is linear over GF(2): the register after "left, right" is that of left, moved over len(right)
zero bytes, xor that of right. So a vector of n registers becomes n/2, n/4, ... with one table per level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # bit-reversed


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`.

    Args:
        data: Bytes of any length.

    Returns:
        From 0 to 2**32 - 1, not masked.
    """
    if len(data) < 4:
        register = 0xFFFFFFFF
        for byte in data:
            register = (register >> 8) ^ int(_byte_table()[(register ^ byte) & 255])
        return register ^ 0xFFFFFFFF
    size = 1 << (len(data) - 1).bit_length()
    padded = np.zeros(size, np.uint8)  # leading zero bytes do not change a register of zero
    padded[size - len(data) :] = np.frombuffer(data, np.uint8)
    padded[size - len(data) : size - len(data) + 4] ^= 0xFF  # the register's start value
    registers = _byte_table()[padded]
    level = 0
    while len(registers) > 1:
        registers = _move(_shift_table(level), registers[0::2]) ^ registers[1::2]
        level += 1
    return int(registers[0]) ^ 0xFFFFFFFF


def mask_crc32c(crc: int) -> int:
    """Return the masked checksum, the form that TFRecord stores.

    Args:
        crc: From 0 to 2**32 - 1.

    Returns:
        From 0 to 2**32 - 1.
    """
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _byte_table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


@lru_cache(maxsize=64)
def _shift_table(level: int) -> Any:
    """Return the table that moves a register over 2**level zero bytes: one row per register byte."""
    parts = np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if level == 0:
        return (parts >> np.uint32(8)) ^ _byte_table()[parts & np.uint32(255)]
    below = _shift_table(level - 1)
    return _move(below, _move(below, parts))


def _move(table: Any, registers: Any) -> Any:
    moved = table[0][registers & np.uint32(255)]
    for part in range(1, 4):
        moved = moved ^ table[part][(registers >> np.uint32(8 * part)) & np.uint32(255)]
    return moved
