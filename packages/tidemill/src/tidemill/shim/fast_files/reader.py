"""Read ranges of remote objects: fetch the missing blocks, and read ahead for a reader that reads in order."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import closing
from dataclasses import dataclass, replace

from tidemill.instance.spec import RemoteObject
from tidemill.instance.transfers import RemoteBody, Transfers
from tidemill.shim.fast_files.cache import BLOCK_BYTES, BlockCache

MAX_WAITING = 200
"""Number of reads that may wait for a store while others go on. libfuse and the kernel allow 10 and 12 by default."""

_AT_ONCE = 8
_MAX_AHEAD = 32
_RUN = 8
"""Maximum number of blocks of one GET."""
_LOOK_S = 0.2
_FAULT_S = 2.0
"""Time for which an object counts as unreadable after a fault. The kernel repeats a failed read with a smaller size."""


@dataclass(frozen=True, slots=True)
class _BlockRun:
    """Adjacent blocks of an object, which are fetched with one GET.

    Attributes:
        number: Number of the object in its channel.
        end: The block after the last one.
        position: State of the open file for which the blocks were requested.
    """

    number: int
    entry: RemoteObject
    first: int
    end: int
    position: "FilePosition"


class FilePosition:
    """Where an open file is read, to recognize reading in order.

    Attributes:
        block: The block that was read last; -1 before the first.
        fetched_to: The first block that was not requested ahead.
        ahead: Number of blocks to read ahead; it doubles while the file is read in order.
    """

    def __init__(self) -> None:
        self.block = -1
        self.fetched_to = 0
        self.ahead = 0


class BlockReader:
    """Reads the objects of a channel. May be used by several threads.

    Args:
        transfers: Connections to the stores.
        cache: Keeps the fetched blocks.
    """

    def __init__(self, transfers: Transfers, cache: BlockCache) -> None:
        self._transfers = transfers
        self._cache = cache
        self._lock = threading.Lock()
        self._coming: dict[tuple[int, int], Future[bytes]] = {}
        self._faults: dict[int, tuple[float, BaseException]] = {}  # by object, with the time
        self._urgent: deque[_BlockRun] = deque()
        self._ahead: deque[_BlockRun] = deque()
        self._opened: set[FilePosition] = set()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch")

    def open(self) -> FilePosition:
        """Return the state of a file that is opened now."""
        position = FilePosition()
        with self._lock:
            self._opened.add(position)
        return position

    def close(self, position: FilePosition) -> None:
        """Give up what was requested ahead for a file, except requests that are already sent.

        Args:
            position: State of the file, which is closed now.
        """
        with self._lock:
            self._opened.discard(position)
            # If another file waits for a block, its run is urgent by now.
            for run in [run for run in self._ahead if run.position is position]:
                self._ahead.remove(run)
                for block in range(run.first, run.end):
                    del self._coming[(run.number, block)]

    def read(
        self,
        number: int,
        entry: RemoteObject,
        position: FilePosition,
        offset: int,
        size_bytes: int,
        *,
        check: Callable[[], None],
    ) -> bytes:
        """Return bytes of an object; fewer at its end.

        Args:
            number: Number of the object in its channel.
            position: State of the open file, from `open`.
            offset: Offset of the first byte.
            size_bytes: Maximum number of bytes.
            check: Called several times a second during waits; an exception ends the wait.

        Raises:
            RemoteFault: The object cannot be read, or has changed.
        """
        end = min(offset + size_bytes, entry.size_bytes)
        parts = []
        while offset < end:
            block, start = divmod(offset, BLOCK_BYTES)
            length = min(end - offset, BLOCK_BYTES - start)
            parts.append(self._read_block(number, entry, position, block, start, length, check))
            offset += length
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_unreadable(self, number: int) -> bool:
        """Return whether an object had a fault, and nothing that was requested later has come.

        Args:
            number: Number of the object in its channel.
        """
        return number in self._faults

    def _read_block(
        self,
        number: int,
        entry: RemoteObject,
        position: FilePosition,
        block: int,
        start: int,
        length: int,
        check: Callable[[], None],
    ) -> bytes:
        wanted = self._ahead_of(position, block, -(-entry.size_bytes // BLOCK_BYTES))
        while True:
            found = self._cache.read((number, block), start, length)
            if found is not None:
                self._request(number, entry, position, wanted)
                return found
            self._raise_recent_fault(number)
            # Ask for the block itself first, in one request with those behind it.
            coming = self._request(number, entry, position, range(block, max(block + 1, wanted.stop)), urgent=True)
            if coming is not None:  # else it has come since the look into the cache
                return _awaited(coming, check)[start : start + length]

    def _raise_recent_fault(self, number: int) -> None:
        at_s, fault = self._faults.get(number, (0.0, None))
        if fault is not None and time.monotonic() - at_s < _FAULT_S:
            raise fault.with_traceback(None)  # or each reader would lengthen the traceback

    def _ahead_of(self, position: FilePosition, block: int, blocks: int) -> range:
        """Return the blocks to request ahead, now that ``block`` is read."""
        with self._lock:
            if block == position.block:
                return range(0)
            in_order = block == position.block + 1
            position.block = block
            if not in_order:
                position.ahead, position.fetched_to = 0, block + 1
                return range(0)
            if block == 0:  # perhaps only the head of the file is wanted
                position.fetched_to = 1
                return range(0)
            # With more, blocks would be replaced in the cache before they are read.
            room = self._cache.capacity // 2 // max(1, len(self._opened))
            position.ahead = min(max(2, position.ahead * 2), _MAX_AHEAD, room)
            first, end = max(position.fetched_to, block + 1), min(block + 1 + position.ahead, blocks)
            if end - first < position.ahead // 2 and end < blocks:  # ask rarely, and then for much
                return range(0)
            position.fetched_to = max(first, end)
            return range(first, end)

    def _request(
        self, number: int, entry: RemoteObject, position: FilePosition, blocks: range, *, urgent: bool = False
    ) -> "Future[bytes] | None":
        """Request the missing blocks of ``blocks``; return the future of the first one, None if it is not missing.

        Args:
            number: Number of the object in its channel.
            position: State of the open file that reads.
            urgent: Whether somebody waits for the first block. It is then fetched before all that is read ahead.
        """
        first = (number, blocks.start)
        with self._lock:
            if urgent and first in self._coming:
                self._hurry(*first)
            runs = self._missing(number, entry, position, blocks)
            for run in runs:
                (self._urgent if urgent and run.first == blocks.start else self._ahead).append(run)
            coming = self._coming.get(first)
        for _ in runs:
            self._pool.submit(self._fetch_next)
        return coming

    def _missing(self, number: int, entry: RemoteObject, position: FilePosition, blocks: range) -> list[_BlockRun]:
        """Return the blocks that are neither cached nor requested, which count as requested from now on."""
        runs: list[_BlockRun] = []
        for block in blocks:
            key = (number, block)
            if key in self._coming or key in self._cache:
                continue
            self._coming[key] = Future()
            if runs and runs[-1].end == block and block - runs[-1].first < _RUN:
                runs[-1] = replace(runs[-1], end=block + 1)
            else:
                runs.append(_BlockRun(number, entry, block, block + 1, position))
        return runs

    def _hurry(self, number: int, block: int) -> None:
        """If a block still waits to be read ahead, make its request urgent."""
        for run in self._ahead:
            if run.number == number and run.first <= block < run.end:
                self._ahead.remove(run)
                self._urgent.append(run)
                return

    def _fetch_next(self) -> None:
        """Fetch the next run. There is one call for each run that was requested, also if the run was given up."""
        with self._lock:
            waiting = self._urgent or self._ahead
            if not waiting:
                return
            run = waiting.popleft()
        self._fetch(run.number, run.entry, run.first, run.end)

    def _fetch(self, number: int, entry: RemoteObject, first: int, end: int) -> None:
        began_s, block = time.monotonic(), first
        try:
            with closing(self._received(entry, first, end)) as blocks:
                for data in blocks:
                    self._came(number, block, data, began_s)
                    block += 1
        except BaseException as error:  # noqa: BLE001 - it must reach those who wait, whatever it is
            # The traceback would keep the bytes that have come and the connection for as long as the fault is known.
            error.__cause__ = error.__context__ = error.__traceback__ = None
            self._faults[number] = (time.monotonic(), error)
            for missing in range(block, end):
                self._take(number, missing).set_exception(error)

    def _received(self, entry: RemoteObject, first: int, end: int) -> Generator[bytes]:
        """Yield the blocks from ``first`` to ``end`` as they come."""
        end_byte, data = min(end * BLOCK_BYTES, entry.size_bytes), bytearray()
        body = RemoteBody(entry, self._transfers).pieces(BLOCK_BYTES, start=first * BLOCK_BYTES, end=end_byte)
        with closing(body):
            for piece in body:
                data += piece
                while len(data) >= BLOCK_BYTES:
                    yield bytes(memoryview(data)[:BLOCK_BYTES])
                    del data[:BLOCK_BYTES]
        if data:
            yield bytes(data)

    def _came(self, number: int, block: int, data: bytes, began_s: float) -> None:
        at_s, _ = self._faults.get(number, (began_s, None))
        if began_s > at_s:
            self._faults.pop(number, None)
        self._cache.write((number, block), data)
        self._take(number, block).set_result(data)

    def _take(self, number: int, block: int) -> "Future[bytes]":
        with self._lock:
            return self._coming.pop((number, block))


def _awaited(coming: "Future[bytes]", check: Callable[[], None]) -> bytes:
    """Wait for a block; call ``check`` several times a second."""
    while True:
        try:
            return coming.result(_LOOK_S)
        except NotYet:
            if coming.done():  # the fault itself is a TimeoutError
                raise
            check()
