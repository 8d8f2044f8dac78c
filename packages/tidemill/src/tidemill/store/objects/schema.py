"""The tables of the object store: buckets, objects, multipart uploads and their parts.

Rows name content by an id; the bytes are elsewhere (`tidemill.store.objects.contents`). Keys are UTF-8 bytes, so that
every database sorts them as S3 does. Each row carries a checksum over its other columns.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Table

from tidemill.store.database.schema import TEXT, metadata

buckets = Table(
    "buckets",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

objects = Table(
    "objects",
    metadata,
    Column("bucket", TEXT, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("content_id", TEXT, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("etag", TEXT, nullable=False),
    Column("sha256", TEXT, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("document", TEXT, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    Index("objects_by_content", "content_id"),
    # SQLite then stores the rows in key order in the table itself, so that a listing reads adjacent rows.
    sqlite_with_rowid=False,
)
"""Rows of `tidemill.store.objects.index.ObjectInfo`. ``document`` has the members that no query sorts or filters by."""

uploads = Table(
    "uploads",
    metadata,
    Column("bucket", TEXT, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("upload_id", TEXT, primary_key=True),
    Column("initiated_ms", BigInteger, nullable=False),
    Column("completed_ms", BigInteger, nullable=True),
    Column("document", TEXT, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Multipart uploads. A completed upload is kept for seven days, so that a repeated Complete gets the same answer."""

parts = Table(
    "parts",
    metadata,
    Column("upload_id", TEXT, primary_key=True),
    Column("part_number", Integer, primary_key=True),
    Column("content_id", TEXT, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("etag", TEXT, nullable=False),
    Column("sha256", TEXT, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("document", TEXT, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    Index("parts_by_content", "content_id"),
    sqlite_with_rowid=False,
)

unnamed = Table(
    "unnamed_content",
    metadata,
    Column("content_id", TEXT, primary_key=True),
    Column("uploading", Integer, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Content that no row names: it is being uploaded to a remote S3 (``uploading`` is 1), or is to be removed."""
