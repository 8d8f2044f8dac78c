"""The scalars of training jobs: read on when somebody asks, and kept in bounded memory."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from tidemill.control.resources import TRAINING_JOB
from tidemill.control.scalars.event_reader import TagPoints
from tidemill.control.scalars.reading import ScalarReaders
from tidemill.control.scalars.sources import EventSource, EventSources
from tidemill.core.training import TrainingJob
from tidemill.store.records.base import RecordStore

_POINTS_KEPT = 2_000_000
"""Points of all jobs in memory, of about 100 bytes each, and of each job; the job that was asked for last stays."""


@dataclass(frozen=True, slots=True)
class ScalarSeries:
    """The points of one tag in one run, in order of time.

    Attributes:
        run: Directory of the event files, as the job sees it.
        tag: The name that the script gave.
        count: Number of points that were written, of which fewer may be kept.
        not_finite: Number of those that are NaN or infinite, which are left out.
        points: Step, time in seconds since the epoch, and value.
    """

    run: str
    tag: str
    count: int
    not_finite: int
    points: Sequence[tuple[int, float, float]]


@dataclass(frozen=True, slots=True)
class JobScalars:
    """What is known of a job's scalars.

    Attributes:
        complete: Whether everything was read that is there; if not, a later call knows more.
        damage: What is wrong with which files.
    """

    series: Sequence[ScalarSeries]
    complete: bool
    damage: Sequence[str]


@dataclass(slots=True)
class _ReadSource:
    """How far a source was read, and what it has: tags by run."""

    source: EventSource
    offset: int = 0
    runs: dict[str, dict[str, TagPoints]] = field(default_factory=dict)
    complete: bool = True
    damage: str = ""

    @property
    def is_read(self) -> bool:
        """Whether an archive was read; it is not read again."""
        return self.offset > 0

    def points(self) -> int:
        return sum(len(points.values) for tags in self.runs.values() for points in tags.values())

    def add(self, run: str, tags: dict[str, Any]) -> None:
        for tag, found in tags.items():
            self.runs.setdefault(run, {}).setdefault(tag, TagPoints()).extend(found)


@dataclass(slots=True)
class _KnownJob:
    sources: dict[str, _ReadSource] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def points(self) -> int:
        return sum(read.points() for read in self.sources.values())


class TrainingScalars:
    """Reads the scalars of jobs.

    Args:
        records: Has the jobs.
        sources: Finds their event files.
        points_kept: Points of all jobs that are kept in memory, and of one job. Default: two million.
    """

    def __init__(
        self,
        records: RecordStore,
        sources: EventSources,
        readers: ScalarReaders | None = None,
        *,
        points_kept: int = _POINTS_KEPT,
    ) -> None:
        self._records = records
        self._sources = sources
        self._readers = readers or ScalarReaders()
        self._points_kept = points_kept
        self._jobs: OrderedDict[str, _KnownJob] = OrderedDict()

    async def of(self, job_name: str, *, may_read: Callable[[str], bool]) -> JobScalars | None:
        """Return the scalars of a job; None if there is no such job.

        Args:
            may_read: Whether the viewer may read an object, by its ARN. Other objects are left out.
        """
        record = self._records.get(TRAINING_JOB, job_name)
        if record is None:
            return None
        job = TrainingJob.from_document(record.document)
        known = self._jobs.setdefault(job.job_id, _KnownJob())
        self._jobs.move_to_end(job.job_id)
        sources = await asyncio.to_thread(self._sources.of, job)
        visible = [each for each in sources if not each.s3_arn or may_read(each.s3_arn)]
        async with known.lock:
            await self._read_on(known, visible, {each.place for each in sources})
            self._forget_others()
            return await asyncio.to_thread(_summed_up, [known.sources[each.place] for each in visible])

    async def _read_on(self, known: _KnownJob, visible: Sequence[EventSource], present: set[str]) -> None:
        for place in known.sources.keys() - present:
            del known.sources[place]
        kept = known.points()
        for source in visible:
            read = known.sources.get(source.place)
            if read is None or _was_replaced(read.source, source):
                read = known.sources[source.place] = _ReadSource(source)
            read.source = source
            if read.damage or (read.is_read if source.archive else source.size_bytes <= read.offset):
                continue
            if kept >= self._points_kept:
                read.damage = f"the job has more than {self._points_kept:,} points: the further ones are left out"
                continue
            before = read.points()
            await self._read(read, source)
            kept += read.points() - before

    async def _read(self, read: _ReadSource, source: EventSource) -> None:
        file = await asyncio.to_thread(self._sources.open, source)
        if file is None:
            return
        try:
            if source.archive:
                found = await self._readers.read_archive(file)
                for each in found["files"]:
                    read.add(str(PurePosixPath(source.run) / PurePosixPath(each["name"]).parent), each["tags"])
                read.offset = source.size_bytes
            else:
                found = await self._readers.read_file(file, offset=read.offset, size_bytes=source.size_bytes)
                read.add(source.run, found["tags"])
                read.offset = found["offset"]
        finally:
            await asyncio.to_thread(file.close)
        read.complete, read.damage = found["complete"] or source.archive, found["damage"]
        if not found["complete"] and source.archive:
            read.damage = read.damage or "it takes too long to read: only its beginning is shown"

    def _forget_others(self) -> None:
        """Forget the jobs that nobody has asked for lately, while there are too many points."""
        kept = sum(known.points() for known in self._jobs.values())
        while kept > self._points_kept and len(self._jobs) > 1:
            _, oldest = self._jobs.popitem(last=False)
            kept -= oldest.points()


def _was_replaced(before: EventSource, now: EventSource) -> bool:
    """Return whether what was read is no beginning of the present content: event files only grow."""
    if now.archive or not now.s3_arn:
        return now.version != before.version
    return now.size_bytes < before.size_bytes


def _summed_up(sources: Iterable[_ReadSource]) -> JobScalars:
    found: dict[tuple[str, str], list[TagPoints]] = {}
    complete = True
    damage: list[str] = []
    for read in sources:
        complete = complete and read.complete
        if read.damage:
            damage.append(f"{read.source.place.partition(':')[2] or read.source.place}: {read.damage}")
        for run, tags in read.runs.items():
            for tag, points in tags.items():
                found.setdefault((run, tag), []).append(points)
    series = [_joined(run, tag, found[run, tag]) for run, tag in sorted(found)]
    return JobScalars(series, complete, damage)


def _joined(run: str, tag: str, parts: Sequence[TagPoints]) -> ScalarSeries:
    points = [point for part in parts for point in zip(part.steps, part.times, part.values, strict=True)]
    if len(parts) > 1:
        points.sort(key=lambda point: point[1])
    return ScalarSeries(run, tag, sum(part.count for part in parts), sum(part.not_finite for part in parts), points)
