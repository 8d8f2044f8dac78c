"""The contents of objects: where their bytes are stored, and the commits that name and release them.

A commit is never cancelled: a client that disconnects cancels its handler, but not what belongs to a commit in
progress, which is to keep the content that the new row names, and to retire the content of the old row.

There are two places: files of the state directory (`tidemill.store.objects.disk_place`), and objects of a remote S3
(`tidemill.store.objects.remote_place`). The id of a content determines its place, so both can be in use at the same
time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tidemill.core.clock import Clock
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.errors import ServiceUnavailable, StateCorrupt
from tidemill.store.database.base import Database
from tidemill.store.objects import index as object_index
from tidemill.store.objects import unnamed
from tidemill.store.objects.disk_place import DiskPlace
from tidemill.store.objects.draft import Content
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo, Precondition
from tidemill.store.objects.local_copies import LocalCopies
from tidemill.store.objects.place import ContentPlace
from tidemill.store.objects.remote_place import RemotePlace

_SCHEME = "s3://"

Work = Callable[[Connection], Iterable[str]]
"""Changes rows inside a transaction; returns the ids of content that those rows named before."""


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Settings for contents in a remote S3.

    Attributes:
        home: Bucket and prefix of new contents; None stores new contents on the disk.
        remotes: Addresses and credentials by bucket name or pattern.
        copies_max_bytes: Maximum size of the local copies that are kept for jobs.
    """

    home: S3Uri | None = None
    remotes: Mapping[str, RemoteS3] = field(default_factory=dict)
    copies_max_bytes: int = 0


class Contents:
    """The contents of all objects and parts.

    Args:
        root: Directory for contents and local copies.
        database: Stores the rows that name contents, and those of contents that no object names.
        grace_s: Seconds for which content is kept after the removal of its last row.
        remote: Settings for contents in a remote S3.
    """

    def __init__(self, root: Path, *, database: Database, clock: Clock, grace_s: float, remote: RemoteSettings) -> None:
        self._database = database
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self.disk = DiskPlace(root, clock=clock, grace_s=grace_s)
        self.remote = RemotePlace(
            remote.home,
            remote.remotes,
            disk=self.disk,
            database=database,
            copies=LocalCopies(root / "copies", max_bytes=remote.copies_max_bytes),
            clock=clock,
            grace_s=grace_s,
        )
        self.new: ContentPlace = self.remote if remote.home else self.disk
        """Stores the contents of new objects. Parts of uploads are always stored on the disk."""

    def of(self, content_id: str) -> ContentPlace:
        """Return the place that has this content."""
        return self.remote if content_id.startswith(_SCHEME) else self.disk

    def location(self, content_id: str) -> str:
        """Return the path of the content on this machine. For content in a remote S3: of its local copy, once fetched.

        A string, since creating a `Path` takes five times as long, and a channel may have a million objects.
        """
        if self.of(content_id) is self.disk:
            return self.disk.location(content_id)
        return str(self.remote.copies.path(content_id))

    async def publish(
        self,
        bucket: str,
        key: str,
        content: Content,
        *,
        attributes: ObjectAttributes,
        etag: str | None = None,
        publisher: str | None = "",
        precondition: Precondition | None = None,
        also: Work | None = None,
        grows: bool = True,
    ) -> ObjectInfo:
        """Make received content visible as an object. From this call on, the store owns the content.

        Args:
            key: Key of the object; must be checked by `check_key` before.
            content: Result of `ContentPlace.receive`, `join` or `adopt`, or of `DiskPlace.copy`.
            attributes: Attributes that the client has set.
            etag: ETag of a multipart object. Default: that of the content.
            publisher: The job that publishes the object, as in `ObjectInfo`. Default: none.
            precondition: Refuses the change inside the transaction. Default: none.
            also: Makes further changes in the same transaction. Default: none.
            grows: Refuse the change while the disk is full. Default: true.

        Raises:
            NoSuchBucket: There is no such bucket.
            ServiceUnavailable: The object was not stored.
        """
        info = self.describe(bucket, key, content, attributes=attributes, etag=etag, publisher=publisher)

        def work(connection: Connection) -> list[str]:
            released = [] if also is None else list(also(connection))
            return released + object_index.put_object(connection, info, precondition=precondition)

        await self.naming([content.content_id], work, grows=grows)
        return info

    def describe(
        self,
        bucket: str,
        key: str,
        content: Content,
        *,
        attributes: ObjectAttributes,
        etag: str | None = None,
        publisher: str | None = "",
    ) -> ObjectInfo:
        """Return the row of an object with new content, modified now. The arguments are those of `publish`.

        Args:
            attributes: Content type, metadata and the like.
            etag: Default: the content's own.
            publisher: The job that wrote the object. Default: none.
        """
        return ObjectInfo(
            bucket=bucket,
            key=key,
            content_id=content.content_id,
            size_bytes=content.size_bytes,
            etag=etag or content.md5 or f"{content.sha256[:32]}-1",
            sha256=content.sha256,
            modified_ms=self._clock.now_ms(),
            publisher=publisher,
            **attribute_values(attributes),
        )

    async def naming(self, content_ids: Collection[str], work: Work, *, grows: bool = True) -> None:
        """Run ``work``, which makes rows name new contents. If nothing is committed, remove the contents.

        Args:
            work: Changes the rows.
            grows: Refuse the change while the disk is full, as `Database.write`. Default: true.

        Raises:
            ServiceUnavailable: The change was not committed.
            Exception: Any exception of ``work``.
        """
        for content_id in content_ids:
            self.of(content_id).hand_over(content_id)
        await self._to_the_end(self._name(content_ids, work, grows=grows))

    async def releasing(self, work: Work, *, grows: bool = False) -> None:
        """Run ``work``, which may leave content without a row, and retire such content.

        Args:
            work: Changes the rows.
            grows: Refuse the change while the disk is full, as `Database.write`. Default: false.

        Raises:
            ServiceUnavailable: The change was not committed.
            Exception: Any exception of ``work``.
        """
        await self._to_the_end(self._release(work, grows=grows))

    async def drain(self) -> None:
        """Wait for the commits in progress."""
        while self._running:
            await asyncio.wait(self._running)

    async def forget_removed(self) -> None:
        """Delete the records of files that have been removed. After a failure, the sweep at the next start does it."""
        removed = self.disk.take_removed()
        if removed:
            await self._database.write(lambda connection: unnamed.forget(connection, removed))

    async def close(self) -> None:
        """Wait for the commits in progress, remove retired files and end the threads."""
        await self.drain()
        self.disk.flush_retired()
        with contextlib.suppress(ServiceUnavailable):
            await self.forget_removed()
        self.remote.close()
        self.disk.close()

    def _note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Record a commit at the places of its contents; see `ContentPlace.note_commit`."""
        named, released = tuple(named), tuple(released)
        for place in {self.of(each) for each in (*named, *released)}:
            place.note_commit(
                connection,
                named=[each for each in named if self.of(each) is place],
                released=[each for each in released if self.of(each) is place],
            )

    def _retire(self, content_ids: Iterable[str]) -> None:
        """Remove content that no row names any more, after the grace time for replies that may still read it."""
        for content_id in content_ids:
            self.of(content_id).retire([content_id])

    async def _name(self, content_ids: Collection[str], work: Work, *, grows: bool) -> None:
        try:
            await self._release(work, grows=grows, named=content_ids)
        except BaseException:
            for content_id in content_ids:
                await self._remove_unless_named(content_id)
            raise
        for content_id in content_ids:
            self.of(content_id).named(content_id)

    async def _release(self, work: Work, *, grows: bool, named: Iterable[str] = ()) -> None:
        def with_unnamed(connection: Connection) -> list[str]:
            released = object_index.unnamed_of(connection, set(work(connection)))
            self._note_commit(connection, named=named, released=released)
            return released

        self._retire(await self._database.write(with_unnamed, grows=grows))

    async def _remove_unless_named(self, content_id: str) -> None:
        # An error does not prove that nothing was committed, because only the reply may have been lost. If reading
        # fails too, the sweep at the next start decides.
        with contextlib.suppress(ServiceUnavailable, StateCorrupt):
            if self._database.read(lambda connection: object_index.unnamed_of(connection, [content_id])):
                await self.of(content_id).discard(content_id)

    async def _to_the_end(self, commit: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(commit)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_retrieve_exception)
            raise


def _retrieve_exception(task: "asyncio.Task[None]") -> None:
    """Retrieve the task's exception, which has no receiver: the client has left and will see the result later."""
    if not task.cancelled():
        task.exception()


def attribute_values(attributes: ObjectAttributes) -> dict[str, Any]:
    """Return the members of attributes by name, for an `ObjectInfo` with them.

    Args:
        attributes: The attributes.
    """
    return {item.name: getattr(attributes, item.name) for item in fields(ObjectAttributes)}
