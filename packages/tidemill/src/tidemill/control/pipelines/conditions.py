"""The conditions of Condition steps: comparisons, In, Not and Or."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.control.pipelines.expressions import Reader, Unresolved, resolved
from tidemill.control.search.expression import ORDERED

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"Equals": operator.eq, **ORDERED}
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_COMPARISONS, ("LeftValue", "RightValue")),
    "In": ("QueryValue", "Values"),
    "Not": (),
    "Or": ("Conditions",),
}
"""Members that each type of conditions needs."""


def check_condition(condition: Any) -> None:
    """Refuse a condition that cannot be evaluated.

    Args:
        condition: One of the Conditions of a step, or the part of a Not or Or.

    Raises:
        Unresolved: It has another form; the message says what is allowed.
    """
    kind = condition.get("Type") if isinstance(condition, Mapping) else None
    if not isinstance(kind, str) or kind not in _MEMBERS:
        raise Unresolved(f"{kind!r} is not the type of a condition; allowed are {', '.join(_MEMBERS)}")
    for member in _MEMBERS[kind]:
        if member not in condition:
            raise Unresolved(f"a condition {kind} needs {member}; got {', '.join(condition)}")
        if member in ("Values", "Conditions") and not isinstance(condition[member], list):
            raise Unresolved(f"{member} of a condition {kind} is a list; got {condition[member]!r}")
    for part in {"Not": [_negated(condition)], "Or": condition.get("Conditions")}.get(kind, ()):
        check_condition(part)


async def holds(condition: Mapping[str, Any], reader: Reader) -> bool:
    """Return whether a condition is true.

    Args:
        condition: A checked condition.
        reader: Reads what its expressions name.

    Raises:
        Unresolved: A value does not exist, or the values cannot be compared.
    """
    kind = condition["Type"]
    if kind == "Not":
        return not await holds(_negated(condition), reader)
    if kind == "Or":
        for part in condition["Conditions"]:
            if await holds(part, reader):
                return True
        return False
    if kind == "In":
        value = await resolved(condition["QueryValue"], reader)
        return any(_compared("Equals", value, each) for each in await resolved(condition["Values"], reader))
    left, right = [await resolved(condition[side], reader) for side in ("LeftValue", "RightValue")]
    return _compared(kind, left, right)


def _negated(condition: Mapping[str, Any]) -> Any:
    # AWS's documentation names the member Expression, and its SDK sends Condition.
    return condition.get("Condition", condition.get("Expression"))


def _compared(kind: str, left: Any, right: Any) -> bool:
    """Compare two values; a text is compared with a number by the number that it contains."""
    left, right = _alike(left, right), _alike(right, left)
    try:
        return _COMPARISONS[kind](left, right)
    except TypeError as error:
        raise Unresolved(f"{kind} cannot compare {left!r} with {right!r}: one is a number and the other not") from error


def _alike(value: Any, other: Any) -> Any:
    """Return a text as a number or truth value, if the value that it is compared with is one."""
    if not isinstance(value, str):
        return value
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(value.lower(), value)
    if isinstance(other, int | float):
        try:
            return float(value)
        except ValueError:
            return value
    return value
