"""Where the event files of a training job are: in its running instances, in archives and below prefixes of S3."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from tidemill.control.channels import reference
from tidemill.control.scalars.event_reader import MARK
from tidemill.control.training.plan import instances_of
from tidemill.core.instances import InstanceRef
from tidemill.core.names import S3Uri
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore

_ARCHIVES = {"model.tar.gz": "model", "output.tar.gz": "output/data"}
"""The archives of an ended job, and the directory that each has the content of."""
_KEYS_MAX = 20_000
_FILES_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """An event file, or an archive that may have some.

    Attributes:
        place: Names it uniquely: a file of an instance, or ``s3://bucket/key``.
        run: Name of the run for people: the directory of the file, as the job sees it; of an archive, the directory
            whose content it has.
        size_bytes: Its present size.
        version: Changes when it is replaced, and of objects also when they grow.
        archive: Whether it is an archive.
        s3_arn: ARN of the object, which the viewer must be allowed to read; empty for files of instances.
    """

    place: str
    run: str
    size_bytes: int
    version: str
    archive: bool = False
    s3_arn: str = ""


class EventSources:
    """Finds and opens the event files of jobs. Methods read directories and the database: call them in a thread.

    Args:
        objects: Has the archives and uploaded files.
        executor: Has the files of running instances.
    """

    def __init__(self, objects: ObjectStore, executor: Executor) -> None:
        self._objects = objects
        self._executor = executor

    def of(self, job: TrainingJob) -> list[EventSource]:
        """Return the sources of a job, at most 500.

        While a job runs, these are the files of its instances. If they are on another machine, and when the job has
        ended, they are the uploaded files and the archives.
        """
        found = [] if job.status.terminal else list(self._live(job))
        if not found:
            found = [*self._uploaded(job), *(self._archives(job) if job.status.terminal else ())]
        return found[:_FILES_MAX]

    def open(self, source: EventSource) -> BinaryIO | None:
        """Open a source; None if it was removed.

        Args:
            source: One that `of` returned.
        """
        try:
            if source.s3_arn:
                uri = S3Uri.parse(source.place)
                info = self._objects.head(uri.bucket, uri.key)
                return None if info is None else self._objects.open(reference(info, name=uri.key))
            instance, _, name = source.place.partition(":")
            job_id, index, attempt = instance.split("/")
            fd = self._executor.open_event_file(InstanceRef(job_id, int(index), int(attempt)), name)
            return os.fdopen(fd, "rb")
        except OSError:
            return None

    def _live(self, job: TrainingJob) -> Iterator[EventSource]:
        for ref, host in zip(instances_of(job), job.hosts, strict=True):
            for file in self._executor.event_files(ref):
                run = str(PurePosixPath(file.name).parent)
                yield EventSource(
                    place=f"{ref.job_id}/{ref.instance_index}/{ref.attempt}:{file.name}",
                    run=run if len(job.hosts) == 1 else f"{host}/{run}",
                    size_bytes=file.size_bytes,
                    version=file.identity,
                )

    def _uploaded(self, job: TrainingJob) -> Iterator[EventSource]:
        for prefix, shown in _prefixes(job):
            if not self._objects.bucket_exists(prefix.bucket):
                continue  # deleted meanwhile, or one of another S3
            for number, info in enumerate(self._objects.list_all(prefix.bucket, prefix.key)):
                if number == _KEYS_MAX:
                    break
                below = PurePosixPath(info.key.removeprefix(prefix.key).lstrip("/"))
                if MARK in below.name:
                    yield _of_object(info, str(PurePosixPath(shown) / below.parent), archive=False)

    def _archives(self, job: TrainingJob) -> Iterator[EventSource]:
        output = S3Uri.parse(job.request["OutputDataConfig"]["S3OutputPath"].rstrip("/")) / job.name / "output"
        for name, directory in _ARCHIVES.items():
            info = self._objects.head(output.bucket, f"{output.key}/{name}")
            if info is not None:
                yield _of_object(info, directory, archive=True)


def _prefixes(job: TrainingJob) -> Iterator[tuple[S3Uri, str]]:
    """Yield the prefixes with uploaded files, and what runs below them are called."""
    request = job.request
    board, checkpoints = request.get("TensorBoardOutputConfig"), request.get("CheckpointConfig")
    model_dir = (request.get("HyperParameters") or {}).get("model_dir", "").strip('"')
    places = (
        (board and f"{board['S3OutputPath'].rstrip('/')}/{job.name}/tensorboard-output", "output/tensorboard"),
        (checkpoints and checkpoints["S3Uri"], "checkpoints"),
        (model_dir.startswith("s3://") and model_dir, "model_dir"),
    )
    for place, shown in places:
        try:
            if place:
                uri = S3Uri.parse(place.rstrip("/") + "/")
                yield uri, shown
        except ValueError:  # a hyperparameter may be any text
            continue


def _of_object(info: ObjectInfo, run: str, *, archive: bool) -> EventSource:
    return EventSource(
        place=f"s3://{info.bucket}/{info.key}",
        run=run,
        size_bytes=info.size_bytes,
        version=info.etag,
        archive=archive,
        s3_arn=f"arn:aws:s3:::{info.bucket}/{info.key}",
    )
