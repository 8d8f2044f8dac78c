"""Several runs of a compiled step in one call of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill_tensorflow.compiler import functions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AT_ONCE", "SeveralRuns", "build"]

AT_ONCE = "at_once"


@dataclass(frozen=True)
class SeveralRuns:
    """A function of several runs.

    Attributes:
        count: How many runs.
        shapes: Of the arguments of each run.
    """

    count: int
    shapes: tuple[Any, ...]
    _function: functions.Part
    _is_common: tuple[bool, ...]

    def __call__(self, arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Run with the arguments of each run, and return the results of each."""
        results = self._function(*functions.distinct(arguments, self._is_common))
        size = len(results) // self.count
        return [results[size * index : size * (index + 1)] for index in range(self.count)]


def build(
    step: Any, arguments: Sequence[Any], is_common: Sequence[bool], shapes: tuple[Any, ...], *, count: int, name: str
) -> SeveralRuns:
    """Compile several runs, on copies of the variables.

    Args:
        step: The compiled step.
        arguments: Of one run.
        is_common: Which of them are the same in all runs, as variables are.
        shapes: Of the arguments.
        count: Number of runs.
        name: Of the function.

    Raises:
        ValueError: A resource is no variable.
        tf.errors.OpError: XLA does not compile it.
    """
    function = functions.repeat(step, arguments, is_common, count=count, name=name)
    copied, kept = functions.copies(functions.distinct([arguments] * count, is_common))
    functions.warm_up(function, copied, kept)
    return SeveralRuns(count, shapes, function, tuple(is_common))
