"""Read remote objects ahead of their turn, so that the feeder does not wait for the store's answer at each object."""

import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing

from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import Entry, RemoteObject
from tidemill.instance.transfers import RemoteBody, RemoteFault, Transfers, TransfersClosed
from tidemill.shim.feeder.faults import ObjectFault
from tidemill.shim.feeder.pipe_writer import Cancellation

_OBJECTS = 8
_PIECE_BYTES = 1 << 18
_BUFFER_BYTES = 1 << 21  # of each object
_LOOK_S = 0.1


class Prefetched:
    """One object that a separate thread reads ahead, up to 2 MiB.

    Args:
        body: Content of the object.
        cancellation: Ends the waits in `read`.
    """

    def __init__(self, body: RemoteBody, cancellation: Cancellation) -> None:
        self._body = body
        self._cancellation = cancellation
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._ended = self._dropped = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fetch, name="read ahead", daemon=True)
        self._thread.start()

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most ``size_bytes``; empty at the end.

        Raises:
            ObjectFault: The object cannot be read completely.
            Cancelled: The job is over.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: self._pieces or self._ended, timeout=_LOOK_S):
                self._cancellation.wait(0)
            if not self._pieces:
                return self._end()
            piece = self._pieces.popleft()
            if len(piece) > size_bytes:
                self._pieces.appendleft(piece[size_bytes:])
                piece = piece[:size_bytes]
            self._buffered_bytes -= len(piece)
            self._changed.notify()
            return piece

    def drop(self) -> None:
        """End the thread. Its transfers must be closed before."""
        with self._changed:
            self._dropped = True
            self._changed.notify()
        self._thread.join()

    def _end(self) -> bytes:
        if isinstance(self._error, RemoteFault):
            raise ObjectFault(str(self._error)) from self._error
        if self._error:
            raise self._error
        return b""

    def _hand_over(self, piece: bytes) -> bool:
        """Buffer a piece and wait until there is room for another; return False if no more are wanted."""
        with self._changed:
            self._pieces.append(piece)
            self._buffered_bytes += len(piece)
            self._changed.notify()
            self._changed.wait_for(lambda: self._dropped or self._buffered_bytes < _BUFFER_BYTES)
            return not self._dropped

    def _fetch(self) -> None:
        error: Exception | None = None
        try:
            with closing(self._body.pieces(_PIECE_BYTES)) as pieces:
                all(map(self._hand_over, pieces))  # until no more are wanted
        except TransfersClosed:
            return
        except Exception as fault:  # noqa: BLE001 - raised by the next read
            error = fault
        finally:
            with self._changed:
                self._error, self._ended = error, True
                self._changed.notify()


def prefetch(
    entries: Iterable[Entry], stores: RemoteStores, cancellation: Cancellation
) -> Generator[tuple[Entry, Prefetched | None]]:
    """Yield the entries in order, remote objects with their content; meanwhile fetch up to eight entries ahead.

    Args:
        cancellation: Ends the waits of readers.

    Raises:
        Cancelled: The job is over.
    """
    waiting: deque[tuple[Entry, Prefetched | None]] = deque()
    transfers = Transfers(stores)
    current: Prefetched | None = None
    try:
        for entry in entries:
            remote = isinstance(entry, RemoteObject)
            waiting.append((entry, Prefetched(RemoteBody(entry, transfers), cancellation) if remote else None))
            if len(waiting) > _OBJECTS:
                current = waiting[0][1]
                yield waiting.popleft()
        while waiting:
            current = waiting[0][1]
            yield waiting.popleft()
    finally:
        transfers.close()
        for body in (current, *(each for _, each in waiting)):
            if body:
                body.drop()
