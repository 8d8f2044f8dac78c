"""The metrics that scripts and clients put into CloudWatch, and alarms, which are kept and never evaluated.

A metric is a record with the list of the blocks that have its points (`control.point_blocks`).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.control.point_blocks import SeriesPoint, append_points, delete_blocks, points_of, spans_of
from tidemill.core.clock import Clock
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

_METRIC = "metric"  # named by the digest of namespace, name and dimensions
_ALARM = "alarm"
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
    """Keeps metrics and alarms."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def put(self, puts: Sequence[Put]) -> None:
        """Add points; all of them are stored, or none.

        Args:
            puts: Points of any metrics.
        """
        by_metric: dict[CustomMetric, list[SeriesPoint]] = {}
        for each in puts:
            points = by_metric.setdefault(each.metric, [])
            points += [SeriesPoint(each.at_ms, value, each.unit) for value in each.values]
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
        if record is None:
            return
        start_ms = max(start_ms, self._clock.now_ms() - _KEPT_MS)
        spans = spans_of(record.document["blocks"])
        for at_ms, value, unit in points_of(self._records, metric.key, spans, start_ms=start_ms, end_ms=end_ms):
            yield at_ms, value, str(unit)

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


def _add(transaction: Transaction, metric: CustomMetric, points: Sequence[SeriesPoint], *, now_ms: int) -> None:
    """Add points to a metric, and drop blocks whose points are too old."""
    record = transaction.delete(_METRIC, metric.key)
    spans = spans_of(record.document["blocks"]) if record is not None else []
    spans = append_points(transaction, metric.key, spans, points, at_ms=now_ms)
    old = [span for span in spans if span.last_ms < now_ms - _KEPT_MS]
    delete_blocks(transaction, metric.key, old)
    transaction.insert(
        Record(
            kind=_METRIC,
            name=metric.key,
            created_ms=record.created_ms if record is not None else now_ms,
            modified_ms=now_ms,
            summary=asdict(metric),
            document={"blocks": [list(span) for span in spans if span not in old]},
        )
    )


def _of_summary(summary: Mapping[str, Any]) -> CustomMetric:
    dimensions = tuple((name, value) for name, value in summary["dimensions"])
    return CustomMetric(summary["namespace"], summary["name"], dimensions)
