"""The last value of each metric of a training job, read from its log when it has ended.

SageMaker calls them FinalMetricDataList. The user's regular expressions run in a separate process
(`tidemill.control.training.metric_search`), never in the service, so that a slow expression affects only its own
metric.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

from tidemill.control.training.metric_process import CPU_S, search_metrics
from tidemill.core.experiments import MetricPoint, with_points
from tidemill.core.training import FinalMetric

_WALL_S = 300.0
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class FoundMetrics:
    """The metrics of one job.

    Attributes:
        metrics: Metrics in the order of their definitions, without those that had no match.
        faults: A sentence for each definition that may have matched but has no value.
    """

    metrics: tuple[FinalMetric, ...] = ()
    faults: tuple[str, ...] = ()


async def find_metrics(
    directory: Path, definitions: Sequence[Mapping[str, str]], *, cpu_s: int = CPU_S, wall_s: float = _WALL_S
) -> FoundMetrics:
    """Search a log stream for the last value of each metric.

    Args:
        definitions: ``{"Name": ..., "Regex": ...}`` each.
        cpu_s: Maximum CPU time in seconds of each regular expression per piece of the log.
        wall_s: Maximum time of the whole search in seconds; metrics not found by then have no value.
    """
    names = {number: definition["Name"] for number, definition in enumerate(definitions)}
    expressions = {number: definition["Regex"] for number, definition in enumerate(definitions)}
    metrics: dict[int, FinalMetric] = {}
    faults: dict[int, str] = {}
    try:
        async with (
            asyncio.timeout(wall_s),
            contextlib.aclosing(search_metrics(directory, expressions, order="latest", cpu_s=cpu_s)) as pieces,
        ):
            async for piece in pieces:
                metrics |= {n: FinalMetric(names[n], values[-1], at[-1]) for n, (at, values) in piece.found.items()}
                faults |= {n: f"metric {names[n]!r} has the value {t[:_SHOWN]!r}" for n, t in piece.texts.items()}
                faults |= {n: f"metric {names[n]!r} has no value: {why}" for n, why in piece.given_up.items()}
    except TimeoutError:
        missing = names.keys() - metrics.keys() - faults.keys()
        faults |= {n: f"metric {names[n]!r} has no value: the search took more than {wall_s:g} s" for n in missing}
    return FoundMetrics(
        tuple(metrics[number] for number in sorted(metrics)), tuple(faults[number] for number in sorted(faults))
    )


async def with_statistics(
    found: FoundMetrics,
    directories: Sequence[Path],
    definitions: Sequence[Mapping[str, str]],
    *,
    wall_s: float = _WALL_S,
) -> FoundMetrics:
    """Add the statistics of all values to the metrics of a job, from the whole of its log streams.

    Args:
        directories: Of the streams of its instances.
        definitions: ``{"Name": ..., "Regex": ...}`` each.
        wall_s: Maximum time of the search in seconds; without its end there are no statistics.
    """
    expressions = {number: definition["Regex"] for number, definition in enumerate(definitions)}
    statistics: dict[str, dict[str, float]] = {}
    try:
        async with asyncio.timeout(wall_s):
            async for number, points in _all_points(directories, expressions):
                name = definitions[number]["Name"]
                statistics[name] = with_points(statistics.get(name), points)
    except TimeoutError:
        return found
    metrics = (replace(metric, statistics=statistics.get(metric.name, {})) for metric in found.metrics)
    return replace(found, metrics=tuple(metrics))


def latest(found: Sequence[FoundMetrics]) -> FoundMetrics:
    """Merge the metrics of several instances' streams: each metric gets the value that was logged last.

    Args:
        found: Metrics of each stream.
    """
    if len(found) == 1:
        return found[0]
    last: dict[str, FinalMetric] = {}
    for metric in sorted((metric for each in found for metric in each.metrics), key=lambda metric: metric.at_ms):
        last[metric.name] = metric
    named = dict.fromkeys(metric.name for each in found for metric in each.metrics)
    faults = dict.fromkeys(fault for each in found for fault in each.faults)
    return FoundMetrics(tuple(last[name] for name in named), tuple(faults))


async def _all_points(
    directories: Sequence[Path], expressions: Mapping[int, str]
) -> AsyncGenerator[tuple[int, Iterable[MetricPoint]]]:
    """Yield the number of an expression and points of it, from the beginning to the end of each stream."""
    for directory in directories:
        async with contextlib.aclosing(search_metrics(directory, expressions, order="forward")) as pieces:
            async for piece in pieces:
                for number, (times, values) in piece.found.items():
                    yield number, map(MetricPoint, times, values, repeat(None))
