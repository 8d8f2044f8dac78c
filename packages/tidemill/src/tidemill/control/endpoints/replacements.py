"""Decide when to replace instances that died: the first time at once, then with growing pauses, up to a limit.

The counts are in memory only: a restarted service counts from zero.
"""

from dataclasses import dataclass

from tidemill.core.clock import Clock
from tidemill.core.hosting import Instance

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_STABLE_S = 60.0
"""An instance that was ready for this long resets the count: its death has another cause than the earlier ones."""
_DEATHS = 5
"""The endpoint fails after this many deaths in a row if no other instance serves."""


@dataclass(slots=True)
class _Deaths:
    in_a_row: int = 0
    next_s: float = 0.0


class Replacements:
    """Counts deaths and failed pings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deaths: dict[str, _Deaths] = {}
        self._pinged_s: dict[tuple[str, int], float] = {}
        self._answered_s: dict[tuple[str, int], float] = {}

    def died(self, key: str, instance: Instance) -> bool:
        """Count the death of an endpoint's instance. Return False if too many died in a row.

        Args:
            key: Key of the endpoint.
            instance: The instance that died.
        """
        deaths = self._deaths.setdefault(key, _Deaths())
        lived_s = (self._clock.now_ms() - instance.created_ms) / 1000
        deaths.in_a_row = 1 if instance.ready and lived_s > _STABLE_S else deaths.in_a_row + 1
        pause_s = 0.0 if deaths.in_a_row == 1 else _FIRST_PAUSE_S * 2 ** (deaths.in_a_row - 2)
        deaths.next_s = self._clock.monotonic_s() + min(pause_s, _LONGEST_PAUSE_S)
        return deaths.in_a_row < _DEATHS

    def due(self, key: str) -> bool:
        """Return whether a missing instance may be replaced now.

        Args:
            key: Key of the endpoint.
        """
        deaths = self._deaths.get(key)
        return deaths is None or self._clock.monotonic_s() >= deaths.next_s

    def ping_due(self, instance: Instance, *, every_s: float) -> bool:
        """Return whether an instance's next ping is due; if so, record the ping as sent.

        Args:
            every_s: Seconds between pings.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._pinged_s.get(instance.key, float("-inf")) < every_s:
            return False
        self._pinged_s[instance.key] = now_s
        return True

    def silent_s(self, instance: Instance, *, answers: bool) -> float:
        """Record the result of a ping. Return for how many seconds the instance has not answered.

        Args:
            answers: Whether it answered the ping.
        """
        now_s = self._clock.monotonic_s()
        if answers:
            self._answered_s[instance.key] = now_s
        return now_s - self._answered_s.setdefault(instance.key, now_s)

    def forget_instance(self, instance: Instance) -> None:
        """Drop the counts of an instance.

        Args:
            instance: The instance.
        """
        self._pinged_s.pop(instance.key, None)
        self._answered_s.pop(instance.key, None)

    def forget(self, key: str) -> None:
        """Drop the counts of an endpoint.

        Args:
            key: Key of the endpoint.
        """
        self._deaths.pop(key, None)
