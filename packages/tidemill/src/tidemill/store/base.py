"""The seam of stored state: small documents by kind and name, written by one writer, read by everybody.

SQLite fills it on one machine (`tidemill.store.database`); PostgreSQL can for many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Page", "Query", "Record", "RecordExists", "RecordStore"]


class RecordExists(Exception):
    """A record of that kind and name is stored already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One stored document.

    Attributes:
        kind: What it is: ``training-job``, ``model``, ``endpoint-config``, ``endpoint``, ``credential``, ``tags``.
        name: Unique within the kind, compared exactly.
        status: For filters and scheduling, e.g. ``InProgress``; may be empty.
        created_ms: Milliseconds since the epoch.
        modified_ms: Milliseconds since the epoch; the store moves it forward on every update.
        document: JSON-able content. Treat it as immutable: replace, never change in place.
    """

    kind: str
    name: str
    status: str = ""
    created_ms: int
    modified_ms: int
    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which records of a kind, in which order. Bounds are inclusive, in milliseconds since the epoch."""

    sort_by: Literal["name", "created", "status", "modified"] = "created"
    descending: bool = True
    statuses: tuple[str, ...] = ()
    name_contains: str = ""
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    modified_after_ms: int | None = None
    modified_before_ms: int | None = None
    limit: int = 100
    after: str | None = None
    """Opaque token of an earlier page."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records in order, and the token of the next page (None at the end)."""

    records: tuple[Record, ...]
    next_token: str | None


class RecordStore(Protocol):
    """Durable records. When an awaited write returns, it survives kill -9 and power loss."""

    async def insert(self, record: Record) -> None:
        """Store a new record. Raises RecordExists when the name is taken."""
        ...

    async def update(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Change one record atomically.

        ``change`` runs inside the transaction on the current record: it must be pure and quick, and may return
        None to leave the record as it is. Returns the stored record, or None where there is none.
        """
        ...

    async def delete(self, kind: str, name: str) -> Record | None:
        """Remove a record and return it, or None where there was none."""
        ...

    def get(self, kind: str, name: str) -> Record | None:
        """The committed record, or None. Quick enough for the event loop. Raises StateCorrupt on a bad checksum."""
        ...

    async def list(self, kind: str, query: Query) -> Page:
        """One page. Raises ValueError for a token that this store did not make for the same query."""
        ...
