"""Where the bytes of objects are: the seam below the object store, and the choice between its implementations.

There are two: files of the state directory (`tidemill.store.objects.content`) and objects of another S3
(`tidemill.store.objects.remote_content`). An id tells which of them has its content, so both may hold some at once.
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
    """The setting of contents in another S3.

    Attributes:
        home: Bucket and prefix of new contents; None keeps them on the disk.
        remotes: Addresses and credentials by bucket name or pattern.
        copies_max_bytes: Size of the local copies that are kept for jobs.
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
    """Holds immutable contents by id. A content that was given out is durable; a row may name it from then on."""

    def receive(
        self, body: AsyncIterable[bytes], *, name: str, size_bytes: int = 0, digests: Iterable[Digest] = ()
    ) -> AbstractAsyncContextManager[Content]:
        """Store what ``body`` yields; removed at the end of the block unless handed over.

        Args:
            body: The bytes. It is read to its end, so checks at the end of the source have passed.
            name: ``bucket/key`` of the object to be, for people who look at the place.
            size_bytes: The announced length, to refuse early what cannot fit.
            digests: Further hashes to feed with every byte.

        Raises:
            ServiceUnavailable: It cannot be stored now.
        """
        ...

    def join(
        self, sources: Iterable[tuple[Path, str]], *, name: str, digests: Iterable[Digest] = ()
    ) -> AbstractAsyncContextManager[Content]:
        """Store the concatenation of files, each with its SHA-256, as `receive` does.

        Raises:
            ObjectDamaged: A source does not have its SHA-256.
            ServiceUnavailable: It cannot be stored now.
        """
        ...

    def adopt(self, file: Path, *, name: str) -> AbstractAsyncContextManager[Content]:
        """Store an existing file, which stays in place, as `receive` does.

        Raises:
            FileNotFoundError: There is no such file.
            ServiceUnavailable: It cannot be stored now.
        """
        ...

    def hand_over(self, content_id: str) -> None:
        """The block that made this content no longer removes it: the caller says `named` or `discard`."""
        ...

    def named(self, content_id: str) -> None:
        """A row names this content now."""
        ...

    async def discard(self, content_id: str) -> None:
        """No row will name this content: remove it."""
        ...

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Called in the transaction that names contents, or drops the last row that named them."""
        ...

    def retire(self, content_ids: Iterable[str]) -> None:
        """Remove content that no row names any more, once replies that may still read it have had their time."""
        ...

    def file(self, content_id: str) -> Path | None:
        """The file that holds the content, if the place has files. Its bytes never change."""
        ...

    def open(self, content_id: str, *, size_bytes: int) -> BinaryIO:
        """Open the content as a file with a name. Blocks.

        Raises:
            FileNotFoundError: It is gone.
            ServiceUnavailable: It cannot be read now.
        """
        ...

    async def read_verified(self, content_id: str, *, size_bytes: int, sha256: str, name: str) -> bytes:
        """The whole content, its digest checked.

        Raises:
            ObjectDamaged: The bytes are not those that were put.
            ServiceUnavailable: It cannot be read now.
        """
        ...

    async def pieces(
        self, content_id: str, *, offset: int, size_bytes: int, whole_bytes: int, name: str
    ) -> AsyncIterator[bytes]:
        """The bytes of a range.

        Raises:
            ObjectDamaged: The content is missing, or has another length.
            ServiceUnavailable: It cannot be read now.
        """
        ...

    async def is_sound(self, content_id: str, *, size_bytes: int, sha256: str) -> bool:
        """Read the whole content and compare its digest."""
        ...

    def damaged(self, content_id: str, *, name: str) -> ObjectDamaged:
        """Put damaged content aside if the place can; returns the error that says so."""
        ...


class Contents:
    """The contents of all objects and parts.

    Args:
        root: Directory for contents and local copies.
        database: Has the rows of contents that no object names.
        clock: Time.
        grace_s: How long content is kept after the last row that named it went.
        elsewhere: The setting of contents in another S3.
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
        """Takes the contents of new objects. Parts of uploads are always on the disk."""

    def of(self, content_id: str) -> ContentPlace:
        """Return the place that has this content."""
        return self.remote if content_id.startswith(_SCHEME) else self.disk

    def path(self, content_id: str) -> Path:
        """Return the file of the content on this machine: its own, or the copy that whoever needs it fetches."""
        return self.disk.file(content_id) if self.of(content_id) is self.disk else self.remote.copies.path(content_id)

    def note_commit(self, connection: Connection, *, named: Iterable[str] = (), released: Iterable[str] = ()) -> None:
        """Called in the transaction that names contents, or drops the last row that named them."""
        for content_id in named:
            self.of(content_id).note_commit(connection, named=[content_id])
        for content_id in released:
            self.of(content_id).note_commit(connection, released=[content_id])

    def retire(self, content_ids: Iterable[str]) -> None:
        """Remove content that no row names any more, once replies that may still read it have had their time."""
        for content_id in content_ids:
            self.of(content_id).retire([content_id])

    def close(self) -> None:
        """Remove retired files and end the threads."""
        self.remote.close()
        self.disk.close()
