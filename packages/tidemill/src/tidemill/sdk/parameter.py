"""The ranges of hyperparameters that a tuner searches."""

import json
from collections.abc import Sequence
from typing import Any

_SCALES = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class _NumberRange:
    """A range of numbers, both ends included."""

    def __init__(self, min_value: float, max_value: float, scaling_type: str = "Auto") -> None:
        if scaling_type not in _SCALES:
            raise ValueError(f"scaling_type={scaling_type!r} is not allowed; expected one of {', '.join(_SCALES)}")
        if min_value > max_value:
            raise ValueError(f"min_value={min_value!r} is above max_value={max_value!r}")
        self.min_value = min_value
        self.max_value = max_value
        self.scaling_type = scaling_type

    def is_valid(self, value: float) -> bool:
        """Return whether the range has a value.

        Args:
            value: A number.

        Returns:
            True if it has the value.
        """
        return self.min_value <= value <= self.max_value

    def as_tuning_range(self, name: str) -> dict[str, str]:
        """Return the member of the request.

        Args:
            name: Name of the hyperparameter.

        Returns:
            A member of the list of its kind.
        """
        ends = {"MinValue": str(self.min_value), "MaxValue": str(self.max_value)}
        return {"Name": name, **ends, "ScalingType": self.scaling_type}


class ContinuousParameter(_NumberRange):
    """A range of floating point numbers.

    Args:
        min_value: Smallest value.
        max_value: Largest value.
        scaling_type: ``Auto``, ``Linear``, ``Logarithmic`` or ``ReverseLogarithmic``.

    Raises:
        ValueError: The ends are in the wrong order, or the scale is unknown.
    """


class IntegerParameter(_NumberRange):
    """A range of integers.

    Args:
        min_value: Smallest value.
        max_value: Largest value.
        scaling_type: ``Auto``, ``Linear`` or ``Logarithmic``.

    Raises:
        ValueError: The ends are in the wrong order, or the scale is unknown.
    """


class CategoricalParameter:
    """A list of values.

    Args:
        values: The values; one that is not a list is the only one.
    """

    def __init__(self, values: Any) -> None:
        given: Sequence[Any] = values if isinstance(values, (list, tuple)) else [values]
        self.values = [str(value) for value in given]

    def is_valid(self, value: Any) -> bool:
        """Return whether the list has a value.

        Args:
            value: A value.

        Returns:
            True if it has the value.
        """
        return str(value) in self.values

    def as_tuning_range(self, name: str) -> dict[str, Any]:
        """Return the member of the request, with the values as they are.

        Args:
            name: Name of the hyperparameter.

        Returns:
            A member of the list of its kind.
        """
        return {"Name": name, "Values": list(self.values)}

    def as_json_range(self, name: str) -> dict[str, Any]:
        """Return the member of the request, with the values as JSON, which is the form of estimators.

        Args:
            name: Name of the hyperparameter.

        Returns:
            A member of CategoricalParameterRanges.
        """
        return {"Name": name, "Values": [json.dumps(value) for value in self.values]}


def ranges_in_request(ranges: "dict[str, Any]") -> dict[str, Sequence[dict[str, Any]]]:
    """Return ``ParameterRanges`` of a request.

    Args:
        ranges: Ranges by the name of the hyperparameter. Those of AWS's SDK are accepted, too.

    Raises:
        ValueError: A value is no range.
    """
    found: dict[str, list[dict[str, Any]]] = {
        "IntegerParameterRanges": [],
        "ContinuousParameterRanges": [],
        "CategoricalParameterRanges": [],
    }
    for name, each in ranges.items():
        kind = type(each).__name__.replace("Parameter", "ParameterRanges")
        if kind not in found:
            raise ValueError(
                f"hyperparameter_ranges[{name!r}]={each!r}; expected IntegerParameter, ContinuousParameter or"
                " CategoricalParameter"
            )
        found[kind].append(each.as_json_range(name) if hasattr(each, "as_json_range") else each.as_tuning_range(name))
    return dict(found)
