"""Blocks of objects on the disk: one file without a name, with room for a fixed number of blocks."""

import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

BLOCK_BYTES = 1 << 20
_MIN_BLOCKS = 64
Block = tuple[int, int]
"""Number of an object in its channel, and number of a block in the object."""


def capacity_of(directory: Path, size_bytes: int, *, objects: int, caches: int, max_bytes: int) -> int:
    """Return the number of blocks for a cache.

    It is enough for the whole channel, but for at most ``max_bytes``, and for an equal share of half of the free space;
    at least for 64 blocks.

    Args:
        size_bytes: Size of the channel.
        objects: Number of its objects, each of which may end in a block that is not full.
        caches: Number of caches of the job in this directory.
        max_bytes: Maximum size of the cache.
    """
    wanted = size_bytes // BLOCK_BYTES + objects
    free = shutil.disk_usage(directory).free // 2 // caches // BLOCK_BYTES
    return max(_MIN_BLOCKS, min(wanted, free, max_bytes // BLOCK_BYTES))


class BlockCache:
    """Keeps the blocks that were used last. May be used by several threads.

    Args:
        directory: Directory of the file, which the kernel removes when this process ends, however it ends.
        capacity: Maximum number of blocks.

    Attributes:
        capacity: Maximum number of blocks.
    """

    def __init__(self, directory: Path, capacity: int) -> None:
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed with the object
        self._fd = self._file.fileno()
        self._lock = threading.Lock()
        self._slots: OrderedDict[Block, int] = OrderedDict()
        self.capacity, self._taken = capacity, 0
        self._unused: list[int] = []

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def __contains__(self, block: Block) -> bool:
        with self._lock:
            return block in self._slots

    def read(self, block: Block, offset: int, size_bytes: int) -> bytes | None:
        """Return bytes of a block; None if the cache does not have the block."""
        with self._lock:  # also during the read, or another block may take the slot
            slot = self._slots.get(block)
            if slot is None:
                return None
            self._slots.move_to_end(block)
            return os.pread(self._fd, size_bytes, slot * BLOCK_BYTES + offset)

    def write(self, block: Block, data: bytes) -> None:
        """Keep a block, in place of the one that was not used for the longest time if the cache is full.

        Nothing is kept if the disk is full: the block is then fetched again.
        """
        with self._lock:
            if block in self._slots:
                return
            slot = self._take_slot()
        try:
            written = os.pwrite(self._fd, data, slot * BLOCK_BYTES)
        except OSError:
            written = 0
        with self._lock:
            if written == len(data) and block not in self._slots:
                self._slots[block] = slot
            else:
                self._unused.append(slot)

    def _take_slot(self) -> int:
        if self._unused:
            return self._unused.pop()
        if self._taken < self.capacity or not self._slots:  # without slots, all blocks are being written
            self._taken += 1
            return self._taken - 1
        return self._slots.popitem(last=False)[1]
