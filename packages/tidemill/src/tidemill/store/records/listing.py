"""One listing of records: chooses the index that answers it, and examines rows only for filters without an index.

Every page continues in a covering index after the last key of the page before, so all pages cost the same. With a
filter that no index answers, a page examines a bounded number of rows, and the next page continues after them.
"""

import re
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, select, tuple_

from tidemill.store.database.schema import records
from tidemill.store.records.base import Query
from tidemill.store.records.paging import SortKey

_SORT_KEYS: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "created": ("created_ms", "name"),
    "modified": ("modified_ms", "name"),
    "status": ("status", "created_ms", "name"),
}
_EXAMINED = ("name", "status", "created_ms", "modified_ms")


class Listing:
    """A `Query` on one kind.

    Attributes:
        filtered: Whether rows must be examined one by one.
        identity: Everything that determines the rows and their order. A page token is valid only for the same identity.
    """

    def __init__(self, kind: str, query: Query) -> None:
        self._kind = kind
        self._query = query
        # One status is a prefix of the index by status, whose next column is the creation time.
        self._one_status = len(query.statuses) == 1 and query.sort_by in ("created", "status")
        self._sort_key = _SORT_KEYS["created" if self._one_status else query.sort_by]
        created = query.created_after_ms is not None or query.created_before_ms is not None
        modified = query.modified_after_ms is not None or query.modified_before_ms is not None
        self._ranged = "modified_ms" if query.sort_by == "modified" else "created_ms"
        by_created = query.sort_by == "created" or self._one_status
        self.filtered = bool(
            query.name_contains
            or query.name_pattern
            or (query.statuses and not self._one_status)
            or (created and not by_created)
            or (modified and query.sort_by != "modified")
        )
        self._in_index = by_created or query.sort_by == "modified"
        self.identity = (
            kind,
            query.sort_by,
            query.descending,
            query.statuses,
            query.name_contains,
            query.name_pattern,
            query.created_after_ms,
            query.created_before_ms,
            query.modified_after_ms,
            query.modified_before_ms,
        )

    def rows(
        self, connection: Connection, after: SortKey | None, *, columns: tuple[str, ...]
    ) -> "tuple[list[Row[*tuple[Any, ...]]], SortKey | None]":
        """Return the rows of a page without a filter, and the key after which the next page continues.

        Args:
            after: The key after which the page begins; None at the beginning.
            columns: The columns of the rows: name, status and both times, and any others.
        """
        limit = self._query.limit
        found = list(connection.execute(self._statement(after, columns), self._parameters(after, limit + 1)))
        return found[:limit], self._key_of(found[limit - 1]) if len(found) > limit else None

    def names(
        self, connection: Connection, after: SortKey | None, *, scan_max_rows: int
    ) -> tuple[list[str], SortKey | None]:
        """Return the names of the rows of a page with a filter, and the key after which the next page continues.

        Args:
            after: Key of the last row of the page before; None for the first page.
            scan_max_rows: Most rows to look at.

        Returns:
            Names; None as the key at the end.
        """
        names: list[str] = []
        looked_at = 0
        last: SortKey | None = after
        statement, parameters = self._statement(after, _EXAMINED), self._parameters(after, scan_max_rows)
        with connection.execute(statement, parameters) as rows:
            for row in rows:
                looked_at += 1
                fits = self._matches(row)
                if fits and len(names) == self._query.limit:
                    return names, last
                if fits:
                    names.append(row.name)
                last = self._key_of(row)
        return names, last if looked_at == scan_max_rows else None

    def _statement(self, after: SortKey | None, columns: tuple[str, ...]) -> Select[*tuple[Any, ...]]:
        low, high = self._bounds() if self._in_index else (None, None)
        return _walk(
            self._sort_key,
            self._query.descending,
            columns=columns,
            one_status=self._one_status,
            goes_on=after is not None,
            low=self._ranged if low is not None else None,
            high=self._ranged if high is not None else None,
        )

    def _parameters(self, after: SortKey | None, rows: int) -> dict[str, Any]:
        low, high = self._bounds()
        status = self._query.statuses[0] if self._one_status else None
        parameters = {"kind": self._kind, "status": status, "low": low, "high": high, "rows": rows}
        return parameters | {f"after_{i}": value for i, value in enumerate(after or ())}

    def _bounds(self) -> tuple[int | None, int | None]:
        query = self._query
        if self._ranged == "modified_ms":
            return query.modified_after_ms, query.modified_before_ms
        return query.created_after_ms, query.created_before_ms

    def _matches(self, row: Row[*tuple[Any, ...]]) -> bool:
        query = self._query
        return (
            query.name_contains in row.name
            and (not query.name_pattern or re.search(query.name_pattern, row.name) is not None)
            and (not query.statuses or row.status in query.statuses)
            and _within(row.created_ms, query.created_after_ms, query.created_before_ms)
            and _within(row.modified_ms, query.modified_after_ms, query.modified_before_ms)
        )

    def _key_of(self, row: Row[*tuple[Any, ...]]) -> SortKey:
        return tuple(getattr(row, column) for column in self._sort_key)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


@lru_cache(maxsize=256)
def _walk(
    sort_key: tuple[str, ...],
    descending: bool,
    *,
    columns: tuple[str, ...],
    one_status: bool,
    goes_on: bool,
    low: str | None,
    high: str | None,
) -> Select[*tuple[Any, ...]]:
    """Return the statement for one form of listing. It is cached, because building it costs more than running it."""
    order = [records.c[name] for name in sort_key]
    statement = select(*(records.c[name] for name in columns)).where(records.c.kind == bindparam("kind"))
    if one_status:
        statement = statement.where(records.c.status == bindparam("status"))
    if low is not None:
        statement = statement.where(records.c[low] >= bindparam("low"))
    if high is not None:
        statement = statement.where(records.c[high] <= bindparam("high"))
    if goes_on:
        statement = statement.where(_beyond(order, descending=descending))
    directed = [column.desc() if descending else column.asc() for column in order]
    return statement.order_by(*directed).limit(bindparam("rows"))


def _beyond(columns: list[Any], *, descending: bool) -> ColumnElement[bool]:
    values = [bindparam(f"after_{i}", type_=column.type) for i, column in enumerate(columns)]
    left: Any = columns[0] if len(columns) == 1 else tuple_(*columns)
    right: Any = values[0] if len(columns) == 1 else tuple_(*values)
    return left < right if descending else left > right
