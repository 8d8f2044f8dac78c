"""Choose the fastest variant of a step from paired times of real steps, on which the variants alternate."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PLAIN", "Times", "Trial"]

PLAIN = "plain"

MIN_ROUNDS = 6
MAX_ROUNDS = 24
MIN_GAIN = 0.02
"""Fraction by which a variant must be faster than plain. Plain wins ties, because it needs no compilation."""
_CERTAIN = 2.5
"""Distance between a mean gain and the required gain, in standard errors, for a decision before the last round."""
_LIKELY = 1.5
"""The same distance after the last round. A variant with a smaller distance loses to plain."""


@dataclass(frozen=True)
class Times:
    """Wall time and CPU time of one step in this process, in seconds."""

    wall_s: float
    cpu_s: float


@dataclass
class Trial:
    """Rounds in which every variant runs one step. The order of variants is reversed in every other round.

    Attributes:
        variants: Names of the variants, plain first.
        times: Times of the finished rounds, by variant.
        decision: Name of the chosen variant, or None while undecided.
        is_busy: Returns whether other processes used the CPUs during the trial. If so, CPU times decide.
    """

    variants: tuple[str, ...]
    times: dict[str, list[Times]] = field(default_factory=dict)
    decision: str | None = None
    is_busy: Callable[[], bool] = lambda: False
    _waiting: list[str] = field(default_factory=list)
    _round: int = 0
    _busy: bool = False

    def next(self) -> str:
        """Return the variant that runs the next step."""
        if self.decision is not None:
            return self.decision
        if not self._waiting:
            # The first round does not count, because caches are cold.
            self._waiting = list(self.variants if self._round % 2 else reversed(self.variants))
            self._round += 1
        return self._waiting[0]

    def record(self, variant: str, times: Times) -> None:
        """Record the times of the step that `next` returned. At the end of a round, try to decide."""
        if self.decision is not None or not self._waiting or variant != self._waiting[0]:
            return
        self._waiting.pop(0)
        if self._round > 1:
            self.times.setdefault(variant, []).append(times)
        if not self._waiting:
            self._decide()

    def medians_s(self) -> dict[str, float]:
        """Return the median wall time of each variant, in seconds."""
        return {name: statistics.median(each.wall_s for each in times) for name, times in self.times.items()}

    def _decide(self) -> None:
        rounds = self._round - 1
        if rounds < MIN_ROUNDS:
            return
        self._busy = self.is_busy()
        known = {name: self._gain(name) for name in self.variants[1:]}
        margin = -math.log1p(-MIN_GAIN)
        best = max(known, key=lambda name: known[name][0], default=PLAIN)
        last = rounds >= MAX_ROUNDS
        if all(gain + _CERTAIN * error < margin for gain, error in known.values()):
            self.decision = PLAIN
        elif last or all(
            known[best][0] - _CERTAIN * known[best][1] > margin
            and (name == best or gain + _CERTAIN * error < known[best][0])
            for name, (gain, error) in known.items()
        ):
            self.decision = best if known[best][0] - _LIKELY * known[best][1] > margin else PLAIN

    def _gain(self, name: str) -> tuple[float, float]:
        """Return the mean logarithm of (plain time / variant time) over the rounds, and its standard error."""
        pairs = zip(self.times[PLAIN], self.times[name])  # noqa: B905 - Python 3.9 has no strict
        logs = sorted(math.log(self._seconds(plain) / self._seconds(other)) for plain, other in pairs)
        trimmed = logs[len(logs) // 6 : len(logs) - len(logs) // 6]
        return statistics.fmean(trimmed), statistics.stdev(trimmed) / math.sqrt(len(trimmed))

    def _seconds(self, times: Times) -> float:
        return max(times.cpu_s if self._busy else times.wall_s, 1e-9)
