"""Search expressions: filters on the properties of a resource, combined by And and Or (`SearchExpression` of Search).

A property is named by its path in the description, e.g. ``ResourceConfig.InstanceType``. Below a map, e.g.
``HyperParameters``, ``Metrics`` or ``Tags``, the rest of the path is a key, which may have dots itself.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemill.errors import ValidationException

Expression = Mapping[str, Any]
"""A SearchExpression, by botocore's member names."""

_View = Mapping[str, Any]
_DEPTH_MAX = 20
ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEqualTo": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqualTo": operator.le,
}
_WITHOUT_VALUE = ("Exists", "NotExists")


def matches(expression: Expression, view: _View) -> bool:
    """Return whether a resource satisfies an expression. An expression without filters is satisfied by all.

    Args:
        expression: The expression; checked by `properties_of` before.
        view: The properties of the resource.
    """
    results = [
        *(_satisfies(each, view) for each in expression.get("Filters", ())),
        *(_nested(each, view) for each in expression.get("NestedFilters", ())),
        *(matches(each, view) for each in expression.get("SubExpressions", ())),
    ]
    if not results:
        return True
    return any(results) if expression.get("Operator") == "Or" else all(results)


def properties_of(expression: Expression, *, depth: int = 0) -> Iterator[str]:
    """Yield the paths of all properties that an expression names, and check the expression.

    Args:
        depth: How many expressions it is in.

    Raises:
        ValidationException: A filter has no value, or the expression is too deep.
    """
    if depth > _DEPTH_MAX:
        raise ValidationException(f"The search expression is nested more than {_DEPTH_MAX} deep; simplify it")
    for each in expression.get("Filters", ()):
        yield _checked(each)
    for each in expression.get("NestedFilters", ()):
        yield each["NestedPropertyName"]
        for inner in each["Filters"]:
            _checked(inner)
    for each in expression.get("SubExpressions", ()):
        yield from properties_of(each, depth=depth + 1)


def value_at(view: _View, path: str) -> Any:
    """Return the first value of a property; None without one."""
    return next(_values(view, path), None)


def sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that orders values of different types: none before texts, then times and numbers."""
    if isinstance(value, datetime):
        number: float | None = value.timestamp()
    else:
        number = float(value) if isinstance(value, bool | int | float) else _number(str(value))
    if number is not None and not math.isnan(number):
        return 2, number
    return (1, value) if isinstance(value, str) else (0, 0)


def not_before_s(expression: Expression, name: str) -> float | None:
    """Return the earliest time that a property of the results can have, in seconds since the epoch; None if any.

    Args:
        name: Path of the property, e.g. ``CreationTime``.
    """
    if expression.get("Operator") == "Or":
        return None
    wanted = (
        each["Value"]
        for each in expression.get("Filters", ())
        if each["Name"].casefold() == name.casefold()
        and _operator_of(each) in ("GreaterThan", "GreaterThanOrEqualTo")
        and "Value" in each
    )
    return max((at_s for value in wanted if (at_s := time_s(value)) is not None), default=None)


def time_s(text: str) -> float | None:
    """Return the time that a filter compares with, in seconds since the epoch; None if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return _number(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _checked(condition: Mapping[str, Any]) -> str:
    kind = _operator_of(condition)
    if kind not in _WITHOUT_VALUE and "Value" not in condition:
        raise ValidationException(
            f"Value None at 'searchExpression.filters.value' is not allowed: the filter on {condition['Name']!r} has"
            f" the operator {kind}, which compares with a value; give one"
        )
    return str(condition["Name"])


def _operator_of(condition: Mapping[str, Any]) -> str:
    return str(condition.get("Operator", "Equals" if "Value" in condition else "Exists"))


def _nested(nested: Mapping[str, Any], view: _View) -> bool:
    """Return whether one element of a list satisfies all filters, whose names may begin with that of the list."""
    path = nested["NestedPropertyName"]
    filters = [{**each, "Name": each["Name"].removeprefix(f"{path}.")} for each in nested["Filters"]]
    return any(
        isinstance(element, Mapping) and all(_satisfies(each, element) for each in filters)
        for element in _values(view, path)
    )


def _satisfies(condition: Mapping[str, Any], view: _View) -> bool:
    found = list(_values(view, condition["Name"]))
    kind = _operator_of(condition)
    if kind in _WITHOUT_VALUE:
        return bool(found) == (kind == "Exists")
    wanted = condition["Value"]
    match kind:
        case "Equals":
            return any(_equals(each, wanted) for each in found)
        case "NotEquals":
            return not any(_equals(each, wanted) for each in found)
        case "In":
            choices = [each.strip() for each in wanted.split(",")]
            return any(_equals(each, choice) for each in found for choice in choices)
        case "Contains":
            return any(wanted in _text(each) for each in found)
        case _:
            return any(_ordered(kind, each, wanted) for each in found)


def _equals(found: Any, wanted: str) -> bool:
    if isinstance(found, str):
        return found == wanted  # "007" is another name than "7"
    pair = _comparable(found, wanted)
    return pair[0] == pair[1] if pair is not None else _text(found) == wanted


def _ordered(kind: str, found: Any, wanted: str) -> bool:
    pair = _comparable(found, wanted)
    return pair is not None and ORDERED[kind](*pair)


def _comparable(found: Any, wanted: str) -> tuple[float, float] | None:
    """Return both as numbers, if both are numbers or times."""
    if isinstance(found, datetime):
        at_s = time_s(wanted)
        return None if at_s is None else (found.timestamp(), at_s)
    number, other = _number(_text(found)), _number(wanted)
    return None if number is None or other is None else (number, other)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(node: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path, each element of lists on its own."""
    if isinstance(node, Sequence) and not isinstance(node, str):
        for each in node:
            yield from _values(each, path)
        return
    if not path:
        # A map of a metric's statistics has a value of its own, too.
        own = node.get("", node) if isinstance(node, Mapping) else node
        if own is not None:
            yield own
        return
    if not isinstance(node, Mapping):
        return
    for head, tail in _splits(path):
        key = _key(node, head)
        if key is not None:
            yield from _values(node[key], tail)
            return


def _splits(path: str) -> Iterator[tuple[str, str]]:
    """Yield the path's divisions into a key and the rest, the longest key first."""
    yield path, ""
    end = path.rfind(".")
    while end > 0:
        yield path[:end], path[end + 1 :]
        end = path.rfind(".", 0, end)


def _key(node: Mapping[str, Any], name: str) -> str | None:
    """Return the key of that name; names of members may be written in lower case, as public notebooks do."""
    if name in node:
        return name
    folded = name.casefold()
    return next((key for key in node if key and key.casefold() == folded), None)
