"""Objects, parts and uploads, and their conversion to rows. Each row has a checksum, which is checked when it is read.

The checksum detects a flipped bit inside a row, which SQLite does not.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemill.errors import StateCorrupt

__all__ = [
    "LISTED_COLUMNS",
    "ListedObject",
    "ObjectAttributes",
    "ObjectInfo",
    "PartInfo",
    "UploadInfo",
    "listed_objects",
    "open_row",
    "seal",
]

LISTED_COLUMNS = ("bucket", "content_id", "document", "etag", "key", "modified_ms", "sha256", "size_bytes", "checksum")
"""Columns of the rows that `listed_objects` reads: first those that the checksum covers, in its order; the checksum."""

_LISTED_FIELDS = b"".join(b"%b:%%d:%%b" % name.encode() for name in LISTED_COLUMNS[:-1])


class ListedObject(NamedTuple):
    """The members of `ObjectInfo` that a channel needs. A tuple, because a channel may have a million objects."""

    key: str
    content_id: str
    size_bytes: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAttributes:
    """The properties of an object that a client sets, besides its bytes.

    Attributes:
        content_type: Media type.
        metadata: User metadata; names are in lower case.
        headers: Reply headers stored with the object, by member name: ``CacheControl``, ``ContentEncoding``, ...
        checksums: Base64 checksums by member name, e.g. ``ChecksumCRC32``.
        checksum_type: ``FULL_OBJECT``, or ``COMPOSITE`` for a checksum of the parts' checksums.
        tags: Object tags.
        part_sizes: Sizes in bytes of the parts of a multipart object; empty for any other.
    """

    content_type: str = "binary/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    checksum_type: str = "FULL_OBJECT"
    tags: Mapping[str, str] = field(default_factory=dict)
    part_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo(ObjectAttributes):
    """One stored object.

    Attributes:
        bucket: Name of the bucket.
        key: Key of the object; never used as a path.
        content_id: Id of the content. Several objects may have the same content.
        size_bytes: Length in bytes.
        etag: MD5 in hexadecimal, without quotes. For a multipart object, the MD5 of the parts' MD5s and ``-N``.
        sha256: SHA-256 of the whole content, in hexadecimal.
        modified_ms: Time of the last modification, in milliseconds since the epoch.
    """

    bucket: str
    key: str
    content_id: str
    size_bytes: int
    etag: str
    sha256: str
    modified_ms: int

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "ObjectInfo":
        """Read a row of `tidemill.store.objects.schema.objects`.

        Raises:
            StateCorrupt: The row's checksum does not match.
        """
        values = open_row(row, what=f"object s3://{row['bucket']}/{_shown(row['key'])}")
        document = values.pop("document")
        document["part_sizes"] = tuple(document["part_sizes"])
        key = values.pop("key").decode()
        return cls(key=key, **values, **document)

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
                },
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """One uploaded part of an open multipart upload.

    Attributes:
        upload_id: Id of the upload.
        part_number: Number of the part, 1 to 10,000.
        content_id: Id of the content.
        size_bytes: Length in bytes.
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
        """Read a row of `tidemill.store.objects.schema.parts`.

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
        bucket: Name of the bucket.
        key: Key of the future object.
        initiated_ms: Time at which the upload began, in milliseconds since the epoch.
        completed_ms: Time at which the upload was completed, in milliseconds since the epoch; None while it is open.
        attributes: Attributes of the future object.
        algorithm: Checksum algorithm that the client announced, e.g. ``CRC32``; may be empty.
        outcome: The answer to CompleteMultipartUpload and the parts that it named; empty while the upload is open.
    """

    upload_id: str
    bucket: str
    key: str
    initiated_ms: int
    completed_ms: int | None = None
    attributes: ObjectAttributes
    algorithm: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "UploadInfo":
        """Read a row of `tidemill.store.objects.schema.uploads`.

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
                },
            }
        )


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``values``, with ``document`` as JSON text and a checksum over all columns."""
    row = {**values, "document": json.dumps(values["document"], ensure_ascii=False, separators=(",", ":"))}
    return {**row, "checksum": _checksum(row)}


def open_row(row: Mapping[Any, Any], *, what: str) -> dict[str, Any]:
    """Return the values of a row of `seal`, without the checksum and with ``document`` parsed.

    Args:
        row: The row.
        what: Name of the row's object, for the error.

    Raises:
        StateCorrupt: The checksum does not match.
    """
    values = dict(row)
    stored = values.pop("checksum")
    if stored != _checksum(values):
        raise _corrupt(what)
    values["document"] = json.loads(values["document"])
    return values


def listed_objects(rows: Iterable[Sequence[Any]]) -> list[ListedObject]:
    """Read rows of `LISTED_COLUMNS`. Checks the checksum like `ObjectInfo.from_row`, in a third of the time.

    Raises:
        StateCorrupt: The checksum of a row does not match.
    """
    found: list[ListedObject] = []
    for bucket, content_id, document, etag, key, modified_ms, sha256, size_bytes, checksum in rows:
        # Each column is written out, because a loop over the columns would double the time.
        b, c, d, e = bucket.encode(), content_id.encode(), document.encode(), etag.encode()
        m, h, n = b"%d" % modified_ms, sha256.encode(), b"%d" % size_bytes
        sealed = _LISTED_FIELDS % (
            *(len(b), b, len(c), c, len(d), d, len(e), e),
            *(len(key), key, len(m), m, len(h), h, len(n), n),
        )
        if hashlib.blake2b(sealed, digest_size=16).digest() != checksum:
            raise _corrupt(f"object s3://{bucket}/{_shown(key)}")
        found.append(ListedObject(key.decode(), content_id, size_bytes, etag, sha256))
    return found


def _checksum(row: Mapping[str, Any]) -> bytes:
    fields: list[bytes] = []
    for name in sorted(row):
        value = row[name]
        data = value if isinstance(value, bytes) else str(value).encode()
        fields.append(b"%b:%d:%b" % (name.encode(), len(data), data))
    return hashlib.blake2b(b"".join(fields), digest_size=16).digest()


def _corrupt(what: str) -> StateCorrupt:
    return StateCorrupt(
        f"the stored description of the {what} fails its checksum; it is not used. Put the object again, or"
        " restore the database from a backup"
    )


def _shown(key: bytes) -> str:
    return key.decode(errors="replace")
