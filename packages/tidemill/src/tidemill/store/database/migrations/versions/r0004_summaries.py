"""The fourth revision: what lists show of a record, beside its document.

Every record is read and written once, which takes half a minute for a million jobs.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Connection, LargeBinary, Row, Text, bindparam, column, select, table, tuple_

revision = "0004"
down_revision = "0003"

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_BLOCK = 1000
_COPIED = {
    "training-job": ("arn", "ended_ms"),
    "transform-job": ("arn", "ended_ms", "failure_reason"),
    "model": ("arn",),
    "endpoint-config": ("arn",),
    "endpoint": ("arn",),
}
"""Members of the document that are in the summary, by kind of record."""

_records = table(
    "records",
    column("kind", _TEXT),
    column("name", _TEXT),
    column("status", _TEXT),
    column("created_ms", BigInteger),
    column("modified_ms", BigInteger),
    column("document", _TEXT),
    column("checksum", LargeBinary),
    column("summary", _TEXT),
    column("summary_checksum", LargeBinary),
)


def upgrade() -> None:
    """Add the columns, and set them."""
    op.add_column("records", Column("summary", _TEXT))
    op.add_column("records", Column("summary_checksum", LargeBinary))
    connection = op.get_bind()
    statement = (
        _records.update()
        .where(_records.c.kind == bindparam("by_kind"), _records.c.name == bindparam("by_name"))
        .values(summary=bindparam("summary"), summary_checksum=bindparam("summary_checksum"))
    )
    for rows in _blocks(connection):
        changes = [each for row in rows if (each := _change(row)) is not None]
        if changes:
            connection.execute(statement, changes)


def _blocks(connection: Connection) -> Iterator[list[Row[*tuple[Any, ...]]]]:
    """Yield all rows in blocks, in the order of their keys."""
    key = tuple_(_records.c.kind, _records.c.name)
    after = tuple_(bindparam("kind", type_=_TEXT), bindparam("name", type_=_TEXT))
    columns = [each for each in _records.c if each.name not in ("summary", "summary_checksum")]
    statement = select(*columns).order_by(_records.c.kind, _records.c.name).limit(_BLOCK)
    rows = list(connection.execute(statement))
    while rows:
        yield rows
        rows = list(connection.execute(statement.where(key > after), {"kind": rows[-1].kind, "name": rows[-1].name}))


def _change(row: Row[*tuple[Any, ...]]) -> dict[str, Any] | None:
    """Return the new columns of a row; None if it is damaged, so that it stays so."""
    *head, document, stored = row
    if _checksum((*head, document)) != stored:
        return None
    summary = json.dumps(_summary(row.kind, json.loads(document)), separators=(",", ":"), allow_nan=False)
    return {
        "by_kind": row.kind,
        "by_name": row.name,
        "summary": summary,
        "summary_checksum": _checksum((*head, summary)),
    }


def _summary(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    found = {member: document[member] for member in _COPIED.get(kind, ()) if member in document}
    if document.get("transitions"):
        found["secondary_status"] = document["transitions"][-1]["status"]
    return found


def _checksum(columns: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(ascii(columns).encode(), digest_size=8).digest()
