"""The first revision: the tables of schema version 1, which releases before alembic created.

Existing tables and indexes are not changed, because those releases added new ones without raising the version.
"""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Text, column, table

revision = "0001"
down_revision = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create what is missing, and mark the database, so that releases before alembic refuse it."""
    _create_meta_and_records()
    _create_objects()
    _create_uploads()
    meta = table("meta", column("key"), column("value"))
    op.execute(meta.delete().where(meta.c.key == "schema_version"))
    op.execute(meta.insert().values(key="schema_version", value="2"))


def _create_meta_and_records() -> None:
    op.create_table(
        "meta",
        Column("key", _TEXT, primary_key=True),
        Column("value", _TEXT, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "records",
        Column("kind", _TEXT, primary_key=True),
        Column("name", _TEXT, primary_key=True),
        Column("status", _TEXT, nullable=False),
        Column("created_ms", BigInteger, nullable=False),
        Column("modified_ms", BigInteger, nullable=False),
        Column("document", _TEXT, nullable=False),
        Column("checksum", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    for name, columns in {
        "records_by_created": ["kind", "created_ms", "name", "status", "modified_ms"],
        "records_by_modified": ["kind", "modified_ms", "name", "status", "created_ms"],
        "records_by_status": ["kind", "status", "created_ms", "name", "modified_ms"],
    }.items():
        op.create_index(name, "records", columns, if_not_exists=True)


def _create_objects() -> None:
    op.create_table(
        "buckets",
        Column("name", _TEXT, primary_key=True),
        Column("created_ms", BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "objects",
        Column("bucket", _TEXT, primary_key=True),
        Column("key", LargeBinary, primary_key=True),
        *_content(),
        if_not_exists=True,
        sqlite_with_rowid=False,
    )
    op.create_index("objects_by_content", "objects", ["content_id"], if_not_exists=True)


def _create_uploads() -> None:
    op.create_table(
        "uploads",
        Column("bucket", _TEXT, primary_key=True),
        Column("key", LargeBinary, primary_key=True),
        Column("upload_id", _TEXT, primary_key=True),
        Column("initiated_ms", BigInteger, nullable=False),
        Column("completed_ms", BigInteger, nullable=True),
        Column("document", _TEXT, nullable=False),
        Column("checksum", LargeBinary, nullable=False),
        if_not_exists=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "parts",
        Column("upload_id", _TEXT, primary_key=True),
        Column("part_number", Integer, primary_key=True),
        *_content(),
        if_not_exists=True,
        sqlite_with_rowid=False,
    )
    op.create_index("parts_by_content", "parts", ["content_id"], if_not_exists=True)


def _content() -> list[Column[Any]]:
    return [
        Column("content_id", _TEXT, nullable=False),
        Column("size_bytes", BigInteger, nullable=False),
        Column("etag", _TEXT, nullable=False),
        Column("sha256", _TEXT, nullable=False),
        Column("modified_ms", BigInteger, nullable=False),
        Column("document", _TEXT, nullable=False),
        Column("checksum", LargeBinary, nullable=False),
    ]
