"""The metrics of training jobs over time, read from their logs.

Points are not stored but derived from the log, which has every line exactly once, even after crashes. They are cached
in memory, so that each request for a running job only reads the lines that are new since the last one.
"""

import asyncio
import contextlib
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidemill.control.resources import TRAINING_JOB
from tidemill.control.training.metric_process import Cursor, Piece, search_metrics
from tidemill.control.training.plan import TRAINING_LOG_GROUP
from tidemill.core.segments import stream_directory
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.errors import ResourceNotFound
from tidemill.store.logs.streams import LogReader
from tidemill.store.records.base import Query, RecordStore

_JOBS_KEPT = 64
_POINTS_MAX = 5_000_000
"""Points of an instance, 16 bytes each: a log of short lines that all match takes 40 times its size in memory."""
_BEFORE_TRAINING = (SecondaryStatus.STARTING, SecondaryStatus.PENDING)


@dataclass(frozen=True, slots=True)
class Points:
    """The points of one metric in the order of the log, 16 bytes each.

    Attributes:
        times_ms: Milliseconds since the epoch.
        values: Finite numbers.
    """

    times_ms: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.times_ms, self.values, strict=True)


@dataclass(frozen=True, slots=True)
class JobMetric:
    """A metric that has points."""

    job: str
    name: str


class TrainingMetrics:
    """The metrics that the MetricDefinitions of training jobs define.

    Args:
        logs: Root directory of the log segments.
    """

    def __init__(self, records: RecordStore, *, logs: Path) -> None:
        self._records = records
        self._logs = logs
        self._series: OrderedDict[str, Sequence[_Series]] = OrderedDict()

    async def points(self, job_name: str, metric: str) -> Sequence[Points]:
        """Return the points of a metric so far, one series per definition and instance; empty without points.

        Args:
            metric: Name of the metric.
        """
        record = self._records.get(TRAINING_JOB, job_name)
        if record is None:
            return ()
        job = TrainingJob.from_document(record.document)
        if metric not in _names(job):
            return ()
        found: list[Points] = []
        for series in self._series_of(job):
            await series.read_on()
            found += [points for name, points in series.points if name == metric]
        return found

    async def series(self, job_name: str) -> Sequence[tuple[str, int, Points]]:
        """Return all metrics of a job that have points: name, number of the instance from 1, and points so far.

        Raises:
            ResourceNotFound: There is no such job.
        """
        record = self._records.get(TRAINING_JOB, job_name)
        if record is None:
            raise ResourceNotFound(f"Training job {job_name!r} does not exist; ListTrainingJobs shows those that do")
        job = TrainingJob.from_document(record.document)
        if not _names(job):
            return ()
        found: list[tuple[str, int, Points]] = []
        for instance, series in enumerate(self._series_of(job), start=1):
            await series.read_on()
            found += [(name, instance, points) for name, points in series.points if points.values]
        return sorted(found, key=lambda each: each[:2])

    async def latest(self, job: TrainingJob, *, pause_s: float = 0.0) -> Mapping[str, float]:
        """Return the last value of each metric that has one.

        Args:
            pause_s: While the job runs, its log is not read again within this time of an earlier reading.
        """
        if job.status.terminal:
            return {metric.name: metric.value for metric in job.final_metrics}
        if not _names(job) or job.secondary_status in _BEFORE_TRAINING:
            return {}
        found: dict[str, tuple[int, float]] = {}
        for series in self._series_of(job):
            await series.read_on(pause_s=pause_s)
            for name, points in series.points:
                if points.values:
                    found[name] = max(found.get(name, (0, 0.0)), (points.times_ms[-1], points.values[-1]))
        return {name: value for name, (_, value) in found.items()}

    async def names(self, job_name: str) -> tuple[JobMetric, ...]:
        """Return the metrics of a job that have points; empty if there is no such job.

        Args:
            job_name: Name of the training job.
        """
        record = self._records.get(TRAINING_JOB, job_name)
        return () if record is None else await self._with_points(TrainingJob.from_document(record.document))

    async def pages(
        self, *, jobs: int, after: str | None = None, ended_after_ms: int | None = None
    ) -> AsyncIterator[tuple[tuple[JobMetric, ...], str | None]]:
        """Go through the metrics of all jobs that have points, newest job first.

        Args:
            jobs: Number of jobs per page.
            after: Token of an earlier page.
            ended_after_ms: Skip jobs that ended earlier than this, in milliseconds since the epoch.

        Yields:
            Metrics, and the token of the next page.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        query = Query(limit=jobs, after=after)
        while True:
            page = await self._records.list(TRAINING_JOB, query)
            found: list[JobMetric] = []
            for record in page.records:
                job = TrainingJob.from_document(record.document)
                if ended_after_ms is None or job.ended_ms is None or job.ended_ms >= ended_after_ms:
                    found += await self._with_points(job)
            yield tuple(found), page.next_token
            if page.next_token is None:
                return
            query = replace(query, after=page.next_token)

    async def _with_points(self, job: TrainingJob) -> tuple[JobMetric, ...]:
        if job.status.terminal:
            # A metric has points if, and only if, it has a final value.
            found = {metric.name for metric in job.final_metrics}
        elif _names(job):
            found = set()
            for series in self._series_of(job):
                await series.read_on()
                found |= {name for name, points in series.points if points.values}
        else:
            found = set()
        return tuple(JobMetric(job.name, name) for name in sorted(found))

    def _series_of(self, job: TrainingJob) -> "Sequence[_Series]":
        """Return one series per instance."""
        series = self._series.get(job.job_id)
        if series is None:
            directories = [stream_directory(self._logs, TRAINING_LOG_GROUP, stream) for stream in job.log_streams]
            series = [_Series(directory, _definitions(job)) for directory in directories]
            self._series[job.job_id] = series
            if len(self._series) > _JOBS_KEPT:
                self._series.popitem(last=False)
        self._series.move_to_end(job.job_id)
        return series


class _Series:
    """The points of all metrics of one log stream."""

    def __init__(self, directory: Path, definitions: Sequence[Mapping[str, str]]) -> None:
        self.points = [(definition["Name"], Points()) for definition in definitions]
        self._directory = directory
        self._expressions = {number: definition["Regex"] for number, definition in enumerate(definitions)}
        self._cursor = Cursor()
        self._left = _POINTS_MAX
        self._read_bytes = -1
        self._read_s = float("-inf")
        self._lock = asyncio.Lock()

    async def read_on(self, *, pause_s: float = 0.0) -> None:
        """Search the lines that the log has got since the last call, unless that was less than ``pause_s`` ago.

        After `_POINTS_MAX` points nothing more is searched.
        """
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if now_s < self._read_s + pause_s or not self._left:
                return
            self._read_s = now_s
            stored_bytes = await asyncio.to_thread(LogReader(self._directory).stored_bytes)
            if stored_bytes == self._read_bytes:
                return
            search = search_metrics(self._directory, self._expressions, order="forward", cursor=self._cursor)
            async with contextlib.aclosing(search) as pieces:
                async for piece in pieces:
                    self._add(piece)
            self._read_bytes = stored_bytes

    def _add(self, piece: Piece) -> None:
        for number, (times, values) in piece.found.items():
            points = self.points[number][1]
            points.times_ms.extend(times[: self._left])
            points.values.extend(values[: self._left])
            self._left -= min(len(times), self._left)
        # No message here: the driver reports it in the job's last StatusMessage.
        for number in piece.given_up:
            del self._expressions[number]
        self._cursor = piece.cursor


def _definitions(job: TrainingJob) -> Sequence[Mapping[str, str]]:
    return job.request["AlgorithmSpecification"].get("MetricDefinitions") or ()


def _names(job: TrainingJob) -> set[str]:
    return {definition["Name"] for definition in _definitions(job)}
