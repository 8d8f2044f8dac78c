"""Conditions of a step that chooses between branches. Variables in their requests are not expressed yet."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar


class Condition(ABC):
    """A condition of a definition."""

    _type: ClassVar[str]

    def to_request(self) -> dict[str, Any]:
        """Return the condition in a definition.

        Returns:
            A member of ``Conditions``.
        """
        return {"Type": self._type, **self._members()}

    @abstractmethod
    def _members(self) -> dict[str, Any]:
        """Return what the condition has besides its type."""


class _Comparison(Condition):
    """A comparison of two values.

    Args:
        left: A variable, text or number.
        right: A variable, text or number.
    """

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right

    def _members(self) -> dict[str, Any]:
        return {"LeftValue": self.left, "RightValue": self.right}


class ConditionEquals(_Comparison):
    """Both values are equal."""

    _type = "Equals"


class ConditionGreaterThan(_Comparison):
    """The left value is above the right one."""

    _type = "GreaterThan"


class ConditionGreaterThanOrEqualTo(_Comparison):
    """The left value is not below the right one."""

    _type = "GreaterThanOrEqualTo"


class ConditionLessThan(_Comparison):
    """The left value is below the right one."""

    _type = "LessThan"


class ConditionLessThanOrEqualTo(_Comparison):
    """The left value is not above the right one."""

    _type = "LessThanOrEqualTo"


class ConditionIn(Condition):
    """A value is one of several.

    Args:
        value: A variable, text or number.
        in_values: The values, which may be variables.
    """

    _type = "In"

    def __init__(self, value: Any, in_values: Sequence[Any]) -> None:
        self.value = value
        self.in_values = list(in_values)

    def _members(self) -> dict[str, Any]:
        return {"QueryValue": self.value, "Values": self.in_values}


class ConditionNot(Condition):
    """A condition is not true.

    Args:
        expression: The condition.
    """

    _type = "Not"

    def __init__(self, expression: Condition) -> None:
        self.expression = expression

    def _members(self) -> dict[str, Any]:
        return {"Condition": self.expression.to_request()}


class ConditionOr(Condition):
    """At least one of several conditions is true.

    Args:
        conditions: The conditions.
    """

    _type = "Or"

    def __init__(self, conditions: Sequence[Condition] = ()) -> None:
        self.conditions = list(conditions)

    def _members(self) -> dict[str, Any]:
        return {"Conditions": [each.to_request() for each in self.conditions]}
