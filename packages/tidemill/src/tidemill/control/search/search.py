"""Search the records of one kind: those that satisfy an expression, sorted by any property, page by page.

Properties that the summaries of records have are compared without reading documents. In an order of the store, the walk
ends when a page is full; to sort by any other property, all that satisfy the expression are collected.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.control.search.expression import Expression, matches, not_before_s, properties_of, sort_key, value_at
from tidemill.control.search.pages import filtered_page, next_token, position_in, walk
from tidemill.errors import ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Summary

_END_S = 1e11  # of the year 5138: a larger number is none of a time
_TIMES = {"creationtime": "created", "lastmodifiedtime": "modified"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How to search one kind of resource.

    Attributes:
        kind: Kind of the records.
        naming: The property that has the record's name, e.g. ``TrainingJobName``.
        properties: The first parts of all properties.
        summarize: Returns the properties that a summary has.
        summarized: The names of these properties.
        view: Returns all properties of a record.
    """

    kind: str
    naming: str
    properties: frozenset[str]
    summarize: Callable[[Summary], Mapping[str, Any]]
    summarized: frozenset[str]
    view: Callable[[Record], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to search for.

    Attributes:
        expression: The SearchExpression.
        sort_by: Path of a property.
        limit: Most results of a page.
        token: Token of the page before; None for the first page.
        permits: Whether the caller may see a record.
    """

    expression: Expression = field(default_factory=dict)
    sort_by: str = "LastModifiedTime"
    descending: bool = True
    limit: int
    token: str | None = None
    permits: Callable[[Summary], bool] = lambda summary: True


async def search(records: RecordStore, searched: Searched, wanted: Wanted) -> tuple[list[Record], str | None]:
    """Return one page of the records that satisfy an expression, and the token of the next page.

    Args:
        wanted: Expression, order and page.

    Raises:
        ValidationException: The expression or the order names an unknown property, or the token is not valid.
    """
    needed = [*properties_of(wanted.expression), wanted.sort_by]
    _check_known(needed, searched)
    name = _only_name(wanted.expression, searched)
    if name is not None:
        return _one(records, searched, wanted, name), None
    with_documents = not all(_head(path) in _folded(searched.summarized) for path in needed)

    def found(each: Summary) -> Mapping[str, Any] | None:
        """Return the properties of a record that is a result, otherwise None."""
        if each.is_damaged or not wanted.permits(each):
            return None
        view = searched.view(each) if isinstance(each, Record) else searched.summarize(each)
        return view if matches(wanted.expression, view) else None

    order = _TIMES.get(wanted.sort_by.casefold(), "name" if wanted.sort_by == searched.naming else None)
    listing = {"expression": wanted.expression, "sort_by": wanted.sort_by}
    if order is not None:
        query = Query(
            sort_by=order,  # type: ignore[arg-type]
            descending=wanted.descending,
            limit=wanted.limit,
            after=wanted.token,
            created_after_ms=_created_after_ms(wanted.expression) if order == "created" else None,
        )
        page, token = await filtered_page(
            records,
            searched.kind,
            query,
            accepts=lambda each: found(each) is not None,
            identity=listing,
            with_documents=with_documents,
        )
        return _with_documents(records, page), token
    keys: list[tuple[tuple[int, Any], str]] = []
    async for each in walk(records, searched.kind, Query(), with_documents=with_documents):
        view = found(each)
        if view is not None:
            keys.append((sort_key(value_at(view, wanted.sort_by)), each.name))
    listing |= {"kind": searched.kind, "descending": wanted.descending}
    names, token = _sorted_page(keys, wanted, listing)
    read = (records.get(searched.kind, name) for name in names)
    return [record for record in read if record is not None], token


def _sorted_page(
    keys: list[tuple[tuple[int, Any], str]], wanted: Wanted, listing: Mapping[str, Any]
) -> tuple[list[str], str | None]:
    """Return the names of one page of all results, and the token of the next page.

    Args:
        keys: Sort key and name of each result.
        wanted: Order and page.
    """
    keys.sort(reverse=wanted.descending)
    after = position_in(wanted.token, listing)
    if after is not None:
        last = (tuple(after[0]), after[1])
        keys = [each for each in keys if (each < last if wanted.descending else each > last)]
    page = keys[: wanted.limit]
    token = next_token(page[-1], listing) if len(keys) > wanted.limit else None
    return [name for _, name in page], token


def _created_after_ms(expression: Expression) -> int | None:
    """Return a time before the creation of all results, so that the store need not go through all that is older."""
    at_s = not_before_s(expression, "CreationTime")
    if at_s is None or not 1 <= at_s < _END_S:
        return None
    return int(at_s * 1000) - 1000  # the time in a description may be rounded


def _with_documents(records: RecordStore, page: tuple[Summary, ...]) -> list[Record]:
    read = (each if isinstance(each, Record) else records.get(each.kind, each.name) for each in page)
    return [record for record in read if record is not None]


def _only_name(expression: Expression, searched: Searched) -> str | None:
    """Return the name of the one record that can satisfy an expression, if the expression has one."""
    if expression.get("Operator") == "Or":
        return None
    for each in expression.get("Filters", ()):
        if each["Name"] == searched.naming and each.get("Operator", "Equals") == "Equals" and "Value" in each:
            return str(each["Value"])
    return None


def _one(records: RecordStore, searched: Searched, wanted: Wanted, name: str) -> list[Record]:
    record = records.get(searched.kind, name)
    if record is None or not wanted.permits(record) or not matches(wanted.expression, searched.view(record)):
        return []
    return [record]


def _check_known(paths: list[str], searched: Searched) -> None:
    known = _folded(searched.properties)
    for path in paths:
        if _head(path) not in known:
            raise ValidationException(
                f"Value {path!r} is not a property that can be searched; allowed are"
                f" {', '.join(sorted(searched.properties))}, and paths below them"
            )


def _head(path: str) -> str:
    return path.partition(".")[0].casefold()


def _folded(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)
