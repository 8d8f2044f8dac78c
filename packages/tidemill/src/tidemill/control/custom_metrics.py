"""The metrics that scripts and clients put into CloudWatch, and alarms, which are kept and never evaluated.

A metric is a record with the list of its chunks; a chunk is a record with up to 1,000 points. So a put changes two
small records, and a read fetches only the chunks of its window.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.core.clock import Clock
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

_METRIC = "metric"  # named by the digest of namespace, name and dimensions
_CHUNK = "metric-chunk"  # named by the digest and the number of the chunk
_ALARM = "alarm"
_CHUNK_POINTS = 1000
_KEPT_MS = 455 * 24 * 3600 * 1000
"""Points are kept as long as CloudWatch keeps them: 15 months."""


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """One metric.

    Attributes:
        namespace: For example ``Team/Training``.
        name: For example ``loss``.
        dimensions: Pairs of name and value, sorted; all of them identify the metric.
    """

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Name of its record."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Put:
    """Points of one metric.

    Attributes:
        at_ms: Time of the points in milliseconds since the epoch.
        values: Finite numbers.
        unit: CloudWatch's name, e.g. ``Seconds`` or ``None``.
    """

    metric: CustomMetric
    at_ms: int
    values: tuple[float, ...]
    unit: str


class CustomMetrics:
    """Keeps metrics and alarms.

    Args:
        records: Stores them.
        clock: Provides the time.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def put(self, puts: Sequence[Put]) -> None:
        """Add points; all of them are stored, or none.

        Args:
            puts: Points of any metrics.
        """
        by_metric: dict[CustomMetric, list[tuple[int, float, str]]] = {}
        for each in puts:
            points = by_metric.setdefault(each.metric, [])
            points += [(each.at_ms, value, each.unit) for value in each.values]
        now_ms = self._clock.now_ms()

        def work(transaction: Transaction) -> None:
            for metric, points in by_metric.items():
                _add(transaction, metric, points, now_ms=now_ms)

        await self._records.change(work, grows=True)

    def points(self, metric: CustomMetric, *, start_ms: int, end_ms: int) -> Iterator[tuple[int, float, str]]:
        """Yield time in milliseconds, value and unit of the points of a metric; nothing if there is no such metric.

        Args:
            start_ms: Beginning of the window in milliseconds since the epoch.
            end_ms: End of the window, exclusive.

        Yields:
            Points in the order in which they were put.
        """
        record = self._records.get(_METRIC, metric.key)
        start_ms = max(start_ms, self._clock.now_ms() - _KEPT_MS)
        for number, first_ms, last_ms in record.document["chunks"] if record is not None else ():
            if last_ms < start_ms or first_ms >= end_ms:
                continue
            chunk = self._records.get(_CHUNK, _chunk_name(metric, number))
            for at_ms, value, unit in chunk.document["points"] if chunk is not None else ():
                if start_ms <= at_ms < end_ms:
                    yield at_ms, value, unit

    async def page(
        self, *, after: str | None, limit: int, since_ms: int | None = None
    ) -> tuple[list[CustomMetric], str | None]:
        """Return metrics sorted by their records' names, and the token of the next page.

        Args:
            after: Token of an earlier page.
            limit: Most metrics.
            since_ms: Only metrics that got points since this time, in milliseconds since the epoch. Default: all.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        query = Query(sort_by="name", descending=False, limit=limit, after=after, modified_after_ms=since_ms)
        page = await self._records.summaries(_METRIC, query)
        return [_of_summary(record.summary) for record in page.records], page.next_token

    async def put_alarm(self, name: str, members: Mapping[str, Any]) -> None:
        """Create or replace an alarm.

        Args:
            members: JSON-able members of the request.
        """
        now_ms = self._clock.now_ms()

        def work(transaction: Transaction) -> None:
            present = transaction.delete(_ALARM, name)
            created_ms = present.created_ms if present is not None else now_ms
            transaction.insert(
                Record(kind=_ALARM, name=name, created_ms=created_ms, modified_ms=now_ms, document=dict(members))
            )

        await self._records.change(work, grows=True)

    async def alarms(
        self, *, names: Sequence[str], prefix: str, after: str | None, limit: int
    ) -> tuple[list[Record], str | None]:
        """Return alarms by name, and the token of the next page.

        Args:
            names: Only these; empty for all.
            prefix: Beginning of the names.
            after: Token of an earlier page.
            limit: Most alarms.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        if names:
            found = [self._records.get(_ALARM, name) for name in sorted(set(names))]
            return [record for record in found if record is not None], None
        query = Query(sort_by="name", descending=False, limit=limit, after=after, name_contains=prefix)
        page = await self._records.list(_ALARM, query)
        return [record for record in page.records if record.name.startswith(prefix)], page.next_token

    async def delete_alarms(self, names: Sequence[str]) -> None:
        """Delete alarms, all or none.

        Raises:
            AwsError: ResourceNotFound, one of them does not exist.
        """

        def work(transaction: Transaction) -> None:
            for name in names:
                if transaction.delete(_ALARM, name) is None:
                    raise AwsError(f"There is no alarm {name!r}; no alarm was deleted.", code="ResourceNotFound")

        await self._records.change(work)


def _add(
    transaction: Transaction, metric: CustomMetric, points: Sequence[tuple[int, float, str]], *, now_ms: int
) -> None:
    """Add points to the last chunk of a metric, and to new ones; drop chunks whose points are too old."""
    record = transaction.delete(_METRIC, metric.key)
    chunks: list[tuple[int, int, int]] = [tuple(each) for each in record.document["chunks"]] if record else []
    left = list(points)
    while left:
        number = chunks[-1][0] if chunks else 0
        held = _held(transaction, metric, number)
        if len(held) >= _CHUNK_POINTS:
            number += 1
            held.clear()
        elif chunks:
            chunks.pop()
        taken = _CHUNK_POINTS - len(held)
        held, left = [*held, *left[:taken]], left[taken:]
        times = [at_ms for at_ms, _, _ in held]
        chunks.append((number, min(times), max(times)))
        name = _chunk_name(metric, number)
        transaction.delete(_CHUNK, name)
        transaction.insert(
            Record(kind=_CHUNK, name=name, created_ms=now_ms, modified_ms=now_ms, document={"points": held})
        )
    for number, _, _ in [each for each in chunks if each[2] < now_ms - _KEPT_MS]:
        transaction.delete(_CHUNK, _chunk_name(metric, number))
    kept = [each for each in chunks if each[2] >= now_ms - _KEPT_MS]
    transaction.insert(
        Record(
            kind=_METRIC,
            name=metric.key,
            created_ms=record.created_ms if record is not None else now_ms,
            modified_ms=now_ms,
            summary=asdict(metric),
            document={"chunks": kept},
        )
    )


def _held(transaction: Transaction, metric: CustomMetric, number: int) -> list[tuple[int, float, str]]:
    chunk = transaction.get(_CHUNK, _chunk_name(metric, number))
    return [tuple(each) for each in chunk.document["points"]] if chunk is not None else []


def _chunk_name(metric: CustomMetric, number: int) -> str:
    return f"{metric.key}.{number:09}"


def _of_summary(summary: Mapping[str, Any]) -> CustomMetric:
    dimensions = tuple((name, value) for name, value in summary["dimensions"])
    return CustomMetric(summary["namespace"], summary["name"], dimensions)
