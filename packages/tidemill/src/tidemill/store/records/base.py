"""The interface of the store of records: small documents by kind and name.

`tidemill.store.records.store` implements it on any `tidemill.store.database.base.Database`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
S = TypeVar("S", bound="Summary")


class RecordExists(Exception):
    """A record of that kind and name is stored already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One stored document without its content, as lists show it.

    Attributes:
        kind: What it is: ``training-job``, ``model``, ``endpoint-config``, ``endpoint``, ``credential``, ``tags``.
        name: Unique within the kind, compared exactly.
        status: For filters and scheduling, e.g. ``InProgress``; may be empty.
        created_ms: Milliseconds since the epoch.
        modified_ms: Milliseconds since the epoch; the store moves it forward on every update.
        summary: The few further values that lists show; JSON-able. They are stored beside the document, so that a list
            reads no documents. Treat it as immutable: replace, never change in place.
        is_damaged: Whether the row fails its checksum, so that each value may be wrong. Only in pages of `summaries`,
            and in the result of a delete.
    """

    kind: str
    name: str
    status: str = ""
    created_ms: int
    modified_ms: int
    summary: dict[str, Any] = field(default_factory=dict)
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Summary):
    """One stored document.

    Attributes:
        document: JSON-able content. Treat it as immutable: replace, never change in place.
    """

    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which records of a kind, in which order. Bounds are inclusive, in milliseconds since the epoch."""

    sort_by: Literal["name", "created", "status", "modified"] = "created"
    descending: bool = True
    statuses: tuple[str, ...] = ()
    name_contains: str = ""
    name_pattern: str = ""
    """Regular expression that is found in the name."""
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    modified_after_ms: int | None = None
    modified_before_ms: int | None = None
    limit: int = 100
    after: str | None = None
    """Opaque token of an earlier page."""


@dataclass(frozen=True, slots=True)
class Page(Generic[S]):
    """Records or their summaries in order.

    Attributes:
        records: The records. Those of `RecordStore.list` are sound.
        next_token: Token of the next page; None at the end.
        damaged: What is known of the damaged records that `RecordStore.list` leaves out.
    """

    records: tuple[S, ...]
    next_token: str | None
    damaged: tuple[Summary, ...] = ()


class Transaction(Protocol):
    """The records as one change sees them: everything committed before it, and its own writes so far."""

    def get(self, kind: str, name: str) -> Record | None:
        """Return the record, or None. Raises StateCorrupt on a bad checksum.

        Args:
            kind: Kind of record, e.g. ``training-job``.
            name: Name within the kind.

        Raises:
            StateCorrupt: If a checksum differs.
        """

    def insert(self, record: Record) -> None:
        """Store a new record.

        Raises:
            RecordExists: The name is taken. Do not catch it inside the change: some databases accept no statement
                after a failed one. To find out without an error, use `get`.
        """

    def update(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Replace a record by the result of ``change``. If that is None, the record stays unchanged.

        Returns:
            The stored record, or None if there is no such record.

        Raises:
            ValueError: ``change`` returned a record of another kind or name.
        """

    def delete(self, kind: str, name: str) -> Record | None:
        """Remove a record and return it, or return None if there is no such record.

        A damaged record is removed, too; what is returned of it is marked, and has no document.

        Args:
            name: Name within the kind.
        """


class RecordStore(Protocol):
    """Durable records. When an awaited write returns, it survives kill -9 and power loss."""

    async def change(self, work: Callable[[Transaction], T], *, grows: bool = False) -> T:
        """Run several reads and writes as one: all of them are stored, or none.

        Changes are serializable: their effect is that of one after the other. So two changes at the same time cannot
        exceed a limit that ``work`` checks.

        Args:
            work: Reads and writes through the transaction; to refuse, it raises an exception. It must be quick and
                change nothing but the transaction, because it runs again if a commit fails or conflicts with another
                writer. It must not use the network, start processes or wait.
            grows: Whether the change stores something new. Such changes are refused while the disk is full.

        Returns:
            What ``work`` returned, once it is durable.

        Raises:
            ServiceUnavailable: Not committed.
            Exception: Any exception of ``work``; the change is not stored.
        """

    async def insert(self, record: Record) -> None:
        """Store a new record. Raises RecordExists if the name is taken. Refused while the disk is full.

        Raises:
            RecordExists: If the name is taken.
        """

    async def update(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Change one record atomically, as `Transaction.update` does; ``change`` keeps the rules of `change`'s work.

        Returns:
            The record after the change; None without one.
        """

    async def delete(self, kind: str, name: str) -> Record | None:
        """Remove a record and return it, or return None if there is no such record.

        Args:
            name: Name within the kind.
        """

    def get(self, kind: str, name: str) -> Record | None:
        """Return the committed record, or None. Quick enough for the event loop.

        Args:
            name: Name within the kind.

        Raises:
            StateCorrupt: If a checksum differs.
        """

    def generation(self, kind: str, name: str | None = None) -> int | None:
        """Return a number that grows with every change of a record of ``kind``; None during a change.

        Records that were read at one generation are current as long as this returns the same number.

        Args:
            name: Of one record: the number grows with every change of that record, and of few others.
        """

    async def list(self, kind: str, query: Query) -> Page[Record]:
        """One page. A damaged record does not hide others: it is in `Page.damaged`, and in the log.

        Raises:
            ValueError: This store did not make the token for the same query.
        """

    async def counts(self, kinds: Collection[str]) -> Mapping[tuple[str, str], int]:
        """Return the number of records by kind and status, of each pair that has any.

        Args:
            kinds: The kinds to count.
        """

    async def summaries(self, kind: str, query: Query) -> Page[Summary]:
        """Do the same as `list` without the documents: the cost of a page does not depend on their size.

        Damaged records are in their order, and marked.

        Args:
            query: Filter, order, page.
        """
