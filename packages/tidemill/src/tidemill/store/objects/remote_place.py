"""Contents in a remote S3: each is one object there, which never changes, and whose name contains the user's key.

Content is first received on the disk, where it is hashed and checked, and then uploaded. Only then may a row name it.
The id of a content is its whole URI, so that rows remain valid if the setting changes. While no object names a content,
the table ``unnamed_content`` has a row for it, so that `RemotePlace.clean` removes what a crash leaves.
"""

import asyncio
import contextlib
import hashlib
import secrets
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import structlog
from sqlalchemy import Connection

from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import KEY_MAX_BYTES, S3Uri
from tidemill.core.remotes import RemoteS3, pattern_for
from tidemill.errors import ConfigurationError, ServiceUnavailable
from tidemill.store.database.base import Database
from tidemill.store.objects import unnamed
from tidemill.store.objects.disk_place import DiskPlace
from tidemill.store.objects.draft import Content, Digest
from tidemill.store.objects.errors import ContentMissing, ObjectDamaged
from tidemill.store.objects.local_copies import LocalCopies
from tidemill.store.objects.remote_bucket import BucketUnavailable, RemoteBucket

T = TypeVar("T")

_log = structlog.get_logger("tidemill.store")
_THREADS = 24
_CLEAN_EVERY_S = 30.0
_CLEAN_AT_ONCE = 16


class RemotePlace:
    """Contents in remote S3 stores. Implements `tidemill.store.objects.place.ContentPlace`.

    Args:
        home: Bucket and prefix of new contents; None if new contents stay on the disk, and only earlier ones are read.
        remotes: Addresses and credentials by bucket name or pattern: the setting ``remote_s3``.
        disk: Receives and hashes contents before they are uploaded.
        database: Stores the rows of contents that no object names.
        grace_s: Seconds for which content is kept after the removal of its last row, because replies may still read it.
    """

    def __init__(
        self,
        home: S3Uri | None,
        remotes: Mapping[str, RemoteS3],
        *,
        disk: DiskPlace,
        database: Database,
        copies: LocalCopies,
        clock: Clock,
        grace_s: float,
    ) -> None:
        self.home = home
        self.copies = copies
        self._remotes = remotes
        self._disk = disk
        self._database = database
        self._clock = clock
        self._grace_ms = int(grace_s * 1000)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="remote-content")
        self._buckets: dict[str, RemoteBucket] = {}
        self._uploading: set[str] = set()  # recorded as unnamed, but a commit may still name them
        self._handed_over: set[str] = set()
        if remotes:
            copies.make_directories()

    def check(self) -> None:
        """Check at the start of the service that contents can be stored, read and removed. Blocks.

        Raises:
            ConfigurationError: A bucket has no entry in ``remote_s3``, or its S3 refuses a request. An S3 that does not
                answer is an error only if it stores no object yet, because a service must start while a network is
                down.
        """
        used = self._database.read(unnamed.remote_buckets)
        for bucket in dict.fromkeys([*([self.home.bucket] if self.home else []), *used]):
            if pattern_for(bucket, self._remotes) is None:
                raise ConfigurationError(
                    f"objects lie in s3://{bucket}, and no entry of the setting remote_s3 names its S3: add"
                    f' [remote_s3."{bucket}"] with endpoint_url, and its credentials'
                )
        if self.home is None:
            return
        try:
            self._test_access(self.home)
        except ContentMissing as error:
            raise ConfigurationError(
                f"object_store = '{self.home}' does not keep what is put there: {error}"
            ) from error
        except BucketUnavailable as error:
            if error.refused or self.home.bucket not in used:
                raise ConfigurationError(
                    f"object_store = '{self.home}' cannot be used: {error.reason}; {error.advice}"
                ) from error
            _log.warning("objects.elsewhere_unreachable", object_store=str(self.home), reason=error.reason)

    def receive(
        self,
        body: AsyncIterable[bytes],
        *,
        name: str,
        size_bytes: int = 0,
        digests: Iterable[Digest] = (),
        sha256: str | None = None,
    ) -> AbstractAsyncContextManager[Content]:
        return self._uploaded(self._disk.receive(body, size_bytes=size_bytes, digests=digests, sha256=sha256), name)

    def join(
        self, sources: Iterable[tuple[Path, str]], *, name: str, digests: Iterable[Digest] = ()
    ) -> AbstractAsyncContextManager[Content]:
        return self._uploaded(self._disk.join(sources, digests=digests), name)

    def adopt(self, file: Path, *, name: str) -> AbstractAsyncContextManager[Content]:
        return self._uploaded(self._disk.adopt(file), name)

    def hand_over(self, content_id: str) -> None:
        """Do not treat this content as garbage when its block ends; a commit decides."""
        self._handed_over.add(content_id)

    def named(self, content_id: str) -> None:
        self._uploading.discard(content_id)

    async def discard(self, content_id: str) -> None:
        """Let `clean` remove content that no row will name."""
        self._uploading.discard(content_id)

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Update the rows of unnamed contents in the transaction that names or releases contents."""
        unnamed.forget(connection, named)
        unnamed.note(connection, released, uploading=False, since_ms=self._clock.now_ms())

    def retire(self, content_ids: Iterable[str]) -> None:
        """Do nothing: the commit has recorded the contents as unnamed, and `clean` removes them."""

    def file(self, content_id: str) -> Path | None:
        """Return None, because the content is not on this machine."""
        return None

    def open(self, content_id: str, *, size_bytes: int) -> BinaryIO:
        """Open the content as a named file: its local copy, or a temporary file. Blocks.

        Raises:
            FileNotFoundError: The content does not exist any more.
            ServiceUnavailable: The content cannot be read now.
        """
        with contextlib.suppress(FileNotFoundError):
            file = self.copies.path(content_id).open("rb")
            if file.seek(0, 2) == size_bytes:
                file.seek(0)
                return file
            file.close()
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(tempfile.NamedTemporaryFile())
            try:
                for piece in self._read(content_id, size_bytes):
                    temporary.write(piece)
            except ContentMissing as error:
                raise FileNotFoundError(f"{content_id}: {error}") from error
            temporary.flush()
            temporary.seek(0)
            stack.pop_all()
            return cast(BinaryIO, temporary)

    async def read_verified(self, content_id: str, *, size_bytes: int, sha256: str, name: str) -> bytes:
        data = await self._run(self._read_copy, content_id)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            try:
                data = await self._run(lambda: b"".join(self._read(content_id, size_bytes)))
            except ContentMissing as error:
                raise self.damaged(content_id, name=name, found=str(error)) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise self.damaged(content_id, name=name)
        return data

    async def pieces(
        self, content_id: str, *, offset: int, size_bytes: int, whole_bytes: int, name: str
    ) -> AsyncIterator[bytes]:
        """Return an iterator over the bytes of a range.

        The first bytes are read before this returns, so that the service can still send an error to the client.

        Raises:
            ObjectDamaged: The content is missing, or has another length.
            ServiceUnavailable: The content cannot be read now.
        """
        bucket, key = self._place(content_id)
        received = bucket.read(key, whole_bytes=whole_bytes, offset=offset, size_bytes=size_bytes)

        async def read() -> bytes:
            try:
                return await self._run(next, received, b"")
            except ContentMissing as error:
                raise self.damaged(content_id, name=name, found=str(error)) from error

        try:
            return _pieces(await read(), read, received.close)
        except BaseException:
            received.close()
            raise

    def damaged(self, content_id: str, *, name: str, found: str = "its bytes are others") -> ObjectDamaged:
        """Return the error for missing or damaged content, and remove its local copy. The remote object is kept."""
        self.copies.remove(content_id)
        return ObjectDamaged(
            f"the content of {name}, which is stored as {content_id}, is not what was put, and is not sent: {found}."
            " Put the object again"
        )

    async def clean(self) -> int:
        """Remove contents that no row names, because a put was interrupted or an object was deleted or replaced.

        Raises:
            ServiceUnavailable: A content cannot be removed now. It and the following contents remain recorded.
        """
        before_ms, after, count = self._clock.now_ms() - self._grace_ms, "", 0
        while True:
            noted = await self._database.read_in_thread(
                lambda c, after=after: unnamed.noted(c, before_ms=before_ms, after=after, limit=_CLEAN_AT_ONCE)
            )
            if not noted:
                return count
            after = noted[-1].content_id
            due = [each for each in noted if each.content_id not in self._uploading]
            outcomes = await asyncio.gather(*(self._run(self._remove, each) for each in due), return_exceptions=True)
            removed = [each.content_id for each, error in zip(due, outcomes, strict=True) if error is None]
            if removed:
                await self._database.write(lambda c, removed=removed: unnamed.forget(c, removed))
            count += len(removed)
            for error in outcomes:
                if error is not None:
                    raise error

    async def keep_clean(self) -> None:
        """Run `clean` and trim the local copies every 30 s, until cancelled."""
        while self._remotes:
            try:
                removed = await self.clean()
                if removed:
                    _log.info("objects.removed_elsewhere", contents=removed)
                await self._run(self.copies.trim)
            except (ServiceUnavailable, OSError) as error:
                _log.warning("objects.clean_up_delayed", reason=str(error))
            await asyncio.sleep(_CLEAN_EVERY_S)

    def close(self) -> None:
        """End all reads and the threads. Contents that remain to be removed are recorded, and removed after a start."""
        for bucket in self._buckets.values():
            bucket.close()
        self._threads.shutdown()

    @contextlib.asynccontextmanager
    async def _uploaded(self, taken: AbstractAsyncContextManager[Content], name: str) -> AsyncGenerator[Content]:
        assert self.home is not None, "contents have no place in another S3"
        async with taken as content:
            content_id = str(self.home / content_name(name, secrets.token_hex(8), prefix=self.home.key))
            self._uploading.add(content_id)
            since_ms = self._clock.now_ms()
            try:
                await self._database.write(lambda c: unnamed.note(c, [content_id], uploading=True, since_ms=since_ms))
                faults.point("store.object.upload")
                await self._upload(content_id, content)
                faults.point("store.object.uploaded")
                yield replace(content, content_id=content_id)
            finally:
                if content_id in self._handed_over:
                    self._handed_over.discard(content_id)
                else:
                    self._uploading.discard(content_id)

    async def _upload(self, content_id: str, content: Content) -> None:
        bucket, key = self._place(content_id)
        file, abandoned = self._disk.path(content.content_id), threading.Event()

        def upload() -> None:
            bucket.put(key, file, size_bytes=content.size_bytes, md5=content.md5, abandoned=abandoned)
            self.copies.keep(content_id, file)

        await self._run(upload, abandoned=abandoned)

    async def _run(self, work: Callable[..., T], *arguments: object, abandoned: threading.Event | None = None) -> T:
        """Run ``work`` in a thread. A cancelled caller sets ``abandoned``, and still waits until ``work`` has ended."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if abandoned is not None:
                abandoned.set()
            await asyncio.wait({future})
            future.exception()
            raise

    def _place(self, content_id: str) -> tuple[RemoteBucket, str]:
        uri = S3Uri.parse(content_id)
        if uri.bucket not in self._buckets:
            pattern = pattern_for(uri.bucket, self._remotes)
            if pattern is None:
                raise ServiceUnavailable(
                    f"the content is stored as {content_id}, and no entry of the setting remote_s3 names the S3 of that"
                    " bucket: add one, and start the service again"
                )
            self._buckets[uri.bucket] = RemoteBucket(uri.bucket, self._remotes[pattern], pattern=pattern)
        return self._buckets[uri.bucket], uri.key

    def _read(self, content_id: str, size_bytes: int) -> Iterable[bytes]:
        bucket, key = self._place(content_id)
        return bucket.read(key, whole_bytes=size_bytes) if size_bytes else ()

    def _read_copy(self, content_id: str) -> bytes | None:
        try:
            return self.copies.path(content_id).read_bytes()
        except FileNotFoundError:
            return None

    def _remove(self, content: unnamed.Unnamed) -> None:
        bucket, key = self._place(content.content_id)
        bucket.remove(key, uploading=content.uploading)
        self.copies.remove(content.content_id)

    def _test_access(self, home: S3Uri) -> None:
        """Put, read and remove a small object."""
        mark = secrets.token_hex(8).encode()
        bucket, key = self._place(str(home / f".tidemill-check.{mark.decode()}"))
        with tempfile.NamedTemporaryFile() as file:
            file.write(mark)
            file.flush()
            md5 = hashlib.md5(mark, usedforsecurity=False).hexdigest()
            bucket.put(key, Path(file.name), size_bytes=len(mark), md5=md5, abandoned=threading.Event())
        found = b"".join(bucket.read(key, whole_bytes=len(mark)))
        bucket.remove(key, uploading=False)
        if found != mark:
            raise ContentMissing(f"of {mark!r} it returned {found!r}")


def content_name(name: str, mark: str, *, prefix: str = "") -> str:
    """Name the content of an object: its bucket and key, with a mark before the suffixes of the last segment.

    Args:
        mark: Text that makes the name unique, because a replaced object gets new content under another name.
        prefix: Prefix of the name in the bucket. A name that would be too long with this prefix is shortened.
    """
    *folders, last = (_legal(segment) for segment in name.split("/"))
    stem, dot, suffixes = last.partition(".") if not last.startswith(".") else (last, "", "")
    fitting = KEY_MAX_BYTES - len(f"{prefix}/.{mark}".encode())
    whole = "/".join([*folders, f"{stem}.{mark}{dot}{suffixes}"])
    if len(whole.encode()) <= KEY_MAX_BYTES - len(f"{prefix}/".encode()):
        return whole
    cut = "/".join([*folders, last]).encode()[:fitting].decode(errors="ignore").rstrip("/")
    return f"{cut}.{mark}"


def _legal(segment: str) -> str:
    """Escape a segment so that every S3 accepts it, including stores that keep objects as files."""
    if segment in ("", ".", ".."):
        return segment.replace(".", "%2E") or "%2F"
    return "".join(letter if letter.isprintable() else f"%{ord(letter):02X}" for letter in segment)


async def _pieces(
    first: bytes, read: Callable[[], Awaitable[bytes]], close: Callable[[], None]
) -> AsyncIterator[bytes]:
    piece = first
    try:
        while piece:
            yield piece
            piece = await read()
    finally:
        close()
