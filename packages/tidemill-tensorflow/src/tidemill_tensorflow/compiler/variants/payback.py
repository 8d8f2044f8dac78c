"""When compiling a function pays: its estimated cost, the time of its training so far, and the known time to come.

A short training must not become slower because the compiler watches it. So work on a function begins only when its
estimated cost is at most a small share (`max_cost`) of the time that the function has trained and will certainly train.
What a `fit` without early stopping still has to do is certain. Without that, a training is only expected to last as
long again as it has lasted, and the share keeps the loss small if it does not. A gain is a much larger share, so a cost
that passes is paid back as soon as a variant is faster by a few percent.

Costs of compilation are estimated from the number of nodes, and corrected by what was measured in this process.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_COST = 0.04
VARIABLE = "TIDEMILL_COMPILER_MAX_COST"
"""The default share, and the environment variable that replaces it."""

SPLIT_S = 0.7e-3
VARIANTS_S = 2.5e-3
GROUP_S = 1.0e-3
"""CPU seconds per node of a graph: to split it, to make its variants, and to make one call of several runs. Measured
with the models of ``benchmarks/compiler.py``: 0.5 to 0.8 ms, 1.8 to 3.5 ms, and 0.9 to 1.5 ms."""
TRIAL_STEPS = 12
"""Time that a trial loses with slower variants, in steps: 7 rounds with one that takes 2.8 times as long."""
MIN_RUNS = 4
"""Number of runs before the duration of a step is known. TensorFlow optimizes the function in the first one."""
_AGAIN = 1.1
_MAX_SCALE = 8.0


def max_cost_of(given: float | None) -> float:
    """Return the share that compiling may cost: the given one, that of the environment, or the default.

    Raises:
        ValueError: The share is negative or no number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        share = float(text) if given is None and text else MAX_COST if given is None else float(given)
    except ValueError:
        share = math.nan
    if not share >= 0:
        where = f"max_cost is {given!r}" if given is not None else f"{VARIABLE} is {text!r}"
        raise ValueError(f"{where}: give a share of the training's time, such as 0.04, or inf to compile at once")
    return share


@dataclass
class Ledger:
    """Times of all functions of a process.

    Attributes:
        max_cost: Largest share of the training's time that compiling may cost; infinite to compile at once.
        clock: Returns seconds; steps and compilations are measured with it.
        trained_s: Duration of all training steps so far.
        spent_s: Duration of all compiling so far.
        scale: Measured cost of the last compilation relative to its estimate, at least 1.
    """

    max_cost: float = MAX_COST
    clock: Callable[[], float] = time.perf_counter
    trained_s: float = 0.0
    spent_s: float = 0.0
    scale: float = 1.0


class Account:
    """Times of one function, and the decision whether work on it may begin.

    Attributes:
        size: Number of nodes of the function's graph; None while unknown.
        runs: Number of runs.
        trained_s: Duration of all runs.
        spent_s: Duration of all work on the function.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.size: int | None = None
        self.runs = 0
        self.trained_s = 0.0
        self.spent_s = 0.0
        self._ledger = ledger
        self._first_s = 0.0
        self._first_runs = 0
        self._promised = 0
        self._next_s = 0.0

    @property
    def is_unlimited(self) -> bool:
        """Whether work may begin at once, whatever it costs."""
        return math.isinf(self._ledger.max_cost)

    @property
    def step_s(self) -> float:
        """Mean duration of a run without the first call; 0 before `MIN_RUNS` runs."""
        if self.runs < MIN_RUNS or self.runs == self._first_runs:
            return 0.0
        return (self.trained_s - self._first_s) / (self.runs - self._first_runs)

    @property
    def to_come_s(self) -> float:
        """Duration of the runs that will certainly follow."""
        return max(self._promised - self.runs, 0) * self.step_s

    def train(self, seconds: float, runs: int = 1) -> None:
        """Count runs that took a number of seconds together."""
        if self.runs == 0:
            self._first_s, self._first_runs = seconds, runs
        self.runs += runs
        self.trained_s += seconds
        self._ledger.trained_s += seconds

    def promise(self, runs: int) -> None:
        """Note how many further runs are certain; 0 if none is."""
        self._promised = self.runs + runs
        self._next_s = 0.0

    def spend(self, seconds: float) -> None:
        """Count work that took a number of seconds."""
        self.spent_s += seconds
        self._ledger.spent_s += seconds

    def learn(self, seconds: float) -> None:
        """Correct later estimates by the time that the variants of this function took."""
        if self.size:
            self._ledger.scale = min(max(seconds / (self.size * VARIANTS_S), 1.0), _MAX_SCALE)

    def may_begin(self) -> bool:
        """Return whether the function may be split and compiled. This is cheap before every run."""
        if self.is_unlimited:
            return True
        if self.runs < MIN_RUNS or self.size is None or self.trained_s < self._next_s:
            return False
        self._next_s = _AGAIN * self.trained_s
        return self.can_pay(self.cost_s)

    @property
    def cost_s(self) -> float:
        """Estimated cost of splitting the function, making its variants and comparing them, in seconds."""
        return (self.size or 0) * (SPLIT_S + VARIANTS_S) * self._ledger.scale + TRIAL_STEPS * self.step_s

    def may_group(self) -> bool:
        """Return whether several runs per call may be prepared."""
        return self.can_pay((self.size or 0) * GROUP_S * self._ledger.scale + TRIAL_STEPS * self.step_s)

    def may_add_shape(self, share: float) -> bool:
        """Return whether variants may be made for further shapes, to which a share of the runs belongs."""
        return self.can_pay((self.size or 0) * VARIANTS_S * self._ledger.scale + TRIAL_STEPS * self.step_s, share)

    def can_pay(self, cost_s: float, share: float = 1.0) -> bool:
        """Return whether a cost is small against this function's training, and all costs against all training.

        Args:
            share: Share of the function's training that gains.
        """
        most, to_come_s = self._ledger.max_cost, self.to_come_s
        if math.isinf(most):
            return True
        own_s = self.trained_s + to_come_s
        return (
            cost_s <= most * share * own_s
            and self.spent_s + cost_s <= most * own_s
            and self._ledger.spent_s + cost_s <= most * (self._ledger.trained_s + to_come_s)
        )

    def wanted(self) -> str:
        """Return how long the function must train before its compilation begins, as text."""
        if not math.isfinite(self._ledger.max_cost) or self._ledger.max_cost == 0 or self.size is None:
            return "not compiled: the training was short"
        return (
            f"not compiled: {self.trained_s:.1f} s of steps, and compiling (about {self.cost_s:.1f} s) begins after"
            f" {self.cost_s / self._ledger.max_cost:.0f} s"
        )
