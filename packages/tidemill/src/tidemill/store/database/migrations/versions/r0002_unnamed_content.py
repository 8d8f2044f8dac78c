"""The second revision: content in another S3 that no row names."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text

revision = "0002"
down_revision = "0001"

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "unnamed_content",
        Column("content_id", _TEXT, primary_key=True),
        Column("uploading", Integer, nullable=False),
        Column("since_ms", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
