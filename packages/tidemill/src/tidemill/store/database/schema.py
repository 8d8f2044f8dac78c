"""The tables of the store, as the newest revision has them. Other files add theirs to the same `metadata`.

A change of a table, an index or a column also needs a migration (`tidemill.store.database.revisions` says how).
"""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by code point in both databases: SQLite's default; PostgreSQL needs the collation."""

meta = Table(
    "meta",
    metadata,
    Column("key", TEXT, primary_key=True),
    Column("value", TEXT, nullable=False),
)
"""Facts about the database itself, e.g. secrets."""

records = Table(
    "records",
    metadata,
    Column("kind", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("status", TEXT, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("document", TEXT, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    Column("summary", TEXT),
    Column("summary_checksum", LargeBinary),
    # Covering, so that a filter walks an index and not the documents.
    Index("records_by_created", "kind", "created_ms", "name", "status", "modified_ms"),
    Index("records_by_modified", "kind", "modified_ms", "name", "status", "created_ms"),
    Index("records_by_status", "kind", "status", "created_ms", "name", "modified_ms"),
)
"""`tidemill.store.records.base.Record`, one a row. The first checksum is over all columns before it, the
second one over the same columns with the summary instead of the document. The last two columns are always set, but the
migration that added them left those of damaged rows empty."""

starts = Table(
    "starts",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("reachable_ms", BigInteger, nullable=False),
)
"""Starts of the service, and how long the agents of a cluster could reach each of them; see `tidemill.store.leases`."""

leases = Table(
    "leases",
    metadata,
    Column("job_id", TEXT, primary_key=True),
    Column("instance_index", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("start", BigInteger, nullable=False),
    Column("lease_ms", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Leases of the instances of a cluster that have not ended: the length, and the last start that renewed the lease."""
