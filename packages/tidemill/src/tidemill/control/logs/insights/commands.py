"""Parses a query into stages, each of which takes the events of the one before."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from tidemill.control.logs.insights.expressions import SLOT, ExpressionParser, field_name, string_value
from tidemill.control.logs.insights.functions import GroupValue
from tidemill.control.logs.insights.scanner import DIGITS_MAX, MalformedQuery, QueryScanner, whole_number
from tidemill.control.logs.insights.values import EventRow, Expression, Value, is_true, rank, text

_COMMANDS = ("display", "fields", "filter", "limit", "parse", "sort", "stats")
_DEFAULT_COLUMNS = ("@timestamp", "@message")
_SORT_SLACK = 1000

_Rows = Iterable[EventRow]


@dataclass(slots=True)
class _Passing:
    """Counts the events that pass."""

    rows: int = 0

    def __call__(self, rows: _Rows) -> Iterator[EventRow]:
        for row in rows:
            self.rows += 1
            yield row


@dataclass(slots=True)
class _Sort:
    """Orders events.

    Attributes:
        keys: Values, and whether they descend; the first one matters most.
        most: How many of the first events are needed; None for all.
    """

    keys: Sequence[tuple[Expression, bool]]
    most: int | None = None

    def __call__(self, rows: _Rows) -> Iterator[EventRow]:
        kept: list[EventRow] = []
        for row in rows:
            kept.append(row)
            if self.most is not None and len(kept) >= 2 * self.most + _SORT_SLACK:
                kept = self._first(kept)
        yield from self._first(kept)

    def _first(self, rows: list[EventRow]) -> list[EventRow]:
        for value, descends in reversed(self.keys):
            rows.sort(key=partial(_rank_of, value), reverse=descends)
        return rows[: self.most]


@dataclass(slots=True)
class _Stats:
    """Aggregates events with equal values.

    Attributes:
        aggregations: Make what computes the values of a group.
        results: Name and expression of each column, over these values.
        by: Name and expression of what a group has in common.
    """

    aggregations: Sequence[Callable[[], GroupValue]]
    results: Sequence[tuple[str, Expression]]
    by: Sequence[tuple[str, Expression]]

    def __call__(self, rows: _Rows) -> Iterator[EventRow]:
        groups: dict[tuple[str, ...], tuple[list[Value], list[GroupValue]]] = {}
        for row in rows:
            values = [expression(row) for _, expression in self.by]
            key = tuple(map(text, values))
            if key not in groups:
                groups[key] = values, [made() for made in self.aggregations]
            for aggregation in groups[key][1]:
                aggregation.add(row)
        for values, aggregations in sorted(groups.values(), key=lambda group: [rank(value) for value in group[0]]):
            group = EventRow({f"{SLOT}{index}": each.value() for index, each in enumerate(aggregations)})
            group |= {name: value for (name, _), value in zip(self.by, values, strict=True)}
            yield EventRow({**group, **{name: expression(group) for name, expression in self.results}})


@dataclass(slots=True)
class InsightsQuery:
    """A parsed query.

    Attributes:
        limit: Most events in the result.
        columns: Names of the fields that are shown; empty before a command has named some.
        matched: Counts the events that the filters before the first aggregation or order have kept.
    """

    limit: int
    columns: list[str] = field(default_factory=list)
    matched: _Passing = field(default_factory=_Passing)
    _stages: list[Callable[[_Rows], Iterable[EventRow]]] = field(default_factory=list)
    _parsed: list[str] = field(default_factory=list)
    _is_ordered: bool = False
    _is_displayed: bool = False

    @classmethod
    def parse(cls, query: str, *, limit: int) -> "InsightsQuery":
        """Read a query.

        Args:
            limit: Most events in the result, if the query asks for no fewer.

        Raises:
            MalformedQuery: It has a mistake, or a command or function that is not offered.
        """
        scanner = QueryScanner(query)
        found = cls(limit)
        try:
            if scanner.peek().kind != "end":
                found._add(scanner)
            while scanner.take_if("|"):
                found._add(scanner)
            if scanner.peek().kind != "end":
                scanner.fail("expected | and a command, or the end")
        except RecursionError as error:
            raise MalformedQuery("the query is nested too deeply", begin=0, end=len(query)) from error
        found._finish()
        return found

    def run(self, events: _Rows) -> Iterator[list[tuple[str, str]]]:
        """Yield the result: names and values of the fields of each event or group.

        Args:
            events: Fields of all events, in any order.
        """
        rows = events
        for stage in self._stages:
            rows = stage(rows)
        for row in rows:
            shown = ((name, row[name]) for name in self.columns)
            yield [(name, text(value)) for name, value in shown if value is not None]

    def _add(self, scanner: QueryScanner) -> None:
        token = scanner.take()
        if token.word not in _COMMANDS:
            scanner.fail(f"expected a command; there are {', '.join(_COMMANDS)}", token)
        getattr(self, f"_{token.word}")(scanner)

    def _finish(self) -> None:
        """Order the newest events first, unless the query has an order, and choose the fields to show."""
        if not self._is_ordered:
            self._order([(lambda row: row["@timestamp"], True)])
        self.columns = list(dict.fromkeys([*(self.columns or _DEFAULT_COLUMNS), *self._parsed]))
        self._cut(self.limit)

    def _fields(self, scanner: QueryScanner) -> None:
        parser = ExpressionParser(scanner)
        computed: list[tuple[str, Expression]] = []
        for name, expression, is_field in _named(scanner, parser.condition):
            if not is_field:
                computed.append((name, expression))
            if name not in self.columns:
                self.columns.append(name)
        if computed:
            self._stages.append(partial(_compute, computed))

    def _display(self, scanner: QueryScanner) -> None:
        self.columns.clear()
        self._parsed.clear()
        self._fields(scanner)
        self._is_displayed = True

    def _filter(self, scanner: QueryScanner) -> None:
        self._stages.append(partial(_keep, ExpressionParser(scanner).condition()))

    def _sort(self, scanner: QueryScanner) -> None:
        keys: list[tuple[Expression, bool]] = []
        while not keys or scanner.take_if(","):
            value = ExpressionParser(scanner).value()
            descends = scanner.take_if("desc")
            if not descends:
                scanner.take_if("asc")
            keys.append((value, descends))
        self._order(keys)

    def _limit(self, scanner: QueryScanner) -> None:
        token = scanner.take()
        most = whole_number(token.text) if token.kind == "number" else None
        if not most:
            scanner.fail(f"expected a number of events, at least 1 and below 10^{DIGITS_MAX}", token)
        if not self._is_ordered:
            self._order([(lambda row: row["@timestamp"], True)])
        self._cut(most)

    def _cut(self, most: int) -> None:
        """Let only the first events pass; an order that is followed by this keeps no more of them."""
        last = self._stages[-1]
        if isinstance(last, _Sort):
            last.most = most if last.most is None else min(last.most, most)
        else:
            self._stages.append(lambda rows: islice(rows, most))

    def _stats(self, scanner: QueryScanner) -> None:
        parser = ExpressionParser(scanner, aggregates=True)
        results = [(name, expression) for name, expression, _ in _named(scanner, parser.value)]
        if not parser.aggregations:
            scanner.fail("stats needs an aggregation, such as count(*)")
        grouping = ExpressionParser(scanner)
        by = [(n, e) for n, e, _ in _named(scanner, grouping.value)] if scanner.take_if("by") else []
        self._count()
        self._stages.append(_Stats(parser.aggregations, results, by))
        self.columns = [name for name, _ in (*by, *results)]
        self._parsed.clear()
        self._is_ordered = True

    def _parse(self, scanner: QueryScanner) -> None:
        source = "@message"
        if scanner.peek().kind == "field":
            source = field_name(scanner.take().text)
        pattern = scanner.take_regex()
        if pattern is not None:
            names = list(pattern.groupindex)
            if not names:
                scanner.fail("the regular expression before has no named group such as (?<level>[A-Z]+)")
        else:
            glob = string_value(scanner, "a pattern: a string with *, or a regular expression")
            pattern, names = _glob(scanner, glob)
        self._stages.append(partial(_extract, source, pattern, names))
        self._parsed += () if self._is_displayed else names

    def _order(self, keys: Sequence[tuple[Expression, bool]]) -> None:
        self._count()
        self._stages.append(_Sort(keys))
        self._is_ordered = True

    def _count(self) -> None:
        if self.matched not in self._stages:
            self._stages.append(self.matched)


def _named(scanner: QueryScanner, parse: Callable[[], Expression]) -> Iterator[tuple[str, Expression, bool]]:
    """Yield the name and the expression of each part of a list, and whether it is just a field under its own name."""
    while True:
        first = scanner.peek()
        begin = scanner.place
        expression = parse()
        written = scanner.query[begin : scanner.place].strip()
        is_field = first.kind == "field" and written == first.text
        name = field_name(written)
        if scanner.take_if("as"):
            token = scanner.take()
            if token.kind != "field":
                scanner.fail("expected a name", token)
            name, is_field = field_name(token.text), False
        yield name, expression, is_field
        if not scanner.take_if(","):
            return


def _glob(scanner: QueryScanner, glob: str) -> tuple[re.Pattern[str], list[str]]:
    """Return the expression of a pattern with ``*``, and the names that follow it."""
    scanner.expect("as")
    names: list[str] = []
    while not names or scanner.take_if(","):
        token = scanner.take()
        if token.kind != "field":
            scanner.fail("expected a name", token)
        names.append(field_name(token.text))
    parts = glob.split("*")
    if len(names) != len(parts) - 1:
        scanner.fail(f"before it, {glob!r} has {len(parts) - 1} * for {len(names)} names")
    # The last * matches as much as it can, the others as little.
    ends = parts[-1] == ""
    middle = "(.*?)".join(re.escape(part) for part in (parts[:-1] if ends else parts))
    return re.compile(middle + ("(.*)" if ends else ""), re.DOTALL), names


def _rank_of(value: Expression, row: EventRow) -> tuple[int, object]:
    return rank(value(row))


def _keep(condition: Expression, rows: _Rows) -> Iterator[EventRow]:
    return (row for row in rows if is_true(condition(row)))


def _compute(computed: Sequence[tuple[str, Expression]], rows: _Rows) -> Iterator[EventRow]:
    for row in rows:
        for name, expression in computed:
            row[name] = expression(row)
        yield row


def _extract(source: str, pattern: re.Pattern[str], names: Sequence[str], rows: _Rows) -> Iterator[EventRow]:
    is_named = bool(pattern.groupindex)
    for row in rows:
        match = pattern.search(text(row[source]))
        for number_of, name in enumerate(names, start=1):
            row[name] = None if match is None else match[name if is_named else number_of]
        yield row
