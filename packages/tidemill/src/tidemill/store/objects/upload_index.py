"""Read and change the rows of multipart uploads and their parts: plain functions that run inside a transaction."""

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
    """Return a multipart upload.

    Args:
        connection: A transaction.
        bucket: Bucket of the upload.
        key: Key of the upload.
        upload_id: Id of the upload.
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
    """Store an upload; replace its earlier row, if any."""
    row = upload.to_row()
    connection.execute(
        delete(uploads).where(
            uploads.c.bucket == upload.bucket, uploads.c.key == row["key"], uploads.c.upload_id == upload.upload_id
        )
    )
    connection.execute(insert(uploads).values(row))


def delete_upload(connection: Connection, upload: UploadInfo) -> list[str]:
    """Remove an upload and its parts. Return the content ids of the parts."""
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
    """Return the parts of an upload in the order of their numbers.

    Args:
        connection: A transaction.
        upload_id: Id of the upload.
        after: Return only parts with a greater number. Default: 0.
        limit: Maximum number of parts. Default: no limit.
    """
    query = select(parts).where(parts.c.upload_id == upload_id, parts.c.part_number > after)
    rows = connection.execute(query.order_by(parts.c.part_number).limit(limit)).mappings()
    return tuple(PartInfo.from_row(row) for row in rows)


def put_part(connection: Connection, part: PartInfo) -> list[str]:
    """Store a part. Return the content id of the part that it replaces, if any."""
    where = (parts.c.upload_id == part.upload_id, parts.c.part_number == part.part_number)
    replaced = list(connection.execute(select(parts.c.content_id).where(*where)).scalars())
    connection.execute(delete(parts).where(*where))
    connection.execute(insert(parts).values(part.to_row()))
    return replaced


def forget_parts(connection: Connection, upload_id: str) -> list[str]:
    """Remove all parts of an upload. Return their content ids."""
    released = list(connection.execute(select(parts.c.content_id).where(parts.c.upload_id == upload_id)).scalars())
    connection.execute(delete(parts).where(parts.c.upload_id == upload_id))
    return released


def scan_uploads(
    connection: Connection, bucket: str, *, start: tuple[bytes, str], prefix: bytes
) -> Iterator[UploadInfo]:
    """Yield open uploads in the order of key and id.

    Args:
        connection: A transaction.
        bucket: Name of the bucket.
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
        rows = [UploadInfo.from_row(row) for row in connection.execute(query).mappings()]
        for upload in rows:
            yield upload
            key, upload_id = upload.key.encode(), upload.upload_id
        if len(rows) < _SCAN_ROWS:
            return
