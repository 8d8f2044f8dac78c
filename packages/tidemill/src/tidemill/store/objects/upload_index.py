"""Rows of multipart uploads and their parts, read and changed by plain functions inside a transaction.

Their rows have checksums, as the rows of objects (`tidemill.store.objects.index`).
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from tidemill.errors import StateCorrupt
from tidemill.store.objects import index as object_index
from tidemill.store.objects.errors import no_such_upload
from tidemill.store.objects.index import ObjectAttributes, open_row, seal
from tidemill.store.objects.schema import parts, uploads

_SCAN_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """One uploaded part of an open multipart upload.

    Attributes:
        part_number: Number of the part, 1 to 10,000.
        etag: MD5 in hexadecimal, without quotes.
        sha256: SHA-256 in hexadecimal.
        modified_ms: Time of the upload, in milliseconds since the epoch.
        checksums: Base64 checksums by member name, e.g. ``ChecksumCRC32``.
    """

    upload_id: str
    part_number: int
    content_id: str
    size_bytes: int
    etag: str
    sha256: str
    modified_ms: int
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "PartInfo":
        """Read a row of the table `parts`.

        Raises:
            StateCorrupt: The row's checksum does not match.
        """
        values = open_row(row, what=f"part {row['part_number']} of upload {row['upload_id']}")
        document = values.pop("document")
        return cls(checksums=document["checksums"], **values)

    def to_row(self) -> dict[str, Any]:
        """Return the row of this part."""
        return seal(
            {
                "upload_id": self.upload_id,
                "part_number": self.part_number,
                "content_id": self.content_id,
                "size_bytes": self.size_bytes,
                "etag": self.etag,
                "sha256": self.sha256,
                "modified_ms": self.modified_ms,
                "document": {"checksums": dict(self.checksums)},
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadInfo:
    """One multipart upload.

    Attributes:
        upload_id: Id of the upload; ids of later uploads sort later.
        key: Key of the future object.
        initiated_ms: Time at which the upload began, in milliseconds since the epoch.
        completed_ms: Time at which the upload was completed, in milliseconds since the epoch; None while it is open.
        attributes: Attributes of the future object.
        algorithm: Checksum algorithm that the client announced, e.g. ``CRC32``; may be empty.
        outcome: The answer to CompleteMultipartUpload and the parts that it named; empty while the upload is open.
        publisher: Publisher of the future object, as in `ObjectInfo`.
        is_damaged: Whether the row fails its checksum, so that each value may be wrong. Only in listings.
    """

    upload_id: str
    bucket: str
    key: str
    initiated_ms: int
    completed_ms: int | None = None
    attributes: ObjectAttributes
    algorithm: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    publisher: str | None = None
    is_damaged: bool = False

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "UploadInfo":
        """Read a row of the table `uploads`.

        Raises:
            StateCorrupt: The row's checksum does not match.
        """
        values = open_row(row, what=f"upload {row['upload_id']}")
        document = values.pop("document")
        key = values.pop("key").decode()
        attributes = ObjectAttributes(**document.pop("attributes"))
        return cls(key=key, attributes=attributes, **values, **document)

    def to_row(self) -> dict[str, Any]:
        """Return the row of this upload."""
        attributes = self.attributes
        return seal(
            {
                "bucket": self.bucket,
                "key": self.key.encode(),
                "upload_id": self.upload_id,
                "initiated_ms": self.initiated_ms,
                "completed_ms": self.completed_ms,
                "document": {
                    "attributes": {
                        "content_type": attributes.content_type,
                        "metadata": dict(attributes.metadata),
                        "headers": dict(attributes.headers),
                        "tags": dict(attributes.tags),
                        "checksum_type": attributes.checksum_type,
                    },
                    "algorithm": self.algorithm,
                    "outcome": dict(self.outcome),
                    "publisher": self.publisher,
                },
            }
        )


def require_upload(
    connection: Connection, bucket: str, key: str, upload_id: str, *, complete_too: bool = False
) -> UploadInfo:
    """Return a multipart upload.

    Args:
        complete_too: Whether to return a completed upload too. Default: false.

    Raises:
        NoSuchBucket: There is no such bucket.
        NoSuchUpload: There is no such upload, or it is completed and ``complete_too`` is false.
    """
    query = select(uploads).where(
        uploads.c.bucket == bucket, uploads.c.key == key.encode(), uploads.c.upload_id == upload_id
    )
    row = connection.execute(query).mappings().first()
    if row is None:
        object_index.require_bucket(connection, bucket)
        raise no_such_upload(upload_id)
    upload = UploadInfo.from_row(row)
    if upload.completed_ms is not None and not complete_too:
        raise no_such_upload(upload_id)
    return upload


def put_upload(connection: Connection, upload: UploadInfo) -> None:
    """Store an upload; replace its earlier row, if any.

    Args:
        connection: A transaction that may write.
    """
    row = upload.to_row()
    connection.execute(
        delete(uploads).where(
            uploads.c.bucket == upload.bucket, uploads.c.key == row["key"], uploads.c.upload_id == upload.upload_id
        )
    )
    connection.execute(insert(uploads).values(row))


def delete_open_upload(connection: Connection, bucket: str, key: str, upload_id: str) -> list[str]:
    """Remove an open upload, even if its row is damaged, and its parts. Return the content ids of the parts.

    Raises:
        NoSuchBucket: There is no such bucket.
        NoSuchUpload: There is no such upload, or it is completed.
    """
    removed = connection.execute(
        delete(uploads).where(
            uploads.c.bucket == bucket,
            uploads.c.key == key.encode(),
            uploads.c.upload_id == upload_id,
            uploads.c.completed_ms.is_(None),
        )
    )
    if not removed.rowcount:
        object_index.require_bucket(connection, bucket)
        raise no_such_upload(upload_id)
    return forget_parts(connection, upload_id)


def list_parts(
    connection: Connection, upload_id: str, *, after: int = 0, limit: int | None = None
) -> tuple[PartInfo, ...]:
    """Return the parts of an upload in the order of their numbers. A damaged part counts as not uploaded.

    Args:
        after: Return only parts with a greater number. Default: 0.
        limit: Maximum number of parts. Default: no limit.
    """
    query = select(parts).where(parts.c.upload_id == upload_id, parts.c.part_number > after)
    found: list[PartInfo] = []
    with connection.execute(query.order_by(parts.c.part_number)) as rows:
        for row in rows.mappings():
            if len(found) == limit:
                break
            with contextlib.suppress(StateCorrupt):
                found.append(PartInfo.from_row(row))
    return tuple(found)


def put_part(connection: Connection, part: PartInfo) -> list[str]:
    """Store a part. Return the content id of the part that it replaces, if any.

    Args:
        part: The row.

    Returns:
        At most one id.
    """
    where = (parts.c.upload_id == part.upload_id, parts.c.part_number == part.part_number)
    replaced = list(connection.execute(select(parts.c.content_id).where(*where)).scalars())
    connection.execute(delete(parts).where(*where))
    connection.execute(insert(parts).values(part.to_row()))
    return replaced


def forget_parts(connection: Connection, upload_id: str) -> list[str]:
    """Remove all parts of an upload. Return their content ids.

    Args:
        connection: A transaction that may write.
    """
    released = list(connection.execute(select(parts.c.content_id).where(parts.c.upload_id == upload_id)).scalars())
    connection.execute(delete(parts).where(parts.c.upload_id == upload_id))
    return released


def scan_uploads(
    connection: Connection, bucket: str, *, start: tuple[bytes, str], prefix: bytes
) -> Iterator[UploadInfo]:
    """Yield open uploads in the order of key and id; one whose row is damaged with ``is_damaged`` and what is known.

    Args:
        start: Key and upload id; only later uploads are yielded.
        prefix: Yield only uploads whose key begins with this text.
    """
    key, upload_id = max(start, (prefix, ""))
    while True:
        query = (
            select(uploads)
            .where(uploads.c.bucket == bucket, uploads.c.completed_ms.is_(None))
            .where((uploads.c.key > key) | ((uploads.c.key == key) & (uploads.c.upload_id > upload_id)))
            .order_by(uploads.c.key, uploads.c.upload_id)
            .limit(_SCAN_ROWS)
        )
        if prefix:
            query = query.where(uploads.c.key < object_index.successor(prefix))
        rows = connection.execute(query).mappings().all()
        begun = key, upload_id
        for row in rows:
            yield _upload_or_damaged(row)
            # A damaged key may be out of order.
            key, upload_id = max((key, upload_id), (bytes(row["key"]), str(row["upload_id"])))
        if len(rows) < _SCAN_ROWS or (key, upload_id) == begun:
            return


def _upload_or_damaged(row: Mapping[Any, Any]) -> UploadInfo:
    try:
        return UploadInfo.from_row(row)
    except StateCorrupt:
        return UploadInfo(
            upload_id=object_index.shown(row["upload_id"]),
            bucket=row["bucket"],
            key=object_index.shown(row["key"]),
            initiated_ms=object_index.number(row["initiated_ms"], most=object_index.LAST_MS),
            attributes=ObjectAttributes(),
            is_damaged=True,
        )


def has_completed_uploads(connection: Connection, before_ms: int) -> bool:
    """Return whether any multipart upload was completed before ``before_ms``, in milliseconds since the epoch.

    Args:
        before_ms: Upper bound, exclusive.
    """
    return (
        connection.execute(select(uploads.c.key).where(uploads.c.completed_ms < before_ms).limit(1)).first() is not None
    )


def forget_completed_uploads(connection: Connection, before_ms: int) -> None:
    """Delete the rows of multipart uploads that were completed before ``before_ms``, since no client repeats those.

    Args:
        before_ms: Milliseconds since the epoch, exclusive.
    """
    connection.execute(delete(uploads).where(uploads.c.completed_ms < before_ms))
