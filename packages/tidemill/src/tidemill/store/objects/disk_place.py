"""The bytes of objects: plain immutable files, each named by a random id and never by a key.

A file is written below ``tmp`` and renamed to ``content/xx/``; file and directory are synced. Only then may a row name
the file. Content that no row names is removed by its writer, or found by the sweep at the next start. The
commit that removes the last row of a content records that, so that the sweep removes this content; it moves others to
the trash. Hashing and file operations run in separate threads, not on the event loop. This module does not use buckets
and keys.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from sqlalchemy import Connection

from tidemill.core.clock import Clock
from tidemill.core.files import make_directory, sync_directory
from tidemill.errors import ServiceUnavailable
from tidemill.store.objects import unnamed
from tidemill.store.objects.draft import Content, Digest, Draft
from tidemill.store.objects.errors import ObjectDamaged
from tidemill.store.objects.place import ContentPlace
from tidemill.store.objects.trash import Trash

T = TypeVar("T")

BATCH_BYTES = 1024 * 1024
"""Number of bytes passed to a thread, or read by a thread, at a time. Large enough to outweigh the cost of a call."""
THREADS = 8
MIN_FREE_FRACTION = 0.01
MIN_FREE_INODES = 1000

_STEP_BYTES = 16 * 1024 * 1024
"""A thread copies this much at a time, so that several copies and other requests share the threads."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep.

    Attributes:
        removed: Number of files that are removed, after the grace time.
        set_aside: Number of files that were moved to the trash.
        size_bytes: Size of the moved files in bytes.
        folder: The directory that has the moved files; None if there are none.
    """

    removed: int
    set_aside: int = 0
    size_bytes: int = 0
    folder: Path | None = None


class DiskPlace(ContentPlace):
    """Content files below one directory, named by ids. What is damaged is moved to quarantine.

    Args:
        root: Directory of the store; created if missing. Its subdirectories ``tmp``, ``content`` and ``quarantine``
            must be on one file system, and ``trash``, too.
        grace_s: Seconds for which a file is kept after the removal of its last row, because replies may still read it.
    """

    def __init__(self, root: Path, *, clock: Clock, grace_s: float) -> None:
        self.root = root
        self._tmp = root / "tmp"
        self._content = root / "content"
        self._quarantine = root / "quarantine"
        self.trash = Trash(root / "trash", clock=clock)
        self._clock = clock
        self._grace_s = grace_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store-content")
        self._hashers = ThreadPoolExecutor(THREADS, thread_name_prefix="store-md5")
        self._drafts: set[str] = set()  # files that are removed when their block ends
        self._unnamed: set[str] = set()  # files that no row names yet, and that the sweep keeps
        self._retired: dict[str, asyncio.TimerHandle] = {}
        self._removed: set[str] = set()  # released files that are removed, but still recorded as unnamed
        self._make_directories()

    def path(self, content_id: str) -> Path:
        """Return the file of the content. Its bytes never change; a job that may write to the file gets an overlay."""
        return Path(self.location(content_id))

    def location(self, content_id: str) -> str:
        """Return `path` as a string, which takes a fifth of the time."""
        return f"{self._content}/{content_id[:2]}/{content_id}"

    @property
    def damage(self) -> str:
        """A value that changes whenever damaged content is moved to quarantine."""
        return str(self._quarantine.stat().st_mtime_ns)

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` in one of the store's threads. A cancelled caller still waits until ``work`` has ended."""
        return await self._run(self._threads, work, *arguments)

    def refuse_when_full(self, size_bytes: int = 0) -> None:
        """Refuse to store ``size_bytes`` more if the disk is almost full.

        Raises:
            ServiceUnavailable: More than 99 % of the disk is used, fewer than 1,000 inodes are free, or ``size_bytes``
                are more than the free space.
        """
        if self._lack_of_room(size_bytes) is None:
            return
        self.flush_retired()
        reason = self._lack_of_room(size_bytes)
        if reason is not None:
            raise ServiceUnavailable(
                f"the disk of the object store {self.root} {reason}; new objects are refused. Delete objects or free"
                " space on the disk, then repeat the request",
                close=True,
            )

    @contextlib.asynccontextmanager
    async def receive(
        self,
        body: AsyncIterable[bytes],
        *,
        name: str = "",
        size_bytes: int = 0,
        digests: Iterable[Digest] = (),
        sha256: str | None = None,
    ) -> AsyncGenerator[Content]:
        self.refuse_when_full(size_bytes)
        async with self._draft(digests) as draft:
            with disk_errors("receiving an object"):
                content = await self._fill(draft, body, sha256)
            yield content

    @contextlib.asynccontextmanager
    async def copy(
        self,
        source_fd: int,
        *,
        size_bytes: int,
        digests: Iterable[Digest] = (),
        has_md5: bool = True,
        copied: Callable[[int], None],
    ) -> AsyncGenerator[Content]:
        """Store an open file as a new file, which is removed after the block unless handed over.

        The new file shares no blocks with the source that a later write to the source could change.

        Args:
            source_fd: Descriptor of the file; its position does not matter.
            digests: Further hashes to update with every byte.
            has_md5: Whether to compute the MD5.
            copied: Called with the number of bytes that are copied and hashed, after each step.

        Raises:
            EOFError: The file is shorter.
            ServiceUnavailable: The disk is full or failing.
        """
        self.refuse_when_full(size_bytes)
        async with self._draft(digests, has_md5=has_md5) as draft:
            with disk_errors("copying a file"):
                await self.run(draft.clone, source_fd, size_bytes)
                await self._copy(draft, source_fd, size_bytes, copied)
                content = await self.run(draft.move)
                await self.run(sync_directory, draft.directory)
            yield content

    @contextlib.asynccontextmanager
    async def join(
        self, sources: Iterable[tuple[Path, str]], *, name: str = "", digests: Iterable[Digest] = ()
    ) -> AsyncGenerator[Content]:
        async with self._draft(digests, has_md5=False) as draft:
            with disk_errors("joining the parts of an object"):
                content = await self.run(draft.join, tuple(sources))
            yield content

    @contextlib.asynccontextmanager
    async def adopt(self, file: Path, *, name: str = "") -> AsyncGenerator[Content]:
        """Store an existing file as content, which is removed after the block unless handed over.

        ``file`` stays in place and must not be written to. The caller removes ``file`` once a row names the content.

        Args:
            name: No effect, as for `receive`.

        Raises:
            FileNotFoundError: There is no such file.
            ServiceUnavailable: The disk is full or failing.
        """
        async with self._draft() as draft:
            with disk_errors("taking over a file"):
                content = await self.run(draft.adopt, file)
            yield content

    @contextlib.asynccontextmanager
    async def split(self, source: Path, ranges: Sequence[tuple[int, int]]) -> AsyncGenerator[list[Content]]:
        """Store ranges of a file as new files, which are durable before the block begins.

        Many small files cost a fraction of what `receive` needs for each: threads write and sync them at the same time,
        so that the file system commits many in one step, and each directory is synced once for all its files.

        Args:
            source: The file, which nobody changes.
            ranges: Offset and size in bytes of each new file.

        Raises:
            ObjectDamaged: The file ends before a range.
            ServiceUnavailable: The disk is full or failing.
        """
        self.refuse_when_full(sum(size_bytes for _, size_bytes in ranges))
        async with contextlib.AsyncExitStack() as stack:
            drafts = [await stack.enter_async_context(self._draft()) for _ in ranges]
            pairs = list(zip(drafts, ranges, strict=True))
            with disk_errors("extracting an archive"):
                await self._all(_write_ranges, *((source, pairs[index::THREADS]) for index in range(THREADS)))
                contents = await self.run(lambda: [draft.move() for draft in drafts])
                await self._all(sync_directory, *((each,) for each in {draft.directory for draft in drafts}))
            yield contents

    async def slice(self, file: Path, offset: int, size_bytes: int) -> AsyncIterator[bytes]:
        """Yield a range of a file, which is read in threads."""
        while size_bytes:
            piece = await self.run(_read, file, offset, min(BATCH_BYTES, size_bytes))
            if not piece:
                raise ObjectDamaged(f"{file} ends before the range")
            offset += len(piece)
            size_bytes -= len(piece)
            yield piece

    def hand_over(self, content_id: str) -> None:
        self._drafts.discard(content_id)

    def named(self, content_id: str) -> None:
        self._unnamed.discard(content_id)

    async def discard(self, content_id: str) -> None:
        await self.run(self.remove, content_id)

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Record that the transaction removes the last rows of ``released``, so that a sweep may remove the files."""
        if released := tuple(released):
            unnamed.note(connection, released, uploading=False, since_ms=self._clock.now_ms())

    def retire(self, content_ids: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        for content_id in content_ids:
            if content_id not in self._retired:
                self._retired[content_id] = loop.call_later(self._grace_s, self._remove_retired, content_id)

    def remove(self, content_id: str) -> None:
        """Remove content at once."""
        self.path(content_id).unlink(missing_ok=True)
        self._unnamed.discard(content_id)

    def file(self, content_id: str) -> Path:
        """Return the file of the content, as `path`."""
        return self.path(content_id)

    def open(self, content_id: str, *, size_bytes: int) -> BinaryIO:
        """Open the content.

        Raises:
            FileNotFoundError: The content does not exist any more.
        """
        return self.path(content_id).open("rb")

    async def read_verified(self, content_id: str, *, size_bytes: int, sha256: str, name: str) -> bytes:
        with disk_errors(f"reading {name}"):
            data = await self.run(self._read_if_sound, content_id, sha256)
        if data is None:
            raise self.damaged(content_id, name=name)
        return data

    def check_size(self, content_id: str, *, size_bytes: int, name: str) -> None:
        """Check quickly that the content exists and has its length.

        Raises:
            ObjectDamaged: The content is missing or has another length. Its file is moved to quarantine.
        """
        try:
            found_bytes = self.path(content_id).stat().st_size
        except FileNotFoundError:
            raise self.damaged(content_id, name=name) from None
        if found_bytes != size_bytes:
            raise self.damaged(content_id, name=name)

    async def pieces(
        self, content_id: str, *, offset: int, size_bytes: int, whole_bytes: int, name: str
    ) -> AsyncIterator[bytes]:
        self.check_size(content_id, size_bytes=whole_bytes, name=name)
        return self._pieces(content_id, offset, size_bytes, name)

    def damaged(self, content_id: str, *, name: str) -> ObjectDamaged:
        """Move a damaged file to quarantine. Return the error to raise."""
        kept = self._quarantine / content_id
        with contextlib.suppress(FileNotFoundError):
            self.path(content_id).replace(kept)
        return ObjectDamaged(
            f"the stored bytes of {name} are damaged or missing and are not sent; what was found is kept as {kept}."
            " Put the object again"
        )

    def sweep_temporaries(self) -> int:
        """Remove incomplete files of an earlier process. Return their number. Call this before storing content."""
        leftovers = list(self._tmp.iterdir())
        for file in leftovers:
            file.unlink()
        return len(leftovers)

    async def sweep_orphans(self, rows: Callable[[], Awaitable[tuple[set[str], set[str]]]]) -> Swept:
        """Retire or set aside content that no row names. May run while objects are stored.

        Args:
            rows: Returns the ids of all content that rows name, and of content whose last row a commit has removed,
                both of one snapshot. The latter is retired, and content in neither set is moved to the trash.
        """
        # The order matters: a listed file that is in none of the two sets afterwards has its row already, or will
        # never have one.
        found = await self.run(self._content_ids)
        spared = self._unnamed | self._retired.keys()
        named, released = await rows()
        orphans = found - spared - named
        self.retire(orphans & released)
        self._removed |= released - found - self._retired.keys()
        unknown = orphans - released
        swept = Swept(len(orphans & released))
        return await self.run(self._set_aside, unknown, swept) if unknown else swept

    def take_back(self, named: Callable[[], set[str]]) -> int:
        """Move content back from the trash that rows name. Return the number of files. Blocks.

        Args:
            named: Returns the ids of all content that rows name.
        """
        trashed = self.trash.files()
        if not trashed:
            return 0
        wanted = named() & trashed.keys()
        for content_id in wanted:
            trashed[content_id].replace(self.path(content_id))
        self.trash.remove_empty()
        return len(wanted)

    def take_removed(self) -> set[str]:
        """Return the ids of released content that was removed since the last call. The caller deletes their records."""
        removed, self._removed = self._removed, set()
        return removed

    def flush_retired(self) -> None:
        """Remove retired content at once."""
        while self._retired:
            content_id, timer = self._retired.popitem()
            timer.cancel()
            self._remove_released(content_id)

    def close(self) -> None:
        """Remove retired content and end the threads."""
        self.flush_retired()
        self._threads.shutdown()
        self._hashers.shutdown()

    @staticmethod
    async def _run(threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
        future = asyncio.get_running_loop().run_in_executor(threads, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    def _make_directories(self) -> None:
        for directory in (self._tmp, self._content, self._quarantine):
            make_directory(directory, mode=0o700)
        for index in range(256):
            (self._content / f"{index:02x}").mkdir(exist_ok=True, mode=0o700)
        sync_directory(self._content)  # also if the service that made them was killed before it did

    async def _all(self, work: Callable[..., object], *calls: tuple[object, ...]) -> None:
        """Run ``work`` with each of the arguments in the store's threads; wait for all before an error is raised."""
        results = await asyncio.gather(*(self.run(work, *each) for each in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @contextlib.asynccontextmanager
    async def _draft(self, digests: Iterable[Digest] = (), *, has_md5: bool = True) -> AsyncGenerator[Draft]:
        content_id = secrets.token_hex(16)
        self._drafts.add(content_id)
        self._unnamed.add(content_id)
        draft = Draft(
            self._tmp / content_id,
            target=self.path(content_id),
            hashers=self._hashers,
            digests=digests,
            has_md5=has_md5,
        )
        try:
            yield draft
        finally:
            if content_id in self._drafts:
                self._drafts.discard(content_id)
                await self.run(draft.discard)
                self._unnamed.discard(content_id)

    async def _copy(self, draft: Draft, source_fd: int, size_bytes: int, copied: Callable[[int], None]) -> None:
        """Fill and sync the draft, and hash each range while the next one is filled."""
        ranges = [(begin, min(begin + _STEP_BYTES, size_bytes)) for begin in range(0, size_bytes, _STEP_BYTES)]
        filled: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

        async def digest() -> None:
            for _ in ranges:
                begin, end = await filled.get()
                await self._run(self._hashers, draft.digest, begin, end)
                copied(end)

        digesting = asyncio.create_task(digest())
        try:
            for begin, end in ranges:
                await self.run(draft.fill, source_fd, begin, end)
                filled.put_nowait((begin, end))
            await self.run(draft.sync)  # while the last ranges are hashed
            await digesting
        finally:
            digesting.cancel()
            await asyncio.wait({digesting})

    async def _fill(self, draft: Draft, body: AsyncIterable[bytes], sha256: str | None) -> Content:
        """Write to the draft in a thread while the next bytes arrive."""
        loop = asyncio.get_running_loop()
        batch: list[bytes] = []
        waiting_bytes = 0
        writing: asyncio.Future[None] = loop.create_future()
        writing.set_result(None)
        try:
            async for chunk in body:
                batch.append(chunk)
                waiting_bytes += len(chunk)
                if waiting_bytes >= BATCH_BYTES:
                    await asyncio.shield(writing)
                    writing = loop.run_in_executor(self._threads, draft.append, batch)
                    batch = list[bytes]()
                    waiting_bytes = 0
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await asyncio.wait({writing})
            writing.exception()  # marks it as retrieved: the caller gets the exception that ended the loop
        return await self.run(partial(draft.finish, batch, sha256=sha256))

    async def _pieces(self, content_id: str, offset: int, size_bytes: int, name: str) -> AsyncIterator[bytes]:
        try:
            async for piece in self.slice(self.path(content_id), offset, size_bytes):
                yield piece
        except ObjectDamaged:
            raise self.damaged(content_id, name=name) from None

    def _content_ids(self) -> set[str]:
        return {entry.name for directory in self._content.iterdir() for entry in os.scandir(directory)}

    def _read_if_sound(self, content_id: str, sha256: str) -> bytes | None:
        try:
            data = self.path(content_id).read_bytes()
        except FileNotFoundError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def _lack_of_room(self, size_bytes: int) -> str | None:
        disk = os.statvfs(self.root)
        if disk.f_bavail < disk.f_blocks * MIN_FREE_FRACTION:
            return "is 99 % full"
        if disk.f_files and disk.f_favail < MIN_FREE_INODES:  # some file systems do not count inodes
            return f"has fewer than {MIN_FREE_INODES} free inodes"
        free_bytes = disk.f_bavail * disk.f_frsize
        return f"has {free_bytes} bytes free and {size_bytes} were announced" if size_bytes > free_bytes else None

    def _remove_retired(self, content_id: str) -> None:
        if self._retired.pop(content_id, None) is not None:
            self._threads.submit(self._remove_released, content_id)

    def _remove_released(self, content_id: str) -> None:
        self.remove(content_id)
        self._removed.add(content_id)

    def _set_aside(self, content_ids: set[str], swept: Swept) -> Swept:
        folder, count, size_bytes = self.trash.folder(), 0, 0
        for content_id in content_ids:
            with contextlib.suppress(FileNotFoundError):  # discarded meanwhile
                file = self.path(content_id).replace(folder / content_id)
                size_bytes += file.stat().st_size
                count += 1
        return replace(swept, set_aside=count, size_bytes=size_bytes, folder=folder if count else None)


@contextlib.contextmanager
def disk_errors(doing: str) -> Generator[None]:
    """Turn errors of a full or failing disk in the block into ServiceUnavailable.

    Args:
        doing: The operation, for the message, e.g. ``receiving an object``.

    Raises:
        ServiceUnavailable: The disk is full, or reading or writing failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise ServiceUnavailable(
                f"no space left on the disk of the object store while {doing}; nothing was stored. Delete objects or"
                " free space on the disk, then repeat the request"
            ) from error
        if error.errno in (errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE):
            raise ServiceUnavailable(
                f"the disk of the object store failed while {doing} ({error.strerror}); nothing was stored. Check the"
                " disk and the service's log, then repeat the request"
            ) from error
        raise


def _write_ranges(source: Path, pairs: Sequence[tuple[Draft, tuple[int, int]]]) -> None:
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for draft, (offset, size_bytes) in pairs:
            draft.write_range(fd, offset, size_bytes)
    finally:
        os.close(fd)


def _read(file: Path, offset: int, size_bytes: int) -> bytes:
    with file.open("rb", buffering=0) as opened:
        opened.seek(offset)
        return opened.read(size_bytes)
