"""Serverless variants: the first request starts a server, which ends after a time without requests.

The counts are in memory only: after a restart of the service the idle time starts at zero.
"""

import contextlib
from collections import Counter
from collections.abc import Generator

from tidemill.core.clock import Clock
from tidemill.core.hosting import Variant
from tidemill.errors import AwsError

_Key = tuple[str, str]


class Serverless:
    """Counts the requests of serverless variants.

    Args:
        idle_s: Seconds without a request after which a server is ended.
    """

    def __init__(self, clock: Clock, *, idle_s: float) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._busy: Counter[_Key] = Counter()
        self._used_s: dict[_Key, float] = {}

    @contextlib.contextmanager
    def admitted(self, endpoint_id: str, variant: Variant) -> Generator[None]:
        """Count a request to a variant until the block ends.

        Raises:
            AwsError: ThrottlingException if the variant already has MaxConcurrency requests.
        """
        if variant.serverless is None:
            yield
            return
        key, limit = (endpoint_id, variant.name), variant.serverless["MaxConcurrency"]
        if self._busy[key] >= limit:
            raise AwsError(
                f"Rate exceeded: variant {variant.name} answers {limit} requests, its MaxConcurrency; try again later",
                code="ThrottlingException",
            )
        self._busy[key] += 1
        try:
            yield
        finally:
            self._busy[key] -= 1
            self._used_s[key] = self._clock.monotonic_s()

    def idle(self, endpoint_id: str, variant: Variant) -> bool:
        """Return whether a variant's servers have been idle long enough to end; with ProvisionedConcurrency never.

        Args:
            variant: A variant with a ServerlessConfig; others are never idle.
        """
        if variant.serverless is None or variant.serverless.get("ProvisionedConcurrency"):
            return False
        key, now_s = (endpoint_id, variant.name), self._clock.monotonic_s()
        if self._busy[key] or not all(each.ready for each in variant.instances):
            self._used_s[key] = now_s
        return bool(variant.instances) and now_s - self._used_s.setdefault(key, now_s) >= self._idle_s

    def forget(self, endpoint_id: str) -> None:
        """Drop the counts of an endpoint.

        Args:
            endpoint_id: Id of the endpoint.
        """
        for key in [each for each in self._used_s if each[0] == endpoint_id]:
            del self._used_s[key]
