"""The metrics of trial components that clients put: every value is stored, and the statistics are in the component."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidemill.control.named_resources import existing, missing
from tidemill.control.point_blocks import SeriesPoint, append_points, delete_blocks, points_of, spans_of
from tidemill.control.resources import TRIAL_COMPONENT, component_record
from tidemill.core.clock import Clock
from tidemill.core.experiments import MetricPoint, TrialComponent, with_points
from tidemill.store.records.base import RecordStore, Transaction


class MetricPoints:
    """The values of the metrics of trial components."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def add(self, component: str, points: Sequence[tuple[str, MetricPoint]]) -> None:
        """Add values to a component's metrics, in one commit.

        Args:
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
            metrics, blocks = dict(now.metrics), dict(now.blocks)
            for name, added in by_name.items():
                spans, new = spans_of(blocks.get(name, ())), [SeriesPoint(*point) for point in added]
                blocks[name] = append_points(transaction, _series(component, name), spans, new, at_ms=at_ms)
                metrics[name] = with_points(metrics.get(name), added)
            changed = component_record(replace(now, metrics=metrics, blocks=blocks))
            transaction.update(TRIAL_COMPONENT, component, lambda _: changed)

        await self._records.change(add, grows=True)

    def component(self, name: str) -> TrialComponent:
        """Return a component.

        Raises:
            ResourceNotFound: There is no such component.
        """
        record = self._records.get(TRIAL_COMPONENT, name)
        if record is None:
            raise missing(TRIAL_COMPONENT, name)
        return TrialComponent.from_document(record.document)

    def of(self, component: TrialComponent, metric: str) -> Iterator[MetricPoint]:
        """Yield the values of a metric in the order in which they came; none for a metric that nobody has put.

        Args:
            metric: Name of the metric.
        """
        spans = spans_of(component.blocks.get(metric, ()))
        for at_ms, value, step in points_of(self._records, _series(component.name, metric), spans):
            yield MetricPoint(at_ms, value, step if isinstance(step, int) else None)


def delete_points(transaction: Transaction, component: TrialComponent) -> None:
    """Remove the values of all metrics of a component that the same transaction deletes.

    Args:
        transaction: The transaction.
        component: The component.
    """
    for metric, spans in component.blocks.items():
        delete_blocks(transaction, _series(component.name, metric), spans_of(spans))


def _series(component: str, metric: str) -> str:
    # Names of components have no slash; names of metrics may have any character.
    return f"{component}/{metric}"
