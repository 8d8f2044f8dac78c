"""Reading and changing the rows of multipart uploads and their parts: plain functions inside a transaction."""

from collections.abc import Iterator

from sqlalchemy import Connection, delete, insert, select

from tidemill.store.objects import index as object_index
from tidemill.store.objects.errors import no_such_upload
from tidemill.store.objects.rows import PartInfo, UploadInfo
from tidemill.store.objects.schema import parts, uploads

__all__ = ["delete_upload", "forget_parts", "list_parts", "put_part", "put_upload", "require_upload", "scan_uploads"]

_SCAN_ROWS = 1000


def require_upload(
    connection: Connection, bucket: str, key: str, upload_id: str, *, complete_too: bool = False
) -> UploadInfo:
    """The upload.

    Args:
        connection: A transaction.
        bucket: Its bucket.
        key: Its key.
        upload_id: Its id.
        complete_too: Whether one that is complete will do.

    Raises:
        NoSuchBucket: There is no such bucket.
        NoSuchUpload: There is no such upload.
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
    """Store the upload, and replace its earlier state."""
    row = upload.to_row()
    connection.execute(
        delete(uploads).where(
            uploads.c.bucket == upload.bucket, uploads.c.key == row["key"], uploads.c.upload_id == upload.upload_id
        )
    )
    connection.execute(insert(uploads).values(row))


def delete_upload(connection: Connection, upload: UploadInfo) -> list[str]:
    """Remove the upload and its parts; returns the ids of their content."""
    released = forget_parts(connection, upload.upload_id)
    connection.execute(
        delete(uploads).where(
            uploads.c.bucket == upload.bucket,
            uploads.c.key == upload.key.encode(),
            uploads.c.upload_id == upload.upload_id,
        )
    )
    return released


def list_parts(
    connection: Connection, upload_id: str, *, after: int = 0, limit: int | None = None
) -> tuple[PartInfo, ...]:
    """Up to ``limit`` parts with a number above ``after``, in order."""
    query = select(parts).where(parts.c.upload_id == upload_id, parts.c.part_number > after)
    rows = connection.execute(query.order_by(parts.c.part_number).limit(limit)).mappings()
    return tuple(PartInfo.from_row(row) for row in rows)


def put_part(connection: Connection, part: PartInfo) -> list[str]:
    """Store a part; returns the content id of the one with that number that it replaces."""
    where = (parts.c.upload_id == part.upload_id, parts.c.part_number == part.part_number)
    replaced = list(connection.execute(select(parts.c.content_id).where(*where)).scalars())
    connection.execute(delete(parts).where(*where))
    connection.execute(insert(parts).values(part.to_row()))
    return replaced


def forget_parts(connection: Connection, upload_id: str) -> list[str]:
    """Remove all parts of an upload; returns the ids of their content."""
    released = list(connection.execute(select(parts.c.content_id).where(parts.c.upload_id == upload_id)).scalars())
    connection.execute(delete(parts).where(parts.c.upload_id == upload_id))
    return released


def scan_uploads(
    connection: Connection, bucket: str, *, start: tuple[bytes, str], prefix: bytes
) -> Iterator[UploadInfo]:
    """Open uploads by key, then by id, that follow the key and id ``start``, whose key begins with ``prefix``."""
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
        rows = [UploadInfo.from_row(row) for row in connection.execute(query).mappings()]
        for upload in rows:
            yield upload
            key, upload_id = upload.key.encode(), upload.upload_id
        if len(rows) < _SCAN_ROWS:
            return
