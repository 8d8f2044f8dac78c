"""Run a step several times in one call of TensorFlow."""

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
    """Function that runs a step several times.

    Attributes:
        count: Number of runs per call.
        shapes: Argument shapes of each run.
        variant: The variant of the step that each run uses.
    """

    count: int
    shapes: tuple[Any, ...]
    variant: str
    _function: functions.Part
    _is_common: tuple[bool, ...]

    def __call__(self, arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Run the step once for each list of arguments, and return one list of results per run."""
        results = self._function(*functions.distinct(arguments, self._is_common))
        size = len(results) // self.count
        return [results[size * index : size * (index + 1)] for index in range(self.count)]


def build(
    step: Any,
    arguments: Sequence[Any],
    is_common: Sequence[bool],
    shapes: tuple[Any, ...],
    variant: str,
    *,
    count: int,
    name: str,
) -> SeveralRuns:
    """Build a function of several runs, and run it once on copies of the variables.

    Args:
        step: The step.
        arguments: The arguments of one run.
        is_common: For each argument, whether it is the same in all runs, as variables are.
        shapes: Shapes of the arguments.
        variant: Name of the step's variant.
        count: Number of runs.
        name: Name of the function.

    Raises:
        ValueError: A resource is not a variable.
        tf.errors.OpError: XLA cannot compile the step.
    """
    function = functions.repeat(step, arguments, is_common, count=count, name=name)
    copied, kept = functions.copies(functions.distinct([arguments] * count, is_common))
    functions.warm_up(function, copied, kept)
    return SeveralRuns(count, shapes, variant, function, tuple(is_common))
