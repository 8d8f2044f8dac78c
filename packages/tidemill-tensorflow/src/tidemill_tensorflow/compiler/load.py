"""Measure whether other processes use the CPUs during a timing."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["Load"]

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
