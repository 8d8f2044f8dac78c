"""The samples of what instances use, of each kind of job and of endpoints.

They are beside the logs of the instances (`tidemill.instance.samples`), so they need no rows, and are there as long as
the logs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.control.jobs import UNFINISHED
from tidemill.control.plan import ENDPOINT_LOG_GROUP, TRANSFORM_LOG_GROUP
from tidemill.control.resources import ENDPOINT, PROCESSING_JOB, TRAINING_JOB, TRANSFORM_JOB, sound_records
from tidemill.core.hosting import Endpoint
from tidemill.core.processing import ProcessingJob
from tidemill.core.segments import stream_directory
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.instance.samples import SAMPLES_FILE, SampledInstance, SampleSeries
from tidemill.store.records.base import Query, Record, RecordStore

__all__ = ["InstanceSamples", "SampledHost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledHost:
    """An instance of a job or endpoint.

    Attributes:
        kind: Kind of the owner's record, e.g. ``training-job``.
        owner: Name of the job or endpoint.
        host: ``algo-1`` and so on; of an endpoint its log stream, ``VARIANT/i-ID``.
        variant: Variant of an endpoint; empty for jobs.
        directory: Directory of its log stream.
    """

    kind: str
    owner: str
    host: str
    variant: str = ""
    directory: Path

    def read(self) -> SampleSeries:
        """Return the samples so far. Takes milliseconds: call it in a thread."""
        return SampleSeries.read(self.directory)

    def latest(self) -> SampleSeries:
        """Return the last sample, with what it is a part of. Quicker than `read`."""
        return SampleSeries.latest(self.directory)

    def described(self) -> SampledInstance | None:
        """Return what the samples are parts of; None without samples. Quicker than `read`."""
        return SampleSeries.described(self.directory)

    def sampled_ms(self) -> int:
        """Return when the last sample was stored, in milliseconds since the epoch; 0 without one."""
        try:
            return int((self.directory / SAMPLES_FILE).stat().st_mtime * 1000)
        except OSError:
            return 0


class InstanceSamples:
    """Finds the samples of instances.

    Args:
        records: Has the jobs and endpoints.
        logs: Root directory of the log segments.
    """

    KINDS = (TRAINING_JOB, PROCESSING_JOB, TRANSFORM_JOB, ENDPOINT)
    """Kinds of records whose instances are sampled."""

    def __init__(self, records: RecordStore, *, logs: Path) -> None:
        self._records = records
        self._logs = logs

    def hosts(self, kind: str, name: str) -> tuple[SampledHost, ...]:
        """Return the instances of a job, or the present instances of an endpoint; none if there is no such one.

        Args:
            kind: One of `KINDS`.
            name: Name of the job or endpoint.
        """
        record = self._records.get(kind, name)
        return () if record is None else self._hosts_of(record)

    async def running(self) -> AsyncIterator[tuple[Record, tuple[SampledHost, ...]]]:
        """Go through the jobs that have not ended, and all endpoints, oldest first within each kind.

        Yields:
            The record of a job or endpoint, and its instances.
        """
        for kind in self.KINDS:
            statuses = () if kind == ENDPOINT else UNFINISHED
            query = Query(statuses=statuses, descending=False)
            async for record in sound_records(self._records, kind, query):
                yield record, self._hosts_of(record)

    async def page(self, kind: str, *, jobs: int, after: str | None) -> tuple[list[SampledHost], str | None]:
        """Return the instances of jobs or endpoints that have samples, newest owner first.

        Args:
            kind: One of `KINDS`.
            jobs: Number of owners.
            after: Token of an earlier page.

        Returns:
            The instances, and the token of the next page.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        page = await self._records.list(kind, Query(limit=jobs, after=after))
        hosts = [host for record in page.records for host in self._hosts_of(record)]
        return await asyncio.to_thread(lambda: [host for host in hosts if host.sampled_ms()]), page.next_token

    def _hosts_of(self, record: Record) -> tuple[SampledHost, ...]:
        return tuple(
            SampledHost(
                kind=record.kind,
                owner=record.name,
                host=host,
                variant=host.partition("/")[0] if record.kind == ENDPOINT else "",
                directory=stream_directory(self._logs, group, stream),
            )
            for host, group, stream in _STREAMS[record.kind](record.document)
        )


_Streams = Sequence[tuple[str, str, str]]


def _training(document: Mapping[str, Any]) -> _Streams:
    job = TrainingJob.from_document(document)
    return [(host, job.log_group, stream) for host, stream in zip(job.hosts, job.log_streams, strict=True)]


def _processing(document: Mapping[str, Any]) -> _Streams:
    job = ProcessingJob.from_document(document)
    return [(host, job.log_group, stream) for host, stream in zip(job.hosts, job.log_streams, strict=True)]


def _transform(document: Mapping[str, Any]) -> _Streams:
    streams = TransformJob.from_document(document).log_streams
    return [(f"algo-{number}", TRANSFORM_LOG_GROUP, stream) for number, stream in enumerate(streams, start=1)]


def _endpoint(document: Mapping[str, Any]) -> _Streams:
    endpoint = Endpoint.from_document(document)
    streams = [instance.log_stream for instance in endpoint.instances]
    return [(stream, ENDPOINT_LOG_GROUP + endpoint.name, stream) for stream in streams]


_STREAMS: Mapping[str, Callable[[Mapping[str, Any]], _Streams]] = {
    TRAINING_JOB: _training,
    PROCESSING_JOB: _processing,
    TRANSFORM_JOB: _transform,
    ENDPOINT: _endpoint,
}
"""For each kind of record: host, log group and log stream of each instance."""
