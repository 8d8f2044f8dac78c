"""The index of the object store: rows of buckets and objects, read and changed by plain functions inside a transaction.

The functions change nothing but the database, so they can run again if a commit must be repeated. A key is any text of
at most 1,024 bytes that a listing can show; it never becomes a path. Each row has a checksum, which is checked when the
row is read: it detects a flipped bit inside a row, which SQLite does not.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, select

from tidemill.core.names import KEY_MAX_BYTES
from tidemill.errors import AwsError, StateCorrupt
from tidemill.store.database.base import ConstantStatement
from tidemill.store.database.pooled import execute
from tidemill.store.objects.errors import InvalidArgument, no_such_bucket
from tidemill.store.objects.schema import buckets, objects, parts, uploads

LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, which every client can show."""

# Characters that XML 1.0 cannot contain, so that no listing could show them.
_UNLISTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_LISTED_COLUMNS = ("bucket", "content_id", "document", "etag", "key", "modified_ms", "sha256", "size_bytes", "checksum")
"""Columns of the rows that `list_objects` reads: first those that the checksum covers, in its order; the checksum."""

_LISTED_FIELDS = b"".join(b"%b:%%d:%%b" % name.encode() for name in _LISTED_COLUMNS[:-1])


class ListedObject(NamedTuple):
    """The members of `ObjectInfo` that a channel needs. A tuple, because a channel may have a million objects."""

    key: str
    content_id: str
    size_bytes: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedObject:
    """What the row of an object says that fails its checksum. Each value may be wrong.

    Attributes:
        key: Key of the object; characters that no listing could show are replaced.
        size_bytes: Length in bytes; 0 if the row has no number.
        etag: ETag, without quotes.
        modified_ms: Time of the last modification, in milliseconds since the epoch; 0 if the row has no time.
    """

    key: str
    size_bytes: int
    etag: str
    modified_ms: int

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "DamagedObject":
        """Read a damaged row of the table `objects`. Its columns may have values of any type.

        Args:
            row: Columns by name.
        """
        return cls(
            key=shown(row["key"]),
            size_bytes=number(row["size_bytes"]),
            etag=shown(row["etag"]),
            modified_ms=number(row["modified_ms"], most=LAST_MS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAttributes:
    """The properties of an object that a client sets, besides its bytes.

    Attributes:
        content_type: Media type.
        metadata: User metadata; names are in lower case.
        headers: Members of replies that are stored with the object: ``CacheControl``, ``ContentEncoding``, ...; also
            those about storage, which have no effect: ``StorageClass``, ``ServerSideEncryption``, ...
        checksums: Base64 checksums by member name, e.g. ``ChecksumCRC32``.
        checksum_type: ``FULL_OBJECT``, or ``COMPOSITE`` for a checksum of the parts' checksums.
        part_sizes: Sizes in bytes of the parts of a multipart object; empty for any other.
    """

    content_type: str = "binary/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    checksum_type: str = "FULL_OBJECT"
    tags: Mapping[str, str] = field(default_factory=dict)
    part_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo(ObjectAttributes):
    """One stored object.

    Attributes:
        key: Key of the object; never used as a path.
        content_id: Id of the content. Several objects may have the same content.
        etag: MD5 in hexadecimal, without quotes. For a multipart object, the MD5 of the parts' MD5s and ``-N``; for a
            large file that a client has handed over, half of the SHA-256 and ``-1``.
        sha256: SHA-256 of the whole content, in hexadecimal.
        modified_ms: Time of the last modification, in milliseconds since the epoch.
        publisher: The job that published the object, e.g. ``training-job/digits``; empty if none did; None in rows of
            earlier versions, which did not record it.
    """

    bucket: str
    key: str
    content_id: str
    size_bytes: int
    etag: str
    sha256: str
    modified_ms: int
    publisher: str | None = None

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "ObjectInfo":
        """Read a row of the table `objects`.

        Raises:
            StateCorrupt: The row's checksum does not match.
        """
        values = open_row(row, what=f"object s3://{row['bucket']}/{shown(row['key'])}")
        document = values.pop("document")
        document["part_sizes"] = tuple(document["part_sizes"])
        key = values.pop("key").decode()
        return cls(key=key, **values, **document)

    @classmethod
    def from_columns(cls, values: Sequence[Any]) -> "ObjectInfo":
        """Read the values of a row, in the order of the table's columns; otherwise as `from_row`."""
        return cls.from_row(dict(zip(objects.c.keys(), values, strict=True)))

    def to_row(self) -> dict[str, Any]:
        """Return the row of this object."""
        return seal(
            {
                "bucket": self.bucket,
                "key": self.key.encode(),
                "content_id": self.content_id,
                "size_bytes": self.size_bytes,
                "etag": self.etag,
                "sha256": self.sha256,
                "modified_ms": self.modified_ms,
                "document": {
                    "content_type": self.content_type,
                    "metadata": dict(self.metadata),
                    "headers": dict(self.headers),
                    "checksums": dict(self.checksums),
                    "checksum_type": self.checksum_type,
                    "tags": dict(self.tags),
                    "part_sizes": list(self.part_sizes),
                    "publisher": self.publisher,
                },
            }
        )


Precondition = Callable[[ObjectInfo | None], None]
"""Called inside a transaction with the existing object, or None. Raises an exception to refuse the change."""


def check_key(key: str) -> None:
    """Refuse a text that cannot be a key.

    Raises:
        AwsError: KeyTooLongError: ``key`` has more than 1,024 bytes as UTF-8.
        InvalidArgument: ``key`` is empty, or contains characters that no listing can show.
    """
    if not key or _UNLISTABLE.search(key):
        raise InvalidArgument(
            f"{key!r} cannot be a key: it must not be empty or hold control characters other than tab and line ends"
        )
    size_bytes = len(key.encode())
    if size_bytes > KEY_MAX_BYTES:
        raise AwsError(
            f"the key has {size_bytes} bytes as UTF-8; at most {KEY_MAX_BYTES} are allowed",
            code="KeyTooLongError",
            members={"Size": size_bytes, "MaxSizeAllowed": KEY_MAX_BYTES},
        )


_KEYS_PER_STATEMENT = 500

_OF_KEY = and_(objects.c.bucket == bindparam("by_bucket"), objects.c.key == bindparam("by_key"))
BUCKET_CREATED = ConstantStatement(select(buckets.c.created_ms).where(buckets.c.name == bindparam("by_name")))
"""Selects when the bucket ``by_name`` was created."""
OBJECT = ConstantStatement(select(objects).where(_OF_KEY))
"""Selects the row of the object `of_key`; `ObjectInfo.from_columns` reads it."""
_CONTENT_ID = ConstantStatement(select(objects.c.content_id).where(_OF_KEY))
_INSERT = ConstantStatement(insert(objects))
_DELETE = ConstantStatement(delete(objects).where(_OF_KEY))
_NAMED_BY = tuple(
    ConstantStatement(select(exists().where(table.c.content_id == bindparam("by_content"))))
    for table in (objects, parts)
)


def bucket_created_ms(connection: Connection, name: str) -> int | None:
    """Return the time when the bucket was created, or None if there is no such bucket.

    Args:
        connection: A transaction of the database, as in all functions of this module.

    Returns:
        Milliseconds since the epoch.
    """
    rows = execute(connection, BUCKET_CREATED, {"by_name": name})
    return rows[0][0] if rows else None


def require_bucket(connection: Connection, name: str) -> None:
    """Raise NoSuchBucket unless there is such a bucket.

    Raises:
        NoSuchBucket: If there is none.
    """
    if bucket_created_ms(connection, name) is None:
        raise no_such_bucket(name)


def buckets_by_name(connection: Connection) -> list[tuple[str, int]]:
    """Return name and creation time (milliseconds since the epoch) of every bucket, sorted by name.

    Args:
        connection: A transaction.
    """
    rows = connection.execute(select(buckets.c.name, buckets.c.created_ms).order_by(buckets.c.name))
    return [(row.name, row.created_ms) for row in rows]


def insert_bucket(connection: Connection, name: str, created_ms: int) -> bool:
    """Create a bucket; return False if it already exists.

    Args:
        created_ms: Milliseconds since the epoch.
    """
    if bucket_created_ms(connection, name) is not None:
        return False
    connection.execute(insert(buckets).values(name=name, created_ms=created_ms))
    return True


def bucket_is_empty(connection: Connection, name: str) -> bool:
    """Return whether the bucket has no object and no open upload.

    Args:
        connection: A transaction.
    """
    first = connection.execute(select(objects.c.key).where(objects.c.bucket == name).limit(1)).first()
    open_upload = select(uploads.c.key).where(uploads.c.bucket == name, uploads.c.completed_ms.is_(None)).limit(1)
    return first is None and connection.execute(open_upload).first() is None


def delete_bucket(connection: Connection, name: str) -> None:
    """Remove the bucket and the records of its completed uploads.

    Args:
        name: Name of the bucket, which is empty.
    """
    connection.execute(delete(uploads).where(uploads.c.bucket == name))
    connection.execute(delete(buckets).where(buckets.c.name == name))


def get_object(connection: Connection, bucket: str, key: str) -> ObjectInfo | None:
    """Return an object, or None if it does not exist.

    Raises:
        StateCorrupt: The row of the object fails its checksum.
    """
    rows = execute(connection, OBJECT, of_key(bucket, key))
    return ObjectInfo.from_columns(rows[0]) if rows else None


def put_object(connection: Connection, info: ObjectInfo, *, precondition: Precondition | None = None) -> list[str]:
    """Store an object. Return the content id of the object that it replaces, if there is one.

    Args:
        info: The row.
        precondition: Refuses the change. Default: none.

    Raises:
        NoSuchBucket: Its bucket does not exist.
    """
    row, where = info.to_row(), of_key(info.bucket, info.key)
    if not execute(connection, BUCKET_CREATED, {"by_name": info.bucket}):
        raise no_such_bucket(info.bucket)
    if precondition is not None:
        precondition(get_object(connection, info.bucket, info.key))
    replaced = execute(connection, _CONTENT_ID, where)
    if replaced:
        execute(connection, _DELETE, where)
    execute(connection, _INSERT, row)
    return [content_id for (content_id,) in replaced]


def put_objects(connection: Connection, bucket: str, infos: Sequence[ObjectInfo]) -> list[str]:
    """Store objects of one bucket; later ones replace earlier ones of the same key. Return the content ids replaced.

    A few statements for all rows: a statement costs more time than the row.

    Args:
        infos: The rows, in the order of their puts.
    """
    last = {info.key.encode(): info for info in infos}
    released = [info.content_id for info in infos if last[info.key.encode()] is not info]
    keys = list(last)
    for begin in range(0, len(keys), _KEYS_PER_STATEMENT):
        where = (objects.c.bucket == bucket, objects.c.key.in_(keys[begin : begin + _KEYS_PER_STATEMENT]))
        replaced = connection.execute(select(objects.c.content_id).where(*where)).scalars().all()
        if replaced:
            connection.execute(delete(objects).where(*where))
            released += replaced
    connection.execute(insert(objects), [info.to_row() for info in last.values()])
    return released


def delete_object(connection: Connection, bucket: str, key: str) -> str | None:
    """Delete the object's row, even if it is damaged. Return its content id, or None if there was no row.

    Args:
        key: The key; a missing one is no error.
    """
    where = of_key(bucket, key)
    rows = execute(connection, _CONTENT_ID, where)
    if not rows:
        return None
    execute(connection, _DELETE, where)
    content_id: str = rows[0][0]
    return content_id


def unnamed_of(connection: Connection, content_ids: Iterable[str]) -> list[str]:
    """Return those of ``content_ids`` that no row names.

    Args:
        content_ids: Ids to look for in objects and parts.
    """
    return [content_id for content_id in content_ids if not _is_named(connection, content_id)]


def content_named(connection: Connection) -> set[str]:
    """Return the ids of all content that rows name.

    Args:
        connection: A transaction.
    """
    of_objects = connection.execute(select(objects.c.content_id)).scalars()
    of_parts = connection.execute(select(parts.c.content_id)).scalars()
    return {*of_objects, *of_parts}


def summarize(connection: Connection, bucket: str, *, prefix: bytes) -> tuple[int, int]:
    """Return the number of objects whose keys begin with ``prefix``, and their size in bytes.

    Args:
        prefix: UTF-8; empty for all keys.
    """
    query = select(func.count(), func.coalesce(func.sum(objects.c.size_bytes), 0)).where(
        objects.c.bucket == bucket, objects.c.key >= prefix
    )
    if prefix:
        query = query.where(objects.c.key < successor(prefix))
    count, size_bytes = connection.execute(query).one()
    return count, int(size_bytes)


def scan(
    connection: Connection, bucket: str, *, start: bytes, prefix: bytes, limit: int
) -> Iterator[tuple[bytes, ObjectInfo | DamagedObject]]:
    """Yield keys and objects in key order. A damaged row is yielded as such, so that it hides no other object.

    Args:
        start: The first key to yield, if it exists.
        prefix: Yield only keys that begin with this text.
        limit: Maximum number of objects.
    """
    query = select(objects).where(objects.c.bucket == bucket, objects.c.key >= max(start, prefix))
    if prefix:
        query = query.where(objects.c.key < successor(prefix))
    for row in connection.execute(query.order_by(objects.c.key).limit(limit)).mappings():
        try:
            info: ObjectInfo | DamagedObject = ObjectInfo.from_row(row)
        except StateCorrupt:
            info = DamagedObject.from_row(row)
        yield _bytes(row["key"]), info


def list_objects(connection: Connection, bucket: str, *, start: bytes, prefix: bytes, limit: int) -> list[ListedObject]:
    """Return the objects of `scan`, each with only the members of `ListedObject`. The arguments are those of `scan`.

    Raises:
        StateCorrupt: A row fails its checksum: a job must not miss a part of its data.
    """
    columns = [objects.c[name] for name in _LISTED_COLUMNS]
    query = select(*columns).where(objects.c.bucket == bucket, objects.c.key >= max(start, prefix))
    if prefix:
        query = query.where(objects.c.key < successor(prefix))
    return _listed_objects(connection.execute(query.order_by(objects.c.key).limit(limit)))


def successor(prefix: bytes) -> bytes:
    """Return the smallest key after all keys that begin with ``prefix``.

    The last byte of ``prefix`` can be incremented, because UTF-8 has no byte 255.

    Args:
        prefix: UTF-8, not empty.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1])


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``values``, with ``document`` as JSON text and a checksum over all columns.

    Args:
        values: Columns without the checksum; ``document`` as a value of JSON. Not changed.
    """
    row = {**values, "document": json.dumps(values["document"], ensure_ascii=False, separators=(",", ":"))}
    return {**row, "checksum": _checksum(row)}


def open_row(row: Mapping[Any, Any], *, what: str) -> dict[str, Any]:
    """Return the values of a row of `seal`, without the checksum and with ``document`` parsed.

    Args:
        what: Name of the row's object, for the error.

    Raises:
        StateCorrupt: The checksum does not match.
    """
    values = dict(row)
    stored = values.pop("checksum")
    if stored != _checksum(values):
        raise corrupt_row(what)
    values["document"] = json.loads(values["document"])
    return values


def _is_named(connection: Connection, content_id: str) -> bool:
    return any(execute(connection, each, {"by_content": content_id})[0][0] for each in _NAMED_BY)


def of_key(bucket: str, key: str) -> dict[str, Any]:
    """Return the parameters of `OBJECT`."""
    return {"by_bucket": bucket, "by_key": key.encode()}


def _listed_objects(rows: Iterable[Sequence[Any]]) -> list[ListedObject]:
    """Read rows of `_LISTED_COLUMNS`. Checks the checksum like `ObjectInfo.from_row`, in a third of the time.

    Raises:
        StateCorrupt: The checksum of a row does not match.
    """
    found: list[ListedObject] = []
    for bucket, content_id, document, etag, key, modified_ms, sha256, size_bytes, checksum in rows:
        try:
            # Each column is written out, because a loop over the columns would double the time.
            b, c, d, e = bucket.encode(), content_id.encode(), document.encode(), etag.encode()
            m, h, n = b"%d" % modified_ms, sha256.encode(), b"%d" % size_bytes
            sealed = _LISTED_FIELDS % (
                *(len(b), b, len(c), c, len(d), d, len(e), e),
                *(len(key), key, len(m), m, len(h), h, len(n), n),
            )
        except (AttributeError, TypeError, ValueError):  # damage has changed the type of a column, or its encoding
            sealed = b""
        if hashlib.blake2b(sealed, digest_size=16).digest() != checksum:
            raise corrupt_row(f"object s3://{bucket}/{shown(key)}")
        found.append(ListedObject(key.decode(), content_id, size_bytes, etag, sha256))
    return found


def _checksum(row: Mapping[str, Any]) -> bytes:
    fields: list[bytes] = []
    for name in sorted(row):
        value = row[name]
        data = value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
        fields.append(b"%b:%d:%b" % (name.encode(), len(data), data))
    return hashlib.blake2b(b"".join(fields), digest_size=16).digest()


def corrupt_row(what: str) -> StateCorrupt:
    """Return the error for a damaged row of ``what``.

    Args:
        what: The object or upload, in words.
    """
    return StateCorrupt(
        f"the stored description of the {what} fails its checksum; it is not used. Put the object again, or"
        " restore the database from a backup"
    )


def shown(value: object) -> str:
    """Return the text in a column of a damaged row, so that any listing can contain it.

    Args:
        value: A value of any type.
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return _UNLISTABLE.sub("\ufffd", text)


def number(value: object, *, most: int = 2**63 - 1) -> int:
    """Return the number in a column of a damaged row; 0 if it is none from 0 to ``most``.

    Args:
        value: A value of any type.
        most: Largest number that is believed. Default: that of 64 bits.
    """
    return value if isinstance(value, int) and 0 <= value <= most else 0


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
