"""List the keys of a bucket: all of them, or a page with common prefixes.

The cost of a page depends on its size, not on its position. A page begins at a key (inclusive) and contains the start
of the next page, so that no state is kept between pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from tidemill.store.database.base import Database
from tidemill.store.objects import index as object_index
from tidemill.store.objects.index import DamagedObject, ListedObject, ObjectInfo

_SCAN_ROWS = 1000
_SCAN_ROWS_IN_FOLDER = 32
"""With a delimiter, most rows of a scan may be in one folder: read few rows, then skip the rest of the folder."""


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of a listing.

    Attributes:
        objects: Objects of the page, in the order of keys.
        prefixes: Common prefixes of the page, in order.
        last: The last key or common prefix of the page, whichever is later; empty on an empty page.
        next_start: Key at which the next page begins; None on the last page.
    """

    objects: tuple[ObjectInfo | DamagedObject, ...]
    prefixes: tuple[str, ...]
    last: str
    next_start: bytes | None


def after_key(key: str) -> bytes:
    """Return the start of a page that follows ``key``.

    Args:
        key: The last key of a page.
    """
    return key.encode() + b"\0"


def after_prefix(prefix: str) -> bytes:
    """Return the start of a page that follows all keys under ``prefix``.

    Args:
        prefix: The prefix that was skipped, not empty.
    """
    return object_index.successor(prefix.encode())


def all_objects(database: Database, bucket: str, prefix: str) -> Iterator[ObjectInfo]:
    """Yield all objects whose key begins with ``prefix``, in key order. Reads a thousand rows at a time.

    Args:
        prefix: Empty for all objects.

    Raises:
        StateCorrupt: A row fails its checksum.
    """
    start = b""
    while True:
        rows = database.read(
            lambda c, start=start: list(
                object_index.scan(c, bucket, start=start, prefix=prefix.encode(), limit=_SCAN_ROWS)
            )
        )
        for _, info in rows:
            if isinstance(info, DamagedObject):
                raise object_index.corrupt_row(f"object s3://{bucket}/{info.key}")
            yield info
        if len(rows) < _SCAN_ROWS:
            return
        start = after_key(rows[-1][1].key)


def batches_of_objects(database: Database, bucket: str, prefix: str) -> Iterator[list[ListedObject]]:
    """Do the same as `all_objects`, in lists of up to a thousand, each object with only the members of `ListedObject`.

    Args:
        database: Has the rows.
        prefix: Empty for all objects.

    Raises:
        StateCorrupt: A row fails its checksum.
    """
    start = b""
    while True:
        found = database.read(
            lambda c, start=start: object_index.list_objects(
                c, bucket, start=start, prefix=prefix.encode(), limit=_SCAN_ROWS
            )
        )
        if found:
            yield found
        if len(found) < _SCAN_ROWS:
            return
        start = after_key(found[-1].key)


def list_page(
    connection: Connection, bucket: str, *, prefix: str, delimiter: str, start: bytes, limit: int
) -> ObjectPage:
    """List up to ``limit`` keys and common prefixes.

    Args:
        connection: A transaction, whose snapshot the page shows.
        bucket: The bucket. If it does not exist, the page is empty.
        prefix: List only keys that begin with this text.
        delimiter: Combine keys that contain this text after the prefix into common prefixes; empty for none.
        start: The first key that may appear (`after_key`, `after_prefix`, ``b""`` or an earlier ``next_start``).
        limit: Maximum number of keys and common prefixes together; 0 returns an empty page.
    """
    found: list[ObjectInfo | DamagedObject] = []
    prefixes: list[str] = []
    last = ""
    if limit <= 0:
        return ObjectPage((), (), "", None)
    for key, item in _items(connection, bucket, prefix.encode(), delimiter.encode(), start):
        if len(found) + len(prefixes) == limit:
            return ObjectPage(tuple(found), tuple(prefixes), last, key)
        if item is None:
            prefixes.append(object_index.shown(key))
        else:
            found.append(item)
        last = object_index.shown(key)
    return ObjectPage(tuple(found), tuple(prefixes), last, None)


def _items(
    connection: Connection, bucket: str, prefix: bytes, delimiter: bytes, start: bytes
) -> Iterator[tuple[bytes, ObjectInfo | DamagedObject | None]]:
    """Yield keys with their objects, and common prefixes with None, in order."""
    rows_wanted = _SCAN_ROWS_IN_FOLDER if delimiter else _SCAN_ROWS
    while True:
        rows = 0
        begun = start
        folder: bytes | None = None
        for key, info in object_index.scan(connection, bucket, start=start, prefix=prefix, limit=rows_wanted):
            rows += 1
            if folder is not None and key.startswith(folder):
                continue
            folder = _folder(key, prefix, delimiter)
            yield (key, info) if folder is None else (folder, None)
            start = max(start, key + b"\0")  # a damaged key may be out of order
        if folder is not None:
            start = max(start, object_index.successor(folder))
        if rows < rows_wanted or start == begun:
            return


def _folder(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    if not delimiter:
        return None
    end = key.find(delimiter, len(prefix))
    return None if end < 0 else key[: end + len(delimiter)]
