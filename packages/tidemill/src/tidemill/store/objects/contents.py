"""The storage of objects' bytes: the interface below the object store, and the choice of its implementation.

There are two implementations: files of the state directory (`tidemill.store.objects.content`), and objects of a remote
S3 (`tidemill.store.objects.remote_content`). The id of a content determines its implementation, so both can be in use
at the same time.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from sqlalchemy import Connection

from tidemill.core.clock import Clock
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.store.database.base import Database
from tidemill.store.objects.content import ContentStore
from tidemill.store.objects.draft import Content, Digest
from tidemill.store.objects.errors import ObjectDamaged
from tidemill.store.objects.local_copies import LocalCopies
from tidemill.store.objects.remote_content import RemoteContent

__all__ = ["ContentPlace", "Contents", "Elsewhere"]

_SCHEME = "s3://"


class Elsewhere:
    """Settings for contents in a remote S3.

    Attributes:
        home: Bucket and prefix of new contents. Default: None, which stores new contents on the disk.
        remotes: Addresses and credentials by bucket name or pattern. Default: none.
        copies_max_bytes: Maximum size of the local copies that are kept for jobs. Default: 0.
    """

    def __init__(
        self,
        home: S3Uri | None = None,
        *,
        remotes: Mapping[str, RemoteS3] | None = None,
        copies_max_bytes: int = 0,
    ) -> None:
        self.home = home
        self.remotes = remotes or {}
        self.copies_max_bytes = copies_max_bytes


class ContentPlace(Protocol):
    """Stores immutable contents by id. A returned content is durable, so that a row may name it."""

    def receive(
        self, body: AsyncIterable[bytes], *, name: str, size_bytes: int = 0, digests: Iterable[Digest] = ()
    ) -> AbstractAsyncContextManager[Content]:
        """Store the bytes of ``body`` as a new content, which is removed after the block unless handed over.

        Args:
            body: The bytes. ``body`` is read to its end, so that checks at its end have passed.
            name: ``bucket/key`` of the future object. A remote S3 uses it in the name of the content, for people.
            size_bytes: The announced length, to refuse early what cannot fit. Default: unknown.
            digests: Further hashes to update with every byte.

        Raises:
            ServiceUnavailable: The content cannot be stored now.
        """
        ...

    def join(
        self, sources: Iterable[tuple[Path, str]], *, name: str, digests: Iterable[Digest] = ()
    ) -> AbstractAsyncContextManager[Content]:
        """Store the concatenation of files; otherwise as `receive`.

        Args:
            sources: Files in order, each with its expected SHA-256 in hexadecimal.
            name: As for `receive`.
            digests: As for `receive`.

        Raises:
            ObjectDamaged: A source does not have its SHA-256.
            ServiceUnavailable: The content cannot be stored now.
        """
        ...

    def adopt(self, file: Path, *, name: str) -> AbstractAsyncContextManager[Content]:
        """Store an existing file, which stays in place; otherwise as `receive`.

        Raises:
            FileNotFoundError: There is no such file.
            ServiceUnavailable: The content cannot be stored now.
        """
        ...

    def hand_over(self, content_id: str) -> None:
        """Do not remove this content when its block ends. Afterwards the caller calls `named` or `discard`."""
        ...

    def named(self, content_id: str) -> None:
        """Record that a row names this content now."""
        ...

    async def discard(self, content_id: str) -> None:
        """Remove content that no row will name, now or later."""
        ...

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Record, in the transaction that changes the rows, that contents are named now or not named any more.

        Args:
            connection: The transaction.
            named: Contents that a row names now.
            released: Contents whose last row the transaction removes.
        """
        ...

    def retire(self, content_ids: Iterable[str]) -> None:
        """Remove content that no row names any more, after the grace time for replies that may still read it."""
        ...

    def file(self, content_id: str) -> Path | None:
        """Return the file of the content, whose bytes never change; None if this place does not use files."""
        ...

    def open(self, content_id: str, *, size_bytes: int) -> BinaryIO:
        """Open the content as a file with a name. Blocks.

        Raises:
            FileNotFoundError: The content does not exist any more.
            ServiceUnavailable: The content cannot be read now.
        """
        ...

    async def read_verified(self, content_id: str, *, size_bytes: int, sha256: str, name: str) -> bytes:
        """Return the whole content after checking its digest.

        Args:
            content_id: The content.
            size_bytes: Expected length.
            sha256: Expected SHA-256 in hexadecimal.
            name: Name of the object, for messages.

        Raises:
            ObjectDamaged: The content is missing or does not match ``sha256``.
            ServiceUnavailable: The content cannot be read now.
        """
        ...

    async def pieces(
        self, content_id: str, *, offset: int, size_bytes: int, whole_bytes: int, name: str
    ) -> AsyncIterator[bytes]:
        """Return an iterator over the bytes of a range.

        Args:
            content_id: The content.
            offset: Offset of the range in bytes.
            size_bytes: Size of the range in bytes.
            whole_bytes: Expected length of the whole content.
            name: Name of the object, for messages.

        Raises:
            ObjectDamaged: The content is missing, or has another length.
            ServiceUnavailable: The content cannot be read now.
        """
        ...

    async def is_sound(self, content_id: str, *, size_bytes: int, sha256: str) -> bool:
        """Read the whole content. Return whether it exists and has this length and SHA-256."""
        ...

    def damaged(self, content_id: str, *, name: str) -> ObjectDamaged:
        """Return the error to raise for damaged content; move the content to quarantine if the place has one."""
        ...


class Contents:
    """The contents of all objects and parts.

    Args:
        root: Directory for contents and local copies.
        database: Stores the rows of contents that no object names.
        clock: Provides the current time.
        grace_s: Seconds for which content is kept after the removal of its last row.
        elsewhere: Settings for contents in a remote S3.
    """

    def __init__(self, root: Path, *, database: Database, clock: Clock, grace_s: float, elsewhere: Elsewhere) -> None:
        self.disk = ContentStore(root, grace_s=grace_s)
        self.remote = RemoteContent(
            elsewhere.home,
            elsewhere.remotes,
            disk=self.disk,
            database=database,
            copies=LocalCopies(root / "copies", max_bytes=elsewhere.copies_max_bytes),
            clock=clock,
            grace_s=grace_s,
        )
        self.new: ContentPlace = self.remote if elsewhere.home else self.disk
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

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Record a commit at the places of its contents; see `ContentPlace.note_commit`."""
        for content_id in named:
            self.of(content_id).note_commit(connection, named=[content_id])
        for content_id in released:
            self.of(content_id).note_commit(connection, released=[content_id])

    def retire(self, content_ids: Iterable[str]) -> None:
        """Remove content that no row names any more, after the grace time for replies that may still read it."""
        for content_id in content_ids:
            self.of(content_id).retire([content_id])

    def close(self) -> None:
        """Remove retired files and end the threads."""
        self.remote.close()
        self.disk.close()
