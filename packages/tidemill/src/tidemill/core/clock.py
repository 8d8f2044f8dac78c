"""The interface to time: wall time for users, monotonic time for durations."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return the wall time in milliseconds since the epoch. It may jump."""

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary point. They never jump, and are comparable within one boot."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
