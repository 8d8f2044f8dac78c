"""Download remote objects into files, several at a time, in threads, so that the caller can still handle a stop."""

import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import ObjectFile, RemoteObject
from tidemill.instance.transfers import RemoteBody, RemoteFault, Transfers
from tidemill.shim.failures import ClientFailure
from tidemill.shim.local_copies import place_copy
from tidemill.shim.objects import Placer, new_file

_AT_ONCE = 8
_WAITING = 64
_LOOK_S = 0.1
_CHUNK_BYTES = 1 << 20


class Downloads:
    """The downloads of one channel. Leaving the context ends all of them.

    Args:
        place: Path of the channel as the job sees it, for messages.
        check: Called several times a second during waits; an exception ends the downloads.
    """

    def __init__(self, stores: RemoteStores, *, place: str, check: Callable[[], None]) -> None:
        self._place = place
        self._check = check
        self._transfers = Transfers(stores)
        # The threads block signals, because signals must reach the main thread and end its waits.
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download", initializer=_block_signals)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transfers.close()
        self._pool.shutdown(cancel_futures=True)

    def add(self, entry: RemoteObject, target: Path) -> None:
        """Start the download of an object into ``target``, which must not exist. May raise an earlier error.

        Args:
            target: Path of the new file.
        """
        self._add(self._download, entry, target)

    def add_copy(self, source: ObjectFile, target: Path, place_object: Placer) -> None:
        """Start to fetch the local copy of an object from a remote S3, and to put it at ``target``.

        Args:
            target: Path of the new file, which must not exist.
        """
        self._add(self._place_copy, source, target, place_object)

    def finish(self) -> None:
        """Wait for all downloads.

        Raises:
            ClientFailure: An object cannot be read or written; the first such error.
        """
        while self._waiting:
            self._await_oldest()

    def _add(self, work: Callable[..., None], *arguments: object) -> None:
        self._waiting.append(self._pool.submit(work, *arguments))
        while len(self._waiting) > _WAITING:
            self._await_oldest()

    def _await_oldest(self) -> None:
        oldest = self._waiting[0]
        while not wait([oldest], timeout=_LOOK_S).done:
            self._check()
        self._waiting.popleft()
        oldest.result()

    def _download(self, entry: RemoteObject, target: Path) -> None:
        body = RemoteBody(entry, self._transfers).pieces(_CHUNK_BYTES)
        with new_file(target, uri=entry.uri, place=self._place) as write, closing(body):
            try:
                for piece in body:
                    write(piece)
            except RemoteFault as fault:
                raise ClientFailure(str(fault)) from fault

    def _place_copy(self, source: ObjectFile, target: Path, place_object: Placer) -> None:
        place_copy(
            source,
            target,
            place=self._place,
            transfers=self._transfers,
            check=self._transfers.check,
            place_object=place_object,
        )


def _block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
