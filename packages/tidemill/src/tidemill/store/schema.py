"""The tables of the store. Other files add theirs to the same `metadata`; `Database.open` creates what is missing.

A new table or index needs nothing but its definition. A change of an existing one raises `SCHEMA_VERSION`, so that
an older release refuses the file instead of misreading it.
"""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text

__all__ = ["SCHEMA_VERSION", "meta", "metadata", "records"]

SCHEMA_VERSION = 1

metadata = MetaData()

# Names sort by code point everywhere: SQLite's default; PostgreSQL must be told.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")

meta = Table(
    "meta",
    metadata,
    Column("key", _TEXT, primary_key=True),
    Column("value", _TEXT, nullable=False),
)
"""Facts about the database itself: schema version, secrets."""

records = Table(
    "records",
    metadata,
    Column("kind", _TEXT, primary_key=True),
    Column("name", _TEXT, primary_key=True),
    Column("status", _TEXT, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("document", _TEXT, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    # Covering, so that a filter walks an index and not the documents.
    Index("records_by_created", "kind", "created_ms", "name", "status", "modified_ms"),
    Index("records_by_modified", "kind", "modified_ms", "name", "status", "created_ms"),
    Index("records_by_status", "kind", "status", "created_ms", "name", "modified_ms"),
)
"""`tidemill.store.base.Record`, one a row; the checksum is over all other columns."""
