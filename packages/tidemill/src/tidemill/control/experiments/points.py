"""The metrics of trial components: every value is stored, and the statistics are in the component's own record.

Values are in records of at most 1,000, so that a further value does not rewrite all earlier ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tidemill.control.experiments.experiments import existing, missing
from tidemill.control.resources import TRIAL_COMPONENT, component_record
from tidemill.core.clock import Clock
from tidemill.core.experiments import MetricPoint, TrialComponent, with_points
from tidemill.store.records.base import Record, RecordStore, Transaction

__all__ = ["MetricPoints", "delete_points"]

_POINTS = "trial-component-points"
_BLOCK = 1000


class MetricPoints:
    """The values of the metrics of trial components.

    Args:
        records: Stores them.
        clock: Provides the current time.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def add(self, component: str, points: Sequence[tuple[str, MetricPoint]]) -> None:
        """Add values to a component's metrics, in one commit.

        Args:
            component: Name of the component.
            points: Names of metrics and values.

        Raises:
            ResourceNotFound: There is no such component.
        """
        by_name: dict[str, list[MetricPoint]] = defaultdict(list)
        for name, point in points:
            by_name[name].append(point)
        at_ms = self._clock.now_ms()

        def add(transaction: Transaction) -> None:
            now = TrialComponent.from_document(existing(transaction, TRIAL_COMPONENT, component).document)
            metrics = dict(now.metrics)
            for name, added in by_name.items():
                _append(transaction, component, name, int(metrics.get(name, {}).get("count", 0)), added, at_ms=at_ms)
                metrics[name] = with_points(metrics.get(name), added)
            changed = component_record(replace(now, metrics=metrics))
            transaction.update(TRIAL_COMPONENT, component, lambda _: changed)

        await self._records.change(add, grows=True)

    def of(self, component: str, metric: str) -> Iterator[MetricPoint]:
        """Yield the values of a metric in the order in which they came; none for a metric that the component lacks.

        Args:
            component: Name of the component.
            metric: Name of the metric.

        Raises:
            ResourceNotFound: There is no such component.
        """
        record = self._records.get(TRIAL_COMPONENT, component)
        if record is None:
            raise missing(TRIAL_COMPONENT, component)
        count = int(record.document["metrics"].get(metric, {}).get("count", 0))
        for key in _keys(component, metric, count):
            block = self._records.get(_POINTS, key)
            yield from (MetricPoint(*point) for point in (block.document["points"] if block else ()))


def delete_points(transaction: Transaction, component: TrialComponent) -> None:
    """Remove the values of all metrics of a component that the same transaction deletes.

    Args:
        transaction: The transaction.
        component: The component.
    """
    for metric, statistics in component.metrics.items():
        for key in _keys(component.name, metric, int(statistics.get("count", 0))):
            transaction.delete(_POINTS, key)


def _append(
    transaction: Transaction, component: str, metric: str, count: int, added: Sequence[MetricPoint], *, at_ms: int
) -> None:
    """Add values behind the ``count`` values that there are."""
    position = 0
    while position < len(added):
        number, used = divmod(count + position, _BLOCK)
        new = [list(point) for point in added[position : position + _BLOCK - used]]
        key = _key(component, metric, number)
        if used:
            transaction.update(_POINTS, key, lambda block, new=new: _with(block, new))
        else:
            transaction.insert(
                Record(kind=_POINTS, name=key, created_ms=at_ms, modified_ms=at_ms, document={"points": new})
            )
        position += len(new)


def _with(block: Record, points: Iterable[Sequence[float | int | None]]) -> Record:
    document: Mapping[str, list[Sequence[float | int | None]]] = block.document
    return replace(block, document={"points": [*document["points"], *points]})


def _keys(component: str, metric: str, count: int) -> list[str]:
    return [_key(component, metric, number) for number in range(-(-count // _BLOCK))]


def _key(component: str, metric: str, number: int) -> str:
    # Names of components have no slash; names of metrics may have any character.
    return f"{component}/{number}/{metric}"
