"""Rows of content that no object names: plain functions that run inside a transaction.

The commit that removes the last row of a content records the content here, until it is removed. So after any crash, the
service knows which content it may remove. Content in a remote S3 is also recorded before its upload begins, so that all
garbage there is known without listing a bucket that others may use too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select

from tidemill.store.database.base import ConstantStatement
from tidemill.store.database.pooled import execute
from tidemill.store.objects import index as object_index
from tidemill.store.objects.schema import objects, unnamed

_SCHEME = "s3://"
"""Ids of contents in a remote S3 begin with this. Those of files are hexadecimal, and sort before it."""

_FORGET = ConstantStatement(delete(unnamed).where(unnamed.c.content_id == bindparam("forgotten")))
_NOTE = ConstantStatement(insert(unnamed))


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Content that no row names.

    Attributes:
        content_id: URI of the content.
        uploading: True if the upload has begun and no row was committed; False if an object had the content before.
    """

    content_id: str
    uploading: bool


def note(connection: Connection, content_ids: Iterable[str], *, uploading: bool, since_ms: int) -> None:
    """Record content that no row names.

    Args:
        uploading: Whether their upload begins; False if their last row is removed.
        since_ms: Current time, in milliseconds since the epoch.
    """
    for content_id in content_ids:
        execute(connection, _FORGET, {"forgotten": content_id})
        execute(connection, _NOTE, {"content_id": content_id, "uploading": int(uploading), "since_ms": since_ms})


def forget(connection: Connection, content_ids: Iterable[str]) -> None:
    """Delete the records of content that a row names now, or that has been removed.

    Args:
        connection: A transaction that may write.
    """
    for content_id in content_ids:
        execute(connection, _FORGET, {"forgotten": content_id})


def released_on_disk(connection: Connection) -> set[str]:
    """Return the ids of files whose last row was removed, and that may not be removed yet.

    Args:
        connection: A transaction.
    """
    return set(connection.execute(select(unnamed.c.content_id).where(unnamed.c.content_id < _SCHEME)).scalars())


def noted(connection: Connection, *, before_ms: int, after: str, limit: int) -> list[Unnamed]:
    """Return content in a remote S3 that no row names, and that was recorded before a time or whose upload has begun.

    Args:
        before_ms: The time, in milliseconds since the epoch.
        after: Return only content ids greater than this one.
        limit: Maximum number of rows to read.
    """
    query = select(unnamed.c.content_id, unnamed.c.uploading).where(
        unnamed.c.content_id > max(after, _SCHEME), (unnamed.c.since_ms < before_ms) | (unnamed.c.uploading == 1)
    )
    rows = connection.execute(query.order_by(unnamed.c.content_id).limit(limit))
    found = [Unnamed(row.content_id, bool(row.uploading)) for row in rows]
    # Check the objects too. A recorded content should never have a row, but removing such a content would lose data.
    return [each for each in found if object_index.unnamed_of(connection, [each.content_id])]


def remote_buckets(connection: Connection) -> list[str]:
    """Return the buckets of remote S3 stores that have the content of objects.

    Returns:
        Names, sorted.
    """
    buckets: list[str] = []
    start = _SCHEME
    while True:
        query = select(objects.c.content_id).where(objects.c.content_id >= start, objects.c.content_id < "s3:0")
        found = connection.execute(query.order_by(objects.c.content_id).limit(1)).scalar()
        if found is None:
            return buckets
        buckets.append(found.removeprefix(_SCHEME).partition("/")[0])
        start = f"{_SCHEME}{buckets[-1]}0"  # "0" follows "/"
