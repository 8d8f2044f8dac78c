"""The third revision: starts of the service, and leases of the instances of a cluster."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text

revision = "0003"
down_revision = "0002"

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "starts",
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("reachable_ms", BigInteger, nullable=False),
    )
    op.create_table(
        "leases",
        Column("job_id", _TEXT, primary_key=True),
        Column("instance_index", Integer, primary_key=True, autoincrement=False),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("start", BigInteger, nullable=False),
        Column("lease_ms", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
