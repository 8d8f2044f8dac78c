"""Combinations of argument shapes of a training function, each with variants of its own."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill_tensorflow.compiler.variants.trials import PLAIN, Load, Trial

if TYPE_CHECKING:
    import tensorflow as tf

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction

XLA = "xla"
FUSED = "fused"
"""Variants besides plain: XLA compiles the step; TensorFlow runs it, with each update of Adam in one kernel."""
AT_ONCE = "at_once"
"""What is stored if steps of `fit` run several batches per call."""
MAX_STEP_S = 0.03
"""Longest step, in seconds, for which several batches are tried. Python's share of a longer step, about 1 ms, is less
than the share of time for which a variant is chosen, and building the call takes longer, since such steps are large."""

MIN_LAST = 5
MAX_LAST = 15
"""Number of last steps of which a shape keeps the durations, and how many of them give a median."""


@dataclass
class Shape:
    """State of one combination of argument shapes.

    Attributes:
        key: Key of the step with these shapes in the store of decisions.
        calls: Number of calls with these shapes.
        trial: The trial of the variants; None before the compilation has finished.
        functions: By variant except plain: the step.
        compile_s: Duration of the first runs of `functions`, in seconds.
        first_s: By variant except plain: the duration of its first run, which compiles it, in seconds.
        last_s: Durations of the last steps since the decision, in seconds.
        stored: Whether the decision came from an earlier job.
        is_stored: Whether an earlier job has stored a decision, as far as that was asked.
        has_begun: Whether XLA was tried before the first run, because Keras chose XLA.
        reason: Why XLA does not run with these shapes, unless another variant was faster; else None.
        notes: What XLA compiles, if it is only a part of the step.
    """

    shapes: tuple[tf.TensorShape, ...]
    key: str
    calls: int = 0
    trial: Trial | None = None
    functions: dict[str, TensorFunction] = field(default_factory=dict)
    compile_s: float | None = None
    first_s: dict[str, float] = field(default_factory=dict)
    last_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_LAST))
    stored: bool = False
    is_stored: bool = False
    has_begun: bool = False
    reason: str | None = None
    asked: bool = False
    slow: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def decision(self) -> str | None:
        """The chosen variant, or None."""
        if self.trial is not None:
            return self.trial.decision
        return PLAIN if self.reason is not None else None

    @property
    def step_s(self) -> float:
        """Median duration of a step in the chosen variant, in seconds; infinite before the first steps."""
        measured = self.trial.medians_s() if self.trial is not None else {}
        if self.decision in measured:
            return measured[self.decision]
        return statistics.median(self.last_s) if len(self.last_s) >= MIN_LAST else math.inf

    def begin_trial(self, decision: str | None = None) -> None:
        """Let the variants that exist take turns until their times decide.

        Args:
            decision: A variant that an earlier job chose. It is used without a trial, if it exists.
        """
        variants = (PLAIN, *self.functions)
        if decision not in variants:
            decision = None if self.functions else PLAIN
        self.trial = Trial(variants, decision=decision, is_busy=Load().is_high)

    def drop(self, variant: str, reason: str) -> None:
        """Stop using a variant. If others are left, they are compared anew."""
        self.reason = reason
        del self.functions[variant]
        self.begin_trial()

    def count(self, variant: str, steps: int = 1) -> None:
        """Count steps that a variant ran."""
        self.steps[variant] = self.steps.get(variant, 0) + steps
