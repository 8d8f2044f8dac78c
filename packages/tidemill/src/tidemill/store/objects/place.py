"""The interface of the places in which contents are stored."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from sqlalchemy import Connection

from tidemill.store.objects.draft import Content, Digest
from tidemill.store.objects.errors import ObjectDamaged


class ContentPlace(Protocol):
    """Stores immutable contents by id. A returned content is durable, so that a row may name it."""

    def receive(
        self,
        body: AsyncIterable[bytes],
        *,
        name: str,
        size_bytes: int = 0,
        digests: Iterable[Digest] = (),
        sha256: str | None = None,
    ) -> AbstractAsyncContextManager[Content]:
        """Store the bytes of ``body`` as a new content, which is removed after the block unless handed over.

        Args:
            body: The bytes. ``body`` is read to its end, so that checks at its end have passed.
            name: ``bucket/key`` of the future object. A remote S3 uses it in the name of the content, for people.
            size_bytes: The announced length, to refuse early what cannot fit. Default: unknown.
            digests: Further hashes to update with every byte.
            sha256: Expected SHA-256 in hexadecimal. Default: unknown.

        Raises:
            PayloadMismatch: The bytes do not have this SHA-256.
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
            whole_bytes: Expected length of the whole content.
            name: Name of the object, for messages.

        Raises:
            ObjectDamaged: The content is missing, or has another length.
            ServiceUnavailable: The content cannot be read now.
        """
        ...

    def damaged(self, content_id: str, *, name: str) -> ObjectDamaged:
        """Return the error to raise for damaged content; move the content to quarantine if the place has one."""
        ...
