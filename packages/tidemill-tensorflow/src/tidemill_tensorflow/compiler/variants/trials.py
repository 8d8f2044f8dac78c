"""Choose the fastest variant of a step from paired times of real steps, on which the variants alternate."""

from __future__ import annotations

import math
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLAIN = "plain"

MIN_ROUNDS = 6
MAX_ROUNDS = 24
MAX_SHORT_ROUNDS = 48
SHORT_S = 1.0
"""Limit of rounds while the plain steps of a trial took less than `SHORT_S` seconds in sum. The times of
short steps vary more, and more of them cost little.
"""
MIN_GAIN = 0.02
"""Fraction by which a variant must be faster than plain. Plain wins ties, because it needs no compilation."""
_EARLY = 2.5
"""Half-width of a gain's interval in standard errors, for a decision before the last round."""
_LAST = 1.5
"""The same half-width after the last round. A variant whose interval is not above `MIN_GAIN` loses to plain."""
_MIN_S = 1e-9


@dataclass(frozen=True)
class Times:
    """Wall time and CPU time of one step in this process, in seconds."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class _Gain:
    """Gain of a variant over plain, as the logarithm of (plain time / variant time).

    Attributes:
        mean: Trimmed mean over the rounds; positive if the variant is faster.
        error: Standard error of the mean.
    """

    mean: float
    error: float

    def low(self, errors: float) -> float:
        """Return the lower end of the interval with a half-width of `errors` standard errors."""
        return self.mean - errors * self.error

    def high(self, errors: float) -> float:
        """Return the upper end of the interval with a half-width of `errors` standard errors."""
        return self.mean + errors * self.error


def turns(variants: Sequence[str], number: int) -> list[str]:
    """Return the order of the variants in a round, by its number from 0."""
    first = number % len(variants)
    return [*variants[first:], *variants[:first]]


@dataclass
class Trial:
    """Rounds in which every variant runs one step. Each round begins with the second variant of the round before.

    So each variant has every position equally often. If every other round had the reversed order, the first and the
    last of three variants would often follow themselves, with warm caches, and the one between them never would.

    A variant that is clearly slower than plain runs no further steps.

    Attributes:
        variants: Names of the variants, plain first.
        times: Times of the finished rounds, by variant.
        decision: Name of the chosen variant, or None while undecided.
        is_busy: Returns whether other processes used the CPUs during the trial. If so, CPU times decide, but a variant
            whose wall times are clearly longer than plain's does not win.
        by_cpu_time: Whether CPU times decided.
    """

    variants: tuple[str, ...]
    times: dict[str, list[Times]] = field(default_factory=dict)
    decision: str | None = None
    is_busy: Callable[[], bool] = lambda: False
    by_cpu_time: bool = False
    _waiting: list[str] = field(default_factory=list)
    _round: int = 0
    _lost: set[str] = field(default_factory=set)

    @property
    def lost(self) -> frozenset[str]:
        """Variants that are clearly slower than plain, and run no further steps."""
        return frozenset(self._lost)

    def next(self) -> str:
        """Return the variant that runs the next step."""
        if self.decision is not None:
            return self.decision
        if not self._waiting:
            # The first round does not count, because caches are cold.
            left = [name for name in self.variants if name not in self._lost]
            self._waiting = turns(left, self._round)
            self._round += 1
        return self._waiting[0]

    def awaits(self, variant: str) -> bool:
        """Return whether a step of this variant counts now: it has not run in this round."""
        return self.decision is None and (self.next() == variant or variant in self._waiting)

    def record(self, variant: str, times: Times) -> None:
        """Record the times of a step of the variant that `next` returned, or that the trial awaits.

        At the end of a round, try to decide.
        """
        if self.decision is not None or variant not in self._waiting:
            return
        self._waiting.remove(variant)
        if self._round > 1:
            self.times.setdefault(variant, []).append(times)
        if not self._waiting:
            self._decide()

    def medians_s(self, *, cpu: bool = False) -> dict[str, float]:
        """Return the median wall time of each measured variant, in seconds, in the order of `variants`.

        Args:
            cpu: Whether to return CPU times instead.
        """
        measured = {name: self.times[name] for name in self.variants if name in self.times}
        return {
            name: statistics.median(each.cpu_s if cpu else each.wall_s for each in times)
            for name, times in measured.items()
        }

    def _decide(self) -> None:
        rounds = self._round - 1
        if rounds < MIN_ROUNDS:
            return
        is_short = sum(times.wall_s for times in self.times[PLAIN]) < SHORT_S
        is_last = rounds >= (MAX_SHORT_ROUNDS if is_short else MAX_ROUNDS)
        walls = self._gains(lambda times: times.wall_s)
        gains = walls
        self.by_cpu_time = self.is_busy()
        if self.by_cpu_time:
            # A compiled step may use less CPU time on fewer cores, and so take longer.
            cpus = self._gains(lambda times: times.cpu_s)
            gains = {name: cpus[name] for name in cpus if walls[name].high(_LAST if is_last else _EARLY) >= 0}
        margin = -math.log1p(-MIN_GAIN)
        best = max(gains, key=lambda name: gains[name].mean, default=PLAIN)
        if all(gain.high(_EARLY) < margin for gain in gains.values()):
            self.decision = PLAIN
        elif is_last:
            self.decision = best if gains[best].low(_LAST) > margin else PLAIN
        elif walls[best].mean >= 0 and all(
            gain.low(_EARLY) > margin if name == best else gain.high(_EARLY) < gains[best].mean
            for name, gain in gains.items()
        ):
            self.decision = best
        else:
            self._lost |= {name for name, gain in walls.items() if gain.high(_EARLY) < 0}

    def _gains(self, seconds: Callable[[Times], float]) -> dict[str, _Gain]:
        """Return the gain over plain of each variant that has not lost yet, by wall time or by CPU time."""
        return {name: self._gain(name, seconds) for name in self.variants[1:] if name not in self._lost}

    def _gain(self, name: str, seconds: Callable[[Times], float]) -> _Gain:
        pairs = zip(self.times[PLAIN], self.times[name])
        logs = sorted(math.log(max(seconds(plain), _MIN_S) / max(seconds(other), _MIN_S)) for plain, other in pairs)
        trimmed = logs[len(logs) // 6 : len(logs) - len(logs) // 6]
        return _Gain(statistics.fmean(trimmed), statistics.stdev(trimmed) / math.sqrt(len(trimmed)))


_STAT = Path("/proc/stat")
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal."""
BUSY_SHARE = 0.15
"""Share of the machine's CPU time used by other processes above which wall times are unreliable."""


class Load:
    """CPU time of other processes since the creation of this object; 0 if ``/proc/stat`` cannot be read."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._others_s = _others_s()

    def is_high(self) -> bool:
        """Return whether other processes used more than 15 % of all CPUs."""
        elapsed_s = time.perf_counter() - self._begin
        return _others_s() - self._others_s > BUSY_SHARE * elapsed_s * (os.cpu_count() or 1)


def _others_s() -> float:
    try:
        fields = _STAT.read_text().split(maxsplit=9)[1:9]
    except OSError:
        return 0.0
    busy = sum(int(fields[index]) for index in _BUSY_FIELDS) / os.sysconf("SC_CLK_TCK")
    return busy - time.process_time()
