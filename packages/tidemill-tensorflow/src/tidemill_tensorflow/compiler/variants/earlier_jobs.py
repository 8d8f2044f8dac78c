"""What jobs tell later jobs about a whole function, which these read before the first run.

The decision about a step is stored with the shapes of its arguments. A later job only knows both after it has split
the function and has run the part before the step. With what is stored here, it knows before that whether to split the
function at all, and whether the script's own function will be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidemill_tensorflow.compiler.graphs.fingerprints import fingerprint
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE, MAX_STEP_S
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Trial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.variants.decisions import DecisionStore
    from tidemill_tensorflow.compiler.variants.shapes import Shape

BY_SHAPE = "by shape"
"""What is stored for a function if only the decisions of its shapes are certain: a later job splits it at once."""

MAX_WAIT_S = 5.0
"""Longest compilation, in seconds, for which the first run of a later job waits. Others are done in the background."""


class DecidedStep(Protocol):
    """Attributes and methods of a step that `record` reads."""

    key: str | None
    reason: str | None
    is_of_fit: bool
    at_once: Trial | None

    def main_shape(self) -> Shape | None:
        """Return the shape with the most calls."""

    def has_static_shapes(self) -> bool:
        """Return whether the graph alone determines the shapes of the step's arguments."""


def key_of(concrete: ConcreteFunction) -> str:
    """Return the key of a traced function in the store of decisions."""
    return f"function {fingerprint(concrete.graph.as_graph_def())}"


def record(store: DecisionStore, steps: Iterable[DecidedStep]) -> None:
    """Store what is certain about functions, for later jobs."""
    for step in steps:
        decision = _decision(step)
        if step.key is not None and decision is not None and store.read(step.key) != decision:
            store.write(step.key, decision)


def _decision(step: DecidedStep) -> str | None:
    """Return the variant of the main shape, or `AT_ONCE` if plain steps run in groups; None if that is not certain.

    `BY_SHAPE` if the variant takes long to compile, so that later jobs do not wait for it.

    Later jobs do not even try the variants of a function that is plain. So the graph itself must determine the shapes
    of its arguments, and groups must have been tried, or steps be too long for them.
    """
    shape = step.main_shape()
    if step.reason is not None or shape is None or shape.trial is None or shape.decision is None:
        return None
    if shape.decision != PLAIN:
        return shape.decision if shape.first_s.get(shape.decision, 0.0) <= MAX_WAIT_S else BY_SHAPE
    in_groups = step.at_once.decision if step.at_once is not None else None
    if in_groups == AT_ONCE:
        return AT_ONCE
    is_open = step.is_of_fit and shape.step_s <= MAX_STEP_S and in_groups is None
    has_tried = shape.reason is None and not is_open  # a later job tries again what failed, and says why
    return PLAIN if step.has_static_shapes() and has_tried else None
