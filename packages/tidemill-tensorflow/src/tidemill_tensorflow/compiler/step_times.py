"""Measure the steady step time of a job, for comparison with other jobs."""

from __future__ import annotations

import statistics
import time
from collections import deque

from tidemill_tensorflow.compiler.variants.trials import Load

__all__ = ["StepTimes"]

MIN_INTERVALS = 30
MAX_INTERVALS = 1000


class StepTimes:
    """Times between the starts of consecutive steps, including the input pipeline and the script's Python."""

    def __init__(self) -> None:
        self._intervals: deque[float] = deque(maxlen=MAX_INTERVALS)
        self._load: Load | None = None
        self._begin: float | None = None
        self._runs = 1

    def begin(self, runs: int, *, is_steady: bool) -> None:
        """Record the start of a call.

        Args:
            runs: Number of steps of the call.
            is_steady: Whether the call belongs to no trial, and the background thread does not compile.
        """
        now = time.perf_counter()
        if is_steady and self._load is None:
            self._load = Load()
        if is_steady and self._begin is not None:
            self._intervals.append((now - self._begin) / self._runs)
        self._begin, self._runs = (now if is_steady else None), runs

    def median_s(self) -> float | None:
        """Return the median time of a step in seconds; None after few steps, or if other processes used the CPUs."""
        if self._load is None or len(self._intervals) < MIN_INTERVALS or self._load.is_high():
            return None
        return statistics.median(self._intervals)
