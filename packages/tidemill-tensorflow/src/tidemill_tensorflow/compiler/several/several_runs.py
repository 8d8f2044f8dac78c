"""Run a step several times in one call of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import tensorflow as tf

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE
from tidemill_tensorflow.compiler.variants.trials import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction
    from tidemill_tensorflow.compiler.graphs.parts import Parts
    from tidemill_tensorflow.compiler.graphs.random_numbers import Draws
    from tidemill_tensorflow.compiler.variants.payback import Account
    from tidemill_tensorflow.compiler.variants.shapes import Shape
    from tidemill_tensorflow.compiler.variants.trials import Trial


@dataclass(frozen=True)
class SeveralRuns:
    """Function that runs a step several times.

    Attributes:
        count: Number of runs per call.
        variant: The variant of the step that each run uses.
    """

    count: int
    shapes: tuple[tf.TensorShape, ...]
    variant: str
    _function: functions.Part
    _is_common: tuple[bool, ...]

    def __call__(self, arguments: Sequence[Sequence[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """Run the step once for each list of arguments, and return one list of results per run."""
        results = self._function(*functions.distinct(arguments, self._is_common))
        size = len(results) // self.count
        return [results[size * index : size * (index + 1)] for index in range(self.count)]


class GroupedStep(Protocol):
    """Methods of a step that `Grouping` uses."""

    name: str
    shapes: dict[tuple[object, ...], Shape]
    draws: Draws
    reason: str | None
    account: Account
    at_once: Trial | None

    def main_shape(self) -> Shape | None:
        """Return the shape with the most calls."""

    def can_group(self) -> bool:
        """Return whether several runs can be one call."""

    def before(self, parts: Parts, slots: Sequence[tf.Tensor], *, later: int = 0) -> list[tf.Tensor]:
        """Run the part before the step."""

    def run_variant(self, parts: Parts, arguments: list[tf.Tensor]) -> list[tf.Tensor]:
        """Run the step once."""

    def count(self, parts: Parts, slots: Sequence[tf.Tensor], runs: int = 1) -> None:
        """Count runs."""

    def end_of_data(self, parts: Parts, slots: Sequence[tf.Tensor]) -> None:
        """Run and count what a call does although it gets no next element."""

    def run_in_background(self, work: Callable[[], None]) -> None:
        """Run work in the background thread."""


class Grouping:
    """Several runs of one step per call: requested by `fit`, compiled in the background, and then used."""

    def __init__(self, step: GroupedStep) -> None:
        self.step = step
        self._runs: SeveralRuns | None = None
        self._requested = 0
        self._ended: tf.errors.OutOfRangeError | None = None

    @property
    def is_requested(self) -> bool:
        """Whether `compile` must be called after the next run."""
        return self._requested > 0

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` has requested the compilation."""
        return self._requested != 0

    def prepare(self, count: int) -> bool:
        """Request the compilation of several runs per call for the main shape; return whether it has finished."""
        if self._requested == 0 and self.step.can_group():
            self._requested = count
        return self._runs is not None

    def can_run(self, count: int) -> bool:
        """Return whether a call can do this number of runs."""
        return count > 1 and self._runs is not None and self._runs.count == count

    def release(self) -> None:
        """Free the compiled code."""
        self._runs, self._requested = None, 0

    def raise_end(self) -> None:
        """Raise the error that ended the data in the last call, if the data ended after some runs of this call."""
        ended, self._ended = self._ended, None
        if ended is not None:
            raise ended

    def compile(self, parts: Parts, shape: Shape, arguments: list[tf.Tensor]) -> None:
        """Compile several runs per call in the background, if the arguments of this run have the main shape."""
        if parts.shapes_of(arguments) != shape.shapes or shape.decision is None:
            return
        variant, count, self._requested = shape.decision, self._requested, -1
        step = parts.plain if variant == PLAIN else shape.functions[variant]

        def compile() -> None:
            is_common = [index < parts.common_slots for index in parts.reads[1]]
            try:
                self._runs = _build(
                    step, arguments, is_common, shape.shapes, variant, count=count, name=f"{parts.name}_several"
                )
            except (ValueError, TypeError, tf.errors.OpError):
                return  # each call keeps running one batch, as in the script

        self.step.run_in_background(compile)

    def run(self, parts: Parts, common: list[tf.Tensor]) -> list[tf.Tensor]:
        """Run several steps in one call, and return the slots of the last step.

        If the data ends after some of the steps, these are run, and `raise_end` raises the error.
        """
        assert self._runs is not None
        runs = self._take_batches(parts, common, self._runs.count)
        arguments = [[slots[index] for index in parts.reads[1]] for slots in runs]
        shape = self.step.shapes[self._runs.shapes]
        is_whole = self._ended is None and all(parts.shapes_of(each) == self._runs.shapes for each in arguments)
        if not is_whole or shape.decision != self._runs.variant:
            slots = self._run_one_by_one(parts, runs)
            if self._ended is not None:
                self.step.end_of_data(parts, common)
            return slots
        filled = [[*run, *results] for run, results in zip(runs, self._runs(arguments))]
        slots = filled.pop()
        for earlier in filled if parts.checks_after else ():
            parts.after(*[earlier[index] for index in parts.reads[2]])
        shape.calls += self._runs.count
        shape.count(AT_ONCE, self._runs.count)
        self.step.count(parts, slots, self._runs.count)
        return slots

    def _take_batches(self, parts: Parts, common: list[tf.Tensor], count: int) -> list[list[tf.Tensor]]:
        """Return the slots of each run after the part before the step, for fewer runs if the data ends."""
        runs: list[list[tf.Tensor]] = []
        try:
            for index in range(count):
                before = self.step.before(parts, common, later=index)
                runs.append([*common, *before])
        except tf.errors.OutOfRangeError as error:
            if not runs:
                self.step.end_of_data(parts, common)
                raise
            self._ended = error
        return runs

    def _run_one_by_one(self, parts: Parts, runs: Sequence[list[tf.Tensor]]) -> list[tf.Tensor]:
        slots: list[tf.Tensor] = []
        for run in runs:
            if slots and parts.checks_after:
                parts.after(*[slots[index] for index in parts.reads[2]])
            slots = run
            if parts.random_ops > 0:  # an earlier one of these runs may have drawn values of other sizes
                slots[parts.common_slots] = self.step.draws.state(parts.random_ops)
            slots += self.step.run_variant(parts, [slots[index] for index in parts.reads[1]])
            self.step.count(parts, slots)
        return slots


def _build(
    step: TensorFunction,
    arguments: Sequence[tf.Tensor],
    is_common: Sequence[bool],
    shapes: tuple[tf.TensorShape, ...],
    variant: str,
    *,
    count: int,
    name: str,
) -> SeveralRuns:
    """Build a function of several runs, and run it once on copies of the variables.

    Args:
        is_common: For each argument, whether it is the same in all runs, as variables are.
        variant: Name of the step's variant.

    Raises:
        ValueError: A resource is not a variable.
        tf.errors.OpError: XLA cannot compile the step.
    """
    function = functions.repeat(step, arguments, is_common, count=count, name=name)
    copied, kept = functions.copies(functions.distinct([arguments] * count, is_common))
    functions.warm_up(function, copied, kept)
    return SeveralRuns(count, shapes, variant, function, tuple(is_common))
