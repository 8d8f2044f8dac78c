"""Time as a seam: wall time for what users read, monotonic time for every duration."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary point. Never jumps; comparable within one boot."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
