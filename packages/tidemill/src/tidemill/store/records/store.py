"""Records in tables, every row with its own checksums.

SQLite has no checksums: most flipped bytes pass its integrity check. So each row carries one over its document and one
over its summary, compared whenever they are read. Both also cover the other columns.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import structlog
from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.errors import ServiceUnavailable, StateCorrupt, TidemillError
from tidemill.store.database.base import ConstantStatement, Database, stored_secret
from tidemill.store.database.pooled import execute
from tidemill.store.database.schema import records
from tidemill.store.records.base import Page, Query, Record, RecordExists, RecordStore, Summary, Transaction
from tidemill.store.records.listing import Listing
from tidemill.store.records.paging import PageTokens, SortKey

T = TypeVar("T")
S = TypeVar("S", bound=Summary)

_log = structlog.get_logger("tidemill.store")

SCAN_MAX_ROWS = 10_000
"""Rows that one page with a filter looks at."""

CHECKSUM_BYTES = 8
GROUPS = 1024
QUICK_PAGE_ROWS = 100
_LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, which every client can show."""

Also = Callable[[Transaction, Record | None, Record], None]
"""Makes further changes in a transaction; gets the record before a change (None for a new one) and after it."""

_Turn = tuple[str, int | None]  # a kind, and one of its groups of names or all of them

_KEY = and_(records.c.kind == bindparam("by_kind"), records.c.name == bindparam("by_name"))
_GET = ConstantStatement(select(records).where(_KEY))
_INSERT = ConstantStatement(insert(records))
_DELETE = ConstantStatement(delete(records).where(_KEY))
_UPDATE = ConstantStatement(
    update(records)
    .where(_KEY)
    .values({column.name: bindparam(column.name) for column in records.c if column.name not in ("kind", "name")})
)


class SqlTransaction(Transaction):
    """The `Transaction` on a connection with an open transaction or savepoint, which its maker commits.

    Args:
        connection: In the thread that runs the change.
        clock: Gives the modification times.
        also: Called in the transaction after each insert and update, with the record before and after it.
    """

    def __init__(self, connection: Connection, *, clock: Clock, also: Also | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._also = also
        self.touched: set[tuple[str, str]] = set()
        """Kind and name of each record that was written."""

    def get(self, kind: str, name: str) -> Record | None:
        row = _row(self._connection, kind, name)
        return None if row is None else _to_record(row)

    def insert(self, record: Record) -> None:
        try:
            self.touched.add((record.kind, record.name))
            execute(self._connection, _INSERT, _to_row(record))
        except IntegrityError as error:
            raise RecordExists(f"{record.kind} {record.name!r} exists already") from error
        faults.point("store.record.written")
        if self._also is not None:
            self._also(self, None, record)

    def update(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        current = self.get(kind, name)
        changed = None if current is None else change(current)
        if current is None or changed is None:
            return current
        if (changed.kind, changed.name) != (kind, name):
            raise ValueError(
                f"an update cannot rename {kind} {name!r} to {changed.kind} {changed.name!r}; insert a new record"
            )
        self.touched.add((kind, name))
        stored = replace(changed, modified_ms=max(self._clock.now_ms(), current.modified_ms + 1))
        execute(self._connection, _UPDATE, {**_to_row(stored), "by_kind": kind, "by_name": name})
        faults.point("store.record.written")
        if self._also is not None:
            self._also(self, current, stored)
        return stored

    def delete(self, kind: str, name: str) -> Record | None:
        row = _row(self._connection, kind, name)
        current = None if row is None else _record_or_damaged(row)
        if current is not None:
            self.touched.add((kind, name))
            execute(self._connection, _DELETE, {"by_kind": kind, "by_name": name})
            faults.point("store.record.written")
        return current


class SqlRecordStore(RecordStore):
    """The `RecordStore` on a `Database`.

    Args:
        database: Open, with the tables of `tidemill.store.database.schema`.
        clock: Gives the modification times.
        scan_max_rows: Rows that one page with a filter looks at.
        also: Makes further changes in the transaction of each insert and update. It must be quick, and do the same
            again if the transaction is run again. Default: none.
    """

    def __init__(
        self, database: Database, *, clock: Clock, scan_max_rows: int = SCAN_MAX_ROWS, also: Also | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._also = also
        self._scan_max_rows = scan_max_rows
        self._tokens = PageTokens(stored_secret(database, "page-tokens"))
        self._begun: Counter[_Turn] = Counter()
        self._ended: Counter[_Turn] = Counter()
        self._listeners: list[Callable[[Collection[tuple[str, str]]], None]] = []
        self._untold: set[tuple[str, str]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._reported: set[tuple[str, str]] = set()  # damaged records that the log names already

    async def change(self, work: Callable[[Transaction], T], *, grows: bool = False) -> T:
        turns: dict[_Turn, int] = {}
        touched: set[tuple[str, str]] = set()

        def run(connection: Connection) -> T:
            transaction = SqlTransaction(connection, clock=self._clock, also=self._also)
            try:
                return work(transaction)
            finally:
                touched.update(transaction.touched)
                for each in _turns_of(transaction.touched):  # before the commit: rows in caches may then be outdated
                    self._begun[each] += 1
                    turns[each] = self._begun[each]

        try:
            result = await self._database.write(run, grows=grows)
        except Exception as error:
            self._mark_ended(turns)
            if isinstance(error, ServiceUnavailable):
                self._tell(touched)  # it may be committed: then only the answer of the database is lost
            raise
        except asyncio.CancelledError:
            # Its commit may still be pending. The next change of the kind is committed later, and marks both as ended.
            if self._listeners:
                self._tell_later(touched)
            raise
        self._mark_ended(turns)
        self._tell(touched)
        return result

    def when_changed(self, listener: Callable[[Collection[tuple[str, str]]], None]) -> None:
        """Call ``listener`` with kind and name of changed records, on the loop of who changed them, after the commit.

        It is called once for all changes that a turn of the loop brought, and does not delay their callers.

        Args:
            listener: Quick; does not wait.
        """
        self._listeners.append(listener)

    def _tell(self, touched: Collection[tuple[str, str]]) -> None:
        if not self._listeners:
            return
        if touched and not self._untold:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._untold.update(touched)

    def _tell_all(self) -> None:
        touched, self._untold = self._untold, set()
        for listener in self._listeners:
            try:
                listener(touched)
            except Exception:  # noqa: BLE001 - the others hear of it
                _log.exception("record.listener_failed")

    def _tell_later(self, touched: Collection[tuple[str, str]]) -> None:
        """Call the listeners when a change whose caller was cancelled has been committed, or has failed."""

        async def tell() -> None:
            with contextlib.suppress(TidemillError):
                await self._database.write(lambda connection: None)  # works are committed in their order
            self._tell(touched)

        task = asyncio.ensure_future(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def generation(self, kind: str, name: str | None = None) -> int | None:
        """Return a number that changes with each write of a kind, or of a group of names that has this one.

        Args:
            name: Default: all names.

        Returns:
            None while a write is in progress.
        """
        what = (kind, None if name is None else _group(name))
        begun = self._begun[what]
        return begun if begun == self._ended[what] else None

    def _mark_ended(self, turns: Mapping[_Turn, int]) -> None:
        for each, turn in turns.items():
            self._ended[each] = max(self._ended[each], turn)

    async def insert(self, record: Record) -> None:
        await self.change(lambda transaction: transaction.insert(record), grows=True)

    async def update(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        return await self.change(lambda transaction: transaction.update(kind, name, change))

    async def delete(self, kind: str, name: str) -> Record | None:
        return await self.change(lambda transaction: transaction.delete(kind, name))

    def get(self, kind: str, name: str) -> Record | None:
        row = self._database.row(_GET, {"by_kind": kind, "by_name": name})
        return None if row is None else _to_record(row)

    async def list(self, kind: str, query: Query) -> Page[Record]:
        found, next_token = await self._page(kind, query, _RECORD)
        damaged = tuple(each for each in found if not isinstance(each, Record))
        for each in damaged:
            if (kind, each.name) not in self._reported:
                self._reported.add((kind, each.name))
                _log.error("record.damaged", kind=kind, name=each.name, reason=str(_damage(kind, each.name)))
        return Page(tuple(each for each in found if isinstance(each, Record)), next_token, damaged)

    async def counts(self, kinds: Collection[str]) -> Mapping[tuple[str, str], int]:
        statement = (
            select(records.c.kind, records.c.status, func.count())
            .where(records.c.kind.in_(kinds))
            .group_by(records.c.kind, records.c.status)
        )
        rows = await self._database.read_in_thread(lambda connection: connection.execute(statement).all())
        return {(str(kind), str(status)): count for kind, status, count in rows}

    async def summaries(self, kind: str, query: Query) -> Page[Summary]:
        return Page(*await self._page(kind, query, _SUMMARY))

    async def _page(self, kind: str, query: Query, form: "_Form[S]") -> tuple[tuple[S | Summary, ...], str | None]:
        if query.limit < 1:
            raise ValueError(f"the limit of a page is {query.limit}; expected at least 1")
        listing = Listing(kind, query)
        after = None if query.after is None else self._tokens.read(listing.identity, query.after)

        def work(connection: Connection) -> tuple[tuple[S | Summary, ...], SortKey | None]:
            if not listing.filtered:
                rows, last = listing.rows(connection, after, columns=form.columns)
                return tuple(_read(row, form) for row in rows), last
            names, last = listing.names(connection, after, scan_max_rows=self._scan_max_rows)
            return _by_names(connection, kind, names, form), last

        if listing.filtered or query.limit > QUICK_PAGE_ROWS:
            found, last = await self._database.read_in_thread(work)
        else:
            found, last = self._database.read(work)
        return found, None if last is None else self._tokens.make(listing.identity, last)


def _turns_of(touched: Collection[tuple[str, str]]) -> set[_Turn]:
    return {turn for kind, name in touched for turn in ((kind, None), (kind, _group(name)))}


def _group(name: str) -> int:
    """Return the group of a name: counting changes by name would keep the names of all records in memory."""
    return hash(name) % GROUPS


def _row(connection: Connection, kind: str, name: str) -> Sequence[Any] | None:
    rows = execute(connection, _GET, {"by_kind": kind, "by_name": name})
    return rows[0] if rows else None


def _by_names(connection: Connection, kind: str, names: list[str], form: "_Form[S]") -> tuple[S | Summary, ...]:
    statement = _select_by_names(form.columns)
    rows = {row.name: row for row in connection.execute(statement, {"by_kind": kind, "names": names})}
    # A name that only an index contains has no row: the table is damaged.
    return tuple(_read(rows[name], form) if name in rows else _known(kind, name) for name in names)


def _read(row: Row[*tuple[Any, ...]], form: "_Form[S]") -> S | Summary:
    try:
        return form.read(row)
    except StateCorrupt:
        return _known(row.kind, row.name, row._mapping)


def _known(kind: str, name: str, row: Mapping[Any, Any] | None = None) -> Summary:
    """Return what is known of a damaged record. Its columns may have values of any type."""
    if row is None:
        return Summary(kind=kind, name=_shown(name), created_ms=0, modified_ms=0, is_damaged=True)
    return Summary(
        kind=_shown(kind),
        name=_shown(name),
        status=_shown(row["status"]),
        created_ms=_time(row["created_ms"]),
        modified_ms=_time(row["modified_ms"]),
        summary=_object_in(row),
        is_damaged=True,
    )


def _record_or_damaged(row: Sequence[Any]) -> Record:
    try:
        return _to_record(row)
    except StateCorrupt:
        known = _known(row[0], row[1], dict(zip(records.c.keys(), row, strict=True)))
        return Record(**{each.name: getattr(known, each.name) for each in fields(Summary)}, document={})


def _object_in(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the summary of a damaged row; empty if it cannot be read."""
    try:
        found = json.loads(row["summary"])
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(value: object) -> str:
    return str(value).encode(errors="replace").decode()


def _time(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= _LAST_MS else 0


@lru_cache
def _select_by_names(columns: tuple[str, ...]) -> Select[*tuple[Any, ...]]:
    return select(*(records.c[name] for name in columns)).where(
        records.c.kind == bindparam("by_kind"), records.c.name.in_(bindparam("names", expanding=True))
    )


def _to_row(record: Record) -> dict[str, Any]:
    head = (record.kind, record.name, record.status, record.created_ms, record.modified_ms)
    document, summary = _to_text(record.document), _to_text(record.summary)
    return {
        "kind": record.kind,
        "name": record.name,
        "status": record.status,
        "created_ms": record.created_ms,
        "modified_ms": record.modified_ms,
        "document": document,
        "checksum": _checksum((*head, document)),
        "summary": summary,
        "summary_checksum": _checksum((*head, summary)),
    }


def _to_text(content: dict[str, Any]) -> str:
    # ASCII only, so that documents do not depend on the encoding in which the database stores text.
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _to_record(row: Sequence[Any]) -> Record:
    *head, document, checksum, summary, summary_checksum = row
    _require_checksum((*head, document), checksum)
    _require_checksum((*head, summary), summary_checksum)
    kind, name, status, created_ms, modified_ms = head
    return Record(
        kind=kind,
        name=name,
        status=status,
        created_ms=created_ms,
        modified_ms=modified_ms,
        summary=json.loads(summary),
        document=json.loads(document),
    )


def _to_summary(row: Row[*tuple[Any, ...]]) -> Summary:
    *columns, checksum = row
    _require_checksum(tuple(columns), checksum)
    kind, name, status, created_ms, modified_ms, summary = columns
    return Summary(
        kind=kind,
        name=name,
        status=status,
        created_ms=created_ms,
        modified_ms=modified_ms,
        summary=json.loads(summary),
    )


def _require_checksum(columns: tuple[Any, ...], stored: bytes | None) -> None:
    if _checksum(columns) != stored:
        raise _damage(columns[0], columns[1])


def _damage(kind: object, name: object) -> StateCorrupt:
    return StateCorrupt(
        f"the stored {kind} {name!r} fails its checksum: its row in the database was changed or damaged. Delete it, or"
        " go back to a backup of the database"
    )


def _checksum(columns: tuple[Any, ...]) -> bytes:
    # ascii() of a tuple differs for any two different tuples, and is the same in every release of Python.
    return hashlib.blake2b(ascii(columns).encode(), digest_size=CHECKSUM_BYTES).digest()


@dataclass(frozen=True, slots=True)
class _Form(Generic[S]):
    """The columns that a page reads, and how they are converted."""

    columns: tuple[str, ...]
    read: Callable[[Row[*tuple[Any, ...]]], S]


_HEAD = ("kind", "name", "status", "created_ms", "modified_ms")
_RECORD = _Form((*_HEAD, "document", "checksum", "summary", "summary_checksum"), _to_record)
_SUMMARY = _Form((*_HEAD, "summary", "summary_checksum"), _to_summary)
