"""Count the requests of production variants per minute, for automatic scaling.

Only variants that are watched are counted. The counts are in memory only: after a restart of the service they begin
with the next complete minute, so that a minute of which only a part was seen never decides.
"""

from collections import deque
from dataclasses import dataclass, field

from tidemill.core.clock import Clock
from tidemill.core.hosting import Variant
from tidemill.core.scaling import Minute

_KEPT = 15
_MINUTE_S = 60
_Key = tuple[str, str]


@dataclass(slots=True)
class _Bucket:
    minute: int
    calls: int
    instances: int


@dataclass(slots=True)
class _Watched:
    since: int
    """The first minute that is counted completely."""
    buckets: deque[_Bucket] = field(default_factory=lambda: deque(maxlen=_KEPT + 1))


class Invocations:
    """Counts requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[_Key, _Watched] = {}

    def note(self, endpoint_id: str, variant: Variant) -> None:
        """Count a request, if its variant is watched.

        Args:
            variant: The variant that gets the request.
        """
        watched = self._watched.get((endpoint_id, variant.name))
        if watched is None:
            return
        minute = self._minute()
        if not watched.buckets or watched.buckets[-1].minute != minute:
            watched.buckets.append(_Bucket(minute, 0, 1))
        watched.buckets[-1].calls += 1
        watched.buckets[-1].instances = _serving(variant)

    def minutes(self, endpoint_id: str, variant: Variant) -> tuple[Minute, ...]:
        """Return the last complete minutes of a variant, at most 15, the newest last; watch it from now on.

        Args:
            endpoint_id: Id of the endpoint.
            variant: The variant.
        """
        now, instances = self._minute(), _serving(variant)
        watched = self._watched.setdefault((endpoint_id, variant.name), _Watched(now + 1))
        by_minute = {each.minute: each for each in watched.buckets}
        found = []
        for minute in range(max(watched.since, now - _KEPT), now):
            bucket = by_minute.get(minute)
            found.append(
                Minute(calls=0, instances=instances)
                if bucket is None
                else Minute(calls=bucket.calls, instances=bucket.instances)
            )
        return tuple(found)

    def keep(self, keys: set[_Key]) -> None:
        """Stop watching all other variants.

        Args:
            keys: Id of the endpoint and name of the variant, each.
        """
        self._watched = {key: watched for key, watched in self._watched.items() if key in keys}

    def _minute(self) -> int:
        return int(self._clock.monotonic_s() // _MINUTE_S)


def _serving(variant: Variant) -> int:
    return max(1, sum(each.ready for each in variant.instances))
