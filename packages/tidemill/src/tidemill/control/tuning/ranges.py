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
from typing import Any, Protocol

__all__ = ["Categories", "Integers", "Numbers", "Range", "Scale", "ranges_of"]

_AUTO_LOG_RATIO = 1000.0
"""Scale Auto is logarithmic if a positive range spans at least this factor."""
_HINT_FACTOR = 10


class Scale(StrEnum):
    """SageMaker's ScalingType, except Auto."""

    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE = "ReverseLogarithmic"

    def forward(self, value: float) -> float:
        """Map a value to the scale.

        Args:
            value: Within the scale's domain: above 0 for Logarithmic, below 1 for ReverseLogarithmic.
        """
        if self is Scale.LOGARITHMIC:
            return math.log(value)
        return -math.log1p(-value) if self is Scale.REVERSE else value

    def backward(self, scaled: float) -> float:
        """Map a place on the scale back to the value.

        Args:
            scaled: A result of `forward`.
        """
        if self is Scale.LOGARITHMIC:
            return math.exp(scaled)
        return -math.expm1(-scaled) if self is Scale.REVERSE else scaled


class Range(Protocol):
    """The values that one hyperparameter may have."""

    @property
    def name(self) -> str:
        """Name of the hyperparameter."""
        ...

    @property
    def choices(self) -> int:
        """Number of categories; 0 for a range of numbers."""
        ...

    def draw(self, random: Random) -> float:
        """Return a coordinate, evenly distributed.

        Args:
            random: Source of the draw.
        """
        ...

    def text(self, coordinate: float) -> str:
        """Return the value at a coordinate, as a hyperparameter's text.

        Args:
            coordinate: A number's place from 0 to 1, or the index of a category.
        """
        ...

    def coordinate(self, text: str) -> float | None:
        """Return the coordinate of a hyperparameter's text; None if the range does not have the value.

        Args:
            text: The text.
        """
        ...


@dataclass(frozen=True, slots=True)
class Categories:
    """The values of a categorical hyperparameter."""

    name: str
    values: tuple[str, ...]

    @property
    def choices(self) -> int:
        return len(self.values)

    def draw(self, random: Random) -> float:
        return random.randrange(len(self.values))

    def text(self, coordinate: float) -> str:
        return self.values[int(coordinate)]

    def coordinate(self, text: str) -> float | None:
        return self.values.index(text) if text in self.values else None


@dataclass(frozen=True, slots=True)
class Numbers:
    """A range of floating point numbers, both ends included."""

    name: str
    low: float
    high: float
    scale: Scale

    @property
    def choices(self) -> int:
        return 0

    def draw(self, random: Random) -> float:
        return random.random()

    def text(self, coordinate: float) -> str:
        low, high = self.scale.forward(self.low), self.scale.forward(self.high)
        value = self.scale.backward(low + coordinate * (high - low))
        return repr(min(max(value, self.low), self.high))

    def coordinate(self, text: str) -> float | None:
        value = _number(text)
        return None if value is None else _place(value, self.low, self.high, self.scale)


@dataclass(frozen=True, slots=True)
class Integers:
    """A range of integers, both ends included. Each has an equal part of the scale around it."""

    name: str
    low: int
    high: int
    scale: Scale

    @property
    def choices(self) -> int:
        return 0

    def draw(self, random: Random) -> float:
        return random.random()

    def text(self, coordinate: float) -> str:
        low, high = self.scale.forward(self._below), self.scale.forward(self.high + 0.5)
        value = round(self.scale.backward(low + coordinate * (high - low)))
        return str(min(max(value, self.low), self.high))

    def coordinate(self, text: str) -> float | None:
        value = _number(text)
        if value is None or value != int(value) or not self.low <= value <= self.high:
            return None
        return _place(value, self._below, self.high + 0.5, self.scale)

    @property
    def _below(self) -> float:
        return self.low - 0.5


def ranges_of(parameters: Mapping[str, Any]) -> tuple[Range, ...]:
    """Return the ranges of a definition, in the order of the request.

    Args:
        parameters: ``ParameterRanges`` or ``HyperParameterRanges``, checked by `tidemill.control.tuning.admission`.
    """
    ranges: list[Range] = [
        Integers(each["Name"], int(each["MinValue"]), int(each["MaxValue"]), _scale(each))
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
        return Integers(name, max(1, int(value) // _HINT_FACTOR), int(value) * _HINT_FACTOR, Scale.LOGARITHMIC)
    return Numbers(name, value / _HINT_FACTOR, value * _HINT_FACTOR, Scale.LOGARITHMIC)


def _place(value: float, low: float, high: float, scale: Scale) -> float | None:
    if not low <= value <= high:
        return None
    begin, end = scale.forward(low), scale.forward(high)
    return (scale.forward(value) - begin) / (end - begin) if end > begin else 0.5


def _number(text: str) -> float | None:
    try:
        value = float(json.loads(text))
    except (ValueError, TypeError):
        return None
    return value if math.isfinite(value) else None
