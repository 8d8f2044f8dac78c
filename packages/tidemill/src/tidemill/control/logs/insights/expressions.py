"""Parses the expressions of a query into functions of an event's fields."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from tidemill.control.logs.insights.functions import AGGREGATIONS, FUNCTIONS, Arity, GroupValue
from tidemill.control.logs.insights.scanner import QueryScanner, QueryToken, whole_number
from tidemill.control.logs.insights.values import (
    COMPARISONS,
    EventRow,
    Expression,
    Value,
    compared,
    is_true,
    number,
    text,
)

SLOT = "\0"
"""Begins the names under which the results of aggregations are fields of a group."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NOT_OFFERED = ("like", "in", "and", "or", "not", "as", "by")


class ExpressionParser:
    """Parses the expressions of one command.

    Args:
        aggregates: Whether aggregations are allowed; `aggregations` then has those that were found.
    """

    def __init__(self, scanner: QueryScanner, *, aggregates: bool = False) -> None:
        self._scanner = scanner
        self._aggregates = aggregates
        self.aggregations: list[Callable[[], GroupValue]] = []

    def condition(self) -> Expression:
        """Parse ``... or ...`` and everything that binds stronger."""
        parts = [self._conjunction()]
        while self._scanner.take_if("or"):
            parts.append(self._conjunction())
        return partial(_any_of, parts) if len(parts) > 1 else parts[0]

    def value(self) -> Expression:
        """Parse a sum, without comparisons."""
        found = self._product()
        while self._scanner.peek().text in ("+", "-"):
            found = partial(_computed, self._scanner.take().text, found, self._product())
        return found

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self._scanner.take_if("and"):
            parts.append(self._negation())
        return partial(_all_of, parts) if len(parts) > 1 else parts[0]

    def _negation(self) -> Expression:
        negated = False
        while self._scanner.take_if("not"):
            negated = not negated
        found = self._comparison()
        return partial(_negated, found) if negated else found

    def _comparison(self) -> Expression:
        left = self.value()
        token = self._scanner.peek()
        if token.text in COMPARISONS:
            self._scanner.take()
            return partial(_compared, token.text, left, self.value())
        if self._scanner.take_if("not"):
            if self._scanner.peek().word not in ("like", "in"):
                self._scanner.fail("expected like or in")
            return partial(_negated, self._membership(left))
        return self._membership(left)

    def _membership(self, left: Expression) -> Expression:
        if self._scanner.take_if("like", "=~"):
            pattern = self._scanner.take_regex()
            if pattern is None:
                pattern = re.compile(re.escape(string_value(self._scanner, "a regular expression or a string")))
            return partial(_matches, pattern, left)
        if self._scanner.take_if("in"):
            closing = {"[": "]", "(": ")"}.get(self._scanner.peek().text)
            if closing is None:
                self._scanner.fail("expected a list such as [1, 2]")
            self._scanner.take()
            return partial(_is_in, left, self._arguments(closing))
        return left

    def _product(self) -> Expression:
        found = self._power()
        while self._scanner.peek().text in ("*", "/", "%"):
            found = partial(_computed, self._scanner.take().text, found, self._power())
        return found

    def _power(self) -> Expression:
        found = self._operand()
        if self._scanner.take_if("^"):
            return partial(_computed, "^", found, self._power())
        return found

    def _operand(self) -> Expression:
        token = self._scanner.peek()
        if self._scanner.take_if("("):
            found = self.condition()
            self._scanner.expect(")")
            return found
        if self._scanner.take_if("-"):
            return partial(_computed, "-", partial(_constant, 0), self._operand())
        if token.kind == "number":
            self._scanner.take()
            return partial(_constant, float(token.text))
        if token.kind == "string":
            return partial(_constant, string_value(self._scanner, "a string"))
        if token.kind != "field" or token.word in _NOT_OFFERED:
            self._scanner.fail("expected a field, a function, a number or a string")
        self._scanner.take()
        if self._scanner.take_if("("):
            return self._call(token)
        if token.word in ("true", "false"):
            return partial(_constant, token.word == "true")
        return partial(_field, field_name(token.text))

    def _call(self, token: QueryToken) -> Expression:
        name = token.word
        if name == "bin":
            return partial(_applied, FUNCTIONS["bin"][1], (partial(_field, "@timestamp"), self._period()))
        if name in AGGREGATIONS and self._aggregates:
            arity, made = AGGREGATIONS[name]
            arguments = self._counted() if name == "count" else self._arguments_of_aggregation()
            self._check(token, arity, arguments)
            self.aggregations.append(partial(made, *arguments))
            return partial(_field, f"{SLOT}{len(self.aggregations) - 1}")
        if name in AGGREGATIONS:
            self._scanner.fail("only stats has this function, and not inside another aggregation", token)
        if name not in FUNCTIONS:
            self._scanner.fail(f"the function is not offered; there are {', '.join(sorted(FUNCTIONS))}", token)
        arity, function = FUNCTIONS[name]
        arguments = self._arguments(")")
        self._check(token, arity, arguments)
        return partial(_applied, function, arguments)

    def _counted(self) -> Sequence[Expression]:
        """Parse the argument of count; ``*`` and no argument count every event."""
        has_star = self._scanner.take_if("*")
        if has_star or self._scanner.peek().text == ")":
            self._scanner.expect(")")
            return (partial(_constant, True),)
        return self._arguments_of_aggregation()

    def _arguments_of_aggregation(self) -> Sequence[Expression]:
        self._aggregates = False
        found = self._arguments(")")
        self._aggregates = True
        return found

    def _arguments(self, closing: str) -> Sequence[Expression]:
        found: list[Expression] = []
        while not self._scanner.take_if(closing):
            if found:
                self._scanner.expect(",")
            found.append(self.condition())
        return found

    def _check(self, token: QueryToken, arity: Arity, arguments: Sequence[Expression]) -> None:
        least, most = arity
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self._scanner.fail(f"it has {len(arguments)} arguments; it takes {wanted}", token)

    def _period(self) -> Expression:
        token = self._scanner.peek()
        digits = re.match(r"\d+", token.text)
        width_ms = _UNITS_MS.get(token.text[digits.end() :].strip()) if digits is not None else None
        count = whole_number(digits[0]) if digits is not None else None
        if token.kind != "period" or not count or width_ms is None:
            self._scanner.fail("expected a period such as 5m; its units are ms, s, m, h and d")
        self._scanner.take()
        self._scanner.expect(")")
        return partial(_constant, count * width_ms)


def field_name(written: str) -> str:
    """Return the name of a field without its backquotes.

    Args:
        written: As in the query.
    """
    return written.strip("`")


def string_value(scanner: QueryScanner, expected: str) -> str:
    """Read a string, and return its text.

    Args:
        expected: What is expected there, for the error.

    Raises:
        MalformedQuery: Something else is next.
    """
    if scanner.peek().kind != "string":
        scanner.fail(f"expected {expected}")
    return re.sub(r"\\(.)", r"\1", scanner.take().text[1:-1], flags=re.DOTALL)


def _constant(value: Value, row: EventRow) -> Value:
    return value


def _field(name: str, row: EventRow) -> Value:
    return row[name]


def _any_of(parts: Sequence[Expression], row: EventRow) -> Value:
    return any(is_true(part(row)) for part in parts)


def _all_of(parts: Sequence[Expression], row: EventRow) -> Value:
    return all(is_true(part(row)) for part in parts)


def _negated(inner: Expression, row: EventRow) -> Value:
    return not is_true(inner(row))


def _compared(operator: str, left: Expression, right: Expression, row: EventRow) -> Value:
    return compared(operator, left(row), right(row))


def _matches(pattern: re.Pattern[str], left: Expression, row: EventRow) -> Value:
    value = left(row)
    return value is not None and pattern.search(text(value)) is not None


def _is_in(left: Expression, allowed: Sequence[Expression], row: EventRow) -> Value:
    value = left(row)
    return any(compared("=", value, each(row)) for each in allowed)


def _applied(function: Callable[..., Value], arguments: Sequence[Expression], row: EventRow) -> Value:
    return function(*(argument(row) for argument in arguments))


def _computed(operator: str, left: Expression, right: Expression, row: EventRow) -> Value:
    """Return the result of arithmetic; missing if an operand is no number or there is no result."""
    one, other = number(left(row)), number(right(row))
    if one is None or other is None:
        return None
    try:
        match operator:
            case "+":
                return number(one + other)
            case "-":
                return number(one - other)
            case "*":
                return number(one * other)
            case "/":
                return number(one / other)
            case "%":
                return number(one % other)
            case _:
                # A negative base with a fractional exponent is complex in Python.
                power = float(one) ** other
                return None if isinstance(power, complex) else number(cast("float", power))
    except (ArithmeticError, ValueError):
        return None
