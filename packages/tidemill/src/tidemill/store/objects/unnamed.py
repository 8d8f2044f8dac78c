"""Rows of content in another S3 that no object names: plain functions that run inside a transaction.

Content is noted here before its upload begins, and again by the commit that drops the last row that names it. So all
garbage in the other S3 is known exactly, after any crash, without listing a bucket that others use too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from tidemill.store.objects import index as object_index
from tidemill.store.objects.schema import objects, unnamed

__all__ = ["Unnamed", "forget", "note", "noted", "remote_buckets"]

_SCHEME = "s3://"


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Content that no row names.

    Attributes:
        uploading: Its upload had begun and nothing was committed; False if an object had named it.
    """

    content_id: str
    uploading: bool


def note(connection: Connection, content_ids: Iterable[str], *, uploading: bool, since_ms: int) -> None:
    """Note content that no row names."""
    for content_id in content_ids:
        forget(connection, [content_id])
        connection.execute(insert(unnamed).values(content_id=content_id, uploading=int(uploading), since_ms=since_ms))


def forget(connection: Connection, content_ids: Iterable[str]) -> None:
    """Forget content that a row names now, or that has been removed."""
    for content_id in content_ids:
        connection.execute(delete(unnamed).where(unnamed.c.content_id == content_id))


def noted(connection: Connection, *, before_ms: int, after: str, limit: int) -> list[Unnamed]:
    """Content that was noted before a time, or whose upload has begun at any time, and that no row names.

    Args:
        connection: A transaction.
        before_ms: The time.
        after: Content ids that are not greater are left out.
        limit: Look at so many rows.
    """
    query = select(unnamed.c.content_id, unnamed.c.uploading).where(
        unnamed.c.content_id > after, (unnamed.c.since_ms < before_ms) | (unnamed.c.uploading == 1)
    )
    rows = connection.execute(query.order_by(unnamed.c.content_id).limit(limit))
    found = [Unnamed(row.content_id, bool(row.uploading)) for row in rows]
    # It never should be, but what is removed is lost.
    return [each for each in found if object_index.unnamed_of(connection, [each.content_id])]


def remote_buckets(connection: Connection) -> list[str]:
    """Buckets of other S3 stores in which content of objects lies."""
    buckets: list[str] = []
    start = _SCHEME
    while True:
        query = select(objects.c.content_id).where(objects.c.content_id >= start, objects.c.content_id < "s3:0")
        found = connection.execute(query.order_by(objects.c.content_id).limit(1)).scalar()
        if found is None:
            return buckets
        buckets.append(found.removeprefix(_SCHEME).partition("/")[0])
        start = f"{_SCHEME}{buckets[-1]}0"  # "0" follows "/"
