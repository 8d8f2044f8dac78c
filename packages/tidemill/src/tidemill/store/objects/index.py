"""Read and change the rows of buckets and objects: plain functions that run inside a transaction.

The functions change nothing but the database, so they can run again if a commit must be repeated.
"""

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, delete, insert, select

from tidemill.store.objects.errors import no_such_bucket
from tidemill.store.objects.rows import LISTED_COLUMNS, ListedObject, ObjectInfo, listed_objects
from tidemill.store.objects.schema import buckets, objects, parts, uploads

__all__ = [
    "bucket_created_ms",
    "bucket_is_empty",
    "buckets_by_name",
    "content_named",
    "delete_bucket",
    "delete_object",
    "forget_completed_uploads",
    "get_object",
    "has_completed_uploads",
    "insert_bucket",
    "list_objects",
    "put_object",
    "require_bucket",
    "scan",
    "successor",
    "unnamed_of",
]


def bucket_created_ms(connection: Connection, name: str) -> int | None:
    """Return the time when the bucket was created, or None if there is no such bucket."""
    return connection.execute(select(buckets.c.created_ms).where(buckets.c.name == name)).scalar()


def require_bucket(connection: Connection, name: str) -> None:
    """Raise NoSuchBucket unless there is such a bucket."""
    if bucket_created_ms(connection, name) is None:
        raise no_such_bucket(name)


def buckets_by_name(connection: Connection) -> list[tuple[str, int]]:
    """Return name and creation time (milliseconds since the epoch) of every bucket, sorted by name."""
    rows = connection.execute(select(buckets.c.name, buckets.c.created_ms).order_by(buckets.c.name))
    return [(row.name, row.created_ms) for row in rows]


def insert_bucket(connection: Connection, name: str, created_ms: int) -> bool:
    """Create a bucket; return False if it already exists."""
    if bucket_created_ms(connection, name) is not None:
        return False
    connection.execute(insert(buckets).values(name=name, created_ms=created_ms))
    return True


def bucket_is_empty(connection: Connection, name: str) -> bool:
    """Return whether the bucket has no object and no open upload."""
    first = connection.execute(select(objects.c.key).where(objects.c.bucket == name).limit(1)).first()
    open_upload = select(uploads.c.key).where(uploads.c.bucket == name, uploads.c.completed_ms.is_(None)).limit(1)
    return first is None and connection.execute(open_upload).first() is None


def delete_bucket(connection: Connection, name: str) -> None:
    """Remove the bucket and the records of its completed uploads."""
    connection.execute(delete(uploads).where(uploads.c.bucket == name))
    connection.execute(delete(buckets).where(buckets.c.name == name))


def get_object(connection: Connection, bucket: str, key: str) -> ObjectInfo | None:
    """Return an object, or None if it does not exist.

    Raises:
        StateCorrupt: The row of the object fails its checksum.
    """
    query = select(objects).where(objects.c.bucket == bucket, objects.c.key == key.encode())
    row = connection.execute(query).mappings().first()
    return None if row is None else ObjectInfo.from_row(row)


def put_object(connection: Connection, info: ObjectInfo) -> str | None:
    """Store an object. Return the content id of the object that it replaces, or None."""
    replaced = delete_object(connection, info.bucket, info.key)
    connection.execute(insert(objects).values(info.to_row()))
    return replaced


def delete_object(connection: Connection, bucket: str, key: str) -> str | None:
    """Delete the object's row, even if it is damaged. Return its content id, or None if there was no row."""
    where = (objects.c.bucket == bucket, objects.c.key == key.encode())
    content_id = connection.execute(select(objects.c.content_id).where(*where)).scalar()
    if content_id is not None:
        connection.execute(delete(objects).where(*where))
    return content_id


def unnamed_of(connection: Connection, content_ids: Iterable[str]) -> list[str]:
    """Return those of ``content_ids`` that no row names."""
    return [content_id for content_id in content_ids if not _is_named(connection, content_id)]


def content_named(connection: Connection) -> set[str]:
    """Return the ids of all content that rows name."""
    of_objects = connection.execute(select(objects.c.content_id)).scalars()
    of_parts = connection.execute(select(parts.c.content_id)).scalars()
    return {*of_objects, *of_parts}


def has_completed_uploads(connection: Connection, before_ms: int) -> bool:
    """Return whether any multipart upload was completed before ``before_ms``, in milliseconds since the epoch."""
    return (
        connection.execute(select(uploads.c.key).where(uploads.c.completed_ms < before_ms).limit(1)).first() is not None
    )


def forget_completed_uploads(connection: Connection, before_ms: int) -> None:
    """Delete the rows of multipart uploads that were completed before ``before_ms``, since no client repeats those."""
    connection.execute(delete(uploads).where(uploads.c.completed_ms < before_ms))


def scan(
    connection: Connection, bucket: str, *, start: bytes, prefix: bytes, limit: int
) -> Iterator[tuple[bytes, ObjectInfo]]:
    """Yield keys and objects in key order.

    Args:
        connection: A transaction.
        bucket: Name of the bucket.
        start: The first key to yield, if it exists.
        prefix: Yield only keys that begin with this text.
        limit: Maximum number of objects.

    Raises:
        StateCorrupt: A row fails its checksum.
    """
    query = select(objects).where(objects.c.bucket == bucket, objects.c.key >= max(start, prefix))
    if prefix:
        query = query.where(objects.c.key < successor(prefix))
    for row in connection.execute(query.order_by(objects.c.key).limit(limit)).mappings():
        yield row["key"], ObjectInfo.from_row(row)


def list_objects(connection: Connection, bucket: str, *, start: bytes, prefix: bytes, limit: int) -> list[ListedObject]:
    """Return the objects of `scan`, each with only the members of `ListedObject`. The arguments are those of `scan`.

    Raises:
        StateCorrupt: A row fails its checksum.
    """
    columns = [objects.c[name] for name in LISTED_COLUMNS]
    query = select(*columns).where(objects.c.bucket == bucket, objects.c.key >= max(start, prefix))
    if prefix:
        query = query.where(objects.c.key < successor(prefix))
    return listed_objects(connection.execute(query.order_by(objects.c.key).limit(limit)))


def successor(prefix: bytes) -> bytes:
    """Return the smallest key after all keys that begin with ``prefix``.

    The last byte of ``prefix`` can be incremented, because UTF-8 has no byte 255.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _is_named(connection: Connection, content_id: str) -> bool:
    by_object = select(objects.c.content_id).where(objects.c.content_id == content_id).limit(1)
    by_part = select(parts.c.content_id).where(parts.c.content_id == content_id).limit(1)
    return connection.execute(by_object).first() is not None or connection.execute(by_part).first() is not None
