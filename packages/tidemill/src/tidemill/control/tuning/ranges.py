"""The ranges of hyperparameters, each mapped to coordinates in which a search moves evenly.

A number has a coordinate from 0 to 1, on the scale of its range: half of the draws from 1e-4 to 1 on a logarithmic
scale are below 1e-2. A category's coordinate is its index.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, ClassVar

_AUTO_LOG_RATIO = 1000.0
"""Scale Auto is logarithmic if a positive range spans at least this factor."""
_HINT_FACTOR = 10


class Scale(StrEnum):
    """SageMaker's ScalingType, except Auto."""

    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE = "ReverseLogarithmic"

    def forward(self, value: float) -> float:
        """Map a value to the scale: above 0 for Logarithmic, below 1 for ReverseLogarithmic."""
        if self is Scale.LOGARITHMIC:
            return math.log(value)
        return -math.log1p(-value) if self is Scale.REVERSE else value

    def backward(self, scaled: float) -> float:
        """Map a result of `forward` back to the value."""
        if self is Scale.LOGARITHMIC:
            return math.exp(scaled)
        return -math.expm1(-scaled) if self is Scale.REVERSE else scaled


@dataclass(frozen=True, slots=True)
class Categories:
    """The values of a categorical hyperparameter. A coordinate is the index of a value."""

    name: str
    values: tuple[str, ...]

    @property
    def choices(self) -> int:
        """Number of categories."""
        return len(self.values)

    def draw(self, random: Random) -> float:
        """Return a coordinate, evenly distributed."""
        return random.randrange(len(self.values))

    def text(self, coordinate: float) -> str:
        """Return the value at a coordinate, as a hyperparameter's text."""
        return self.values[int(coordinate)]

    def coordinate(self, text: str) -> float | None:
        """Return the coordinate of a hyperparameter's text; None if the range does not have the value."""
        return self.values.index(text) if text in self.values else None


@dataclass(frozen=True, slots=True)
class Numbers:
    """A range of numbers, both ends included. A coordinate is the place from 0 to 1 on the scale.

    Attributes:
        name: Name of the hyperparameter.
        low: The lower end.
        high: The upper end.
        scale: How the range is divided.
        whole: Whether it is a range of integers. Each has an equal part of the scale around it.
    """

    name: str
    low: float
    high: float
    scale: Scale
    whole: bool = False
    choices: ClassVar[int] = 0

    def draw(self, random: Random) -> float:
        return random.random()

    def text(self, coordinate: float) -> str:
        begin, end = self._ends
        value = self.scale.backward(begin + coordinate * (end - begin))
        return str(min(max(round(value) if self.whole else value, self.low), self.high))

    def coordinate(self, text: str) -> float | None:
        value = _number(text)
        if value is None or not self.low <= value <= self.high or (self.whole and value != int(value)):
            return None
        begin, end = self._ends
        return (self.scale.forward(value) - begin) / (end - begin) if end > begin else 0.5

    @property
    def _ends(self) -> tuple[float, float]:
        """The ends on the scale."""
        around = 0.5 if self.whole else 0
        return self.scale.forward(self.low - around), self.scale.forward(self.high + around)


Range = Categories | Numbers
"""The values that one hyperparameter may have."""


def ranges_of(parameters: Mapping[str, Any]) -> tuple[Range, ...]:
    """Return the ranges of a definition, in the order of the request.

    Args:
        parameters: ``ParameterRanges`` or ``HyperParameterRanges``, checked by `tidemill.control.tuning.admission`.
    """
    ranges: list[Range] = [
        Numbers(each["Name"], int(each["MinValue"]), int(each["MaxValue"]), _scale(each), whole=True)
        for each in parameters.get("IntegerParameterRanges", ())
    ]
    ranges += [
        Numbers(each["Name"], float(each["MinValue"]), float(each["MaxValue"]), _scale(each))
        for each in parameters.get("ContinuousParameterRanges", ())
    ]
    ranges += [
        Categories(each["Name"], tuple(each["Values"])) for each in parameters.get("CategoricalParameterRanges", ())
    ]
    ranges += [_around(each["Name"], each["ValueHint"]) for each in parameters.get("AutoParameters", ())]
    return tuple(ranges)


def _scale(given: Mapping[str, str]) -> Scale:
    chosen = given.get("ScalingType", "Auto")
    if chosen != "Auto":
        return Scale(chosen)
    low, high = float(given["MinValue"]), float(given["MaxValue"])
    return Scale.LOGARITHMIC if low > 0 and high >= _AUTO_LOG_RATIO * low else Scale.LINEAR


def _around(name: str, hint: str) -> Range:
    """Return the range of an auto parameter: from a tenth to ten times its hint; a text stays as it is."""
    value = _number(hint)
    if value is None or value <= 0:
        return Categories(name, (hint,))
    if value == int(value) and "." not in hint and "e" not in hint.lower():
        low, high = max(1, int(value) // _HINT_FACTOR), int(value) * _HINT_FACTOR
        return Numbers(name, low, high, Scale.LOGARITHMIC, whole=True)
    return Numbers(name, value / _HINT_FACTOR, value * _HINT_FACTOR, Scale.LOGARITHMIC)


def _number(text: str) -> float | None:
    try:
        value = float(json.loads(text))
    except (ValueError, TypeError):
        return None
    return value if math.isfinite(value) else None
