"""The stored jobs of one kind, e.g. training or transform jobs: look up, list, insert, change."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tidemill.control.experiments.job_components import begin_component, end_component, has_component
from tidemill.control.resources import (
    PROCESSING_JOB,
    TITLES,
    TRAINING_JOB,
    TRANSFORM_JOB,
    TUNING_JOB,
    page_of,
    sound_records,
)
from tidemill.control.tags import delete_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import sagemaker_arn
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.core.tuning import TuningJob
from tidemill.errors import AwsError, ResourceInUse, ResourceNotFound, ValidationException
from tidemill.store.records.base import Query, Record, RecordExists, RecordStore, Summary, Transaction

AnyJob = TrainingJob | TransformJob | TuningJob
"""A processing job is a training job, too."""
J = TypeVar("J", bound=AnyJob)
S = TypeVar("S", bound=TrainingJob)

UNFINISHED = ("InProgress", "Stopping")
"""Statuses of jobs that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind(Generic[J]):
    """The properties in which the kinds of jobs differ.

    Attributes:
        kind: Kind of the jobs' records.
        title: Name of the kind in messages, e.g. ``training job``.
        missing: Message for a name without a job; ``{name}`` is replaced. As on SageMaker, each kind of job has its own
            message, because clients search for its text.
        read: Returns the job of a record's document.
        error: The error for a name without a job, which is a ValidationException for most kinds, as on SageMaker.
    """

    kind: str
    title: str
    missing: str
    read: Callable[[Mapping[str, Any]], J]
    error: type[AwsError] = ValidationException

    @property
    def resource(self) -> str:
        """Name of the kind in SageMaker's operations, e.g. ``TrainingJob``."""
        return TITLES[self.kind]

    def write(self, job: J) -> Record:
        """Return the record of a job.

        Args:
            job: The job.
        """
        return Record(
            kind=self.kind,
            name=job.name,
            status=str(job.status),
            created_ms=job.created_ms,
            modified_ms=job.created_ms,
            summary=job.to_summary(),
            document=job.to_document(),
        )


TRAINING = JobKind(
    kind=TRAINING_JOB,
    title="training job",
    missing="Requested resource not found: there is no training job {name!r}",
    read=TrainingJob.from_document,
)
PROCESSING: JobKind[ProcessingJob] = JobKind(
    kind=PROCESSING_JOB,
    title="processing job",
    missing="Could not find requested job with name: {name}",
    read=ProcessingJob.from_document,
)
TRANSFORM = JobKind(
    kind=TRANSFORM_JOB,
    title="transform job",
    missing="Could not find requested job with name: {name}",
    read=TransformJob.from_document,
)
TUNING = JobKind(
    kind=TUNING_JOB,
    title="hyperparameter tuning job",
    missing="Requested resource not found: there is no hyperparameter tuning job {name!r}",
    read=TuningJob.from_document,
    error=ResourceNotFound,
)
KINDS: Mapping[str, JobKind[Any]] = {
    "training": TRAINING,
    "processing": PROCESSING,
    "transform": TRANSFORM,
    "tuning": TUNING,
}
"""By the value of Kind in tidemill's own operations."""


class Jobs(Generic[J]):
    """The stored jobs of one kind.

    Args:
        kind: `TRAINING`, `PROCESSING`, `TRANSFORM` or `TUNING`.
    """

    def __init__(self, records: RecordStore, kind: JobKind[J]) -> None:
        self._records = records
        self.kind = kind

    def record(self, name: str) -> Record:
        """Return the stored record of a job.

        Raises:
            ValidationException: There is no job of that name. SageMaker answers with the same code.
        """
        record = self._records.get(self.kind.kind, name)
        if record is None:
            raise self._missing(name)
        return record

    def get(self, name: str) -> J:
        """Return a job; raises the errors of `record`.

        Raises:
            ValidationException: If there is none, as on SageMaker.
        """
        return self.kind.read(self.record(name).document)

    def find(self, name: str) -> J | None:
        """Return a job, or None if there is no job of that name.

        Args:
            name: Name of the job.
        """
        record = self._records.get(self.kind.kind, name)
        return None if record is None else self.kind.read(record.document)

    async def list(self, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of summaries and the token of the next page.

        Raises:
            ValidationException: The token was not issued for this query.
        """
        return await page_of(self._records, self.kind.kind, query)

    async def unfinished(self) -> AsyncIterator[J]:
        """Yield the jobs that have not ended, those that are being stopped last."""
        # One status at a time: an index answers that, however many jobs have ended.
        for status in UNFINISHED:
            query = Query(statuses=(status,), descending=False)
            async for record in sound_records(self._records, self.kind.kind, query):
                yield self.kind.read(record.document)

    async def insert(self, make: Callable[[Transaction], J], *, tags: Mapping[str, str]) -> J:
        """Store a new job, its tags and its trial component in one commit.

        Args:
            make: Returns the job; may read other records in the transaction.
            tags: Values by key, checked.

        Raises:
            ResourceInUse: The name is taken.
            ResourceNotFound: Its ExperimentConfig names an experiment, trial or run that does not exist.
        """

        def work(transaction: Transaction) -> J:
            job = make(transaction)
            try:
                transaction.insert(self.kind.write(job))
            except RecordExists as error:
                raise ResourceInUse(
                    f"{self.kind.title.capitalize()} names must be unique: there is already a {self.kind.title}"
                    f" {job.name!r} ({job.arn}); choose another name"
                ) from error
            if tags:
                insert_tags(transaction, job.arn, tags, at_ms=job.created_ms)
            if job.request.get("ExperimentConfig"):
                begin_component(transaction, job)
            return job

        return await self._records.change(work, grows=True)

    async def track(self, name: str) -> None:
        """Make the trial component of a running job that has none, because its request has no ExperimentConfig.

        Args:
            name: Name of a job; nothing changes if there is no such job, or if it has ended.

        Raises:
            ValidationException: Another trial component has the name.
        """

        def work(transaction: Transaction) -> None:
            record = transaction.get(self.kind.kind, name)
            job = None if record is None else self.kind.read(record.document)
            if job is not None and not job.status.terminal and not has_component(transaction, job):
                begin_component(transaction, job)

        job = self.find(name)
        if job is not None and not job.status.terminal:
            await self._records.change(work, grows=True)

    async def update(
        self, name: str, change: Callable[[J], J], *, also: Callable[[Transaction], None] = lambda _: None
    ) -> J:
        """Change a job and related records in one commit; return the stored job.

        Args:
            change: Returns the changed job, or the same object if nothing changes.
            also: Makes further changes in the same commit. Default: none.

        Raises:
            ValidationException: There is no job of that name.
        """

        def work(transaction: Transaction) -> Record | None:
            also(transaction)
            ended: list[J] = []

            def change_record(record: Record) -> Record | None:
                now = self.kind.read(record.document)
                new = change(now)
                if new.status.terminal and not now.status.terminal:
                    ended.append(new)
                return None if new is now else self.kind.write(new)

            record = transaction.update(self.kind.kind, name, change_record)
            for job in ended:
                end_component(transaction, job)
            return record

        record = await self._records.change(work)
        if record is None:
            raise self._missing(name)
        return self.kind.read(record.document)

    def _missing(self, name: str) -> AwsError:
        return self.kind.error(self.kind.missing.format(name=name))


class AcceptedJobs(Jobs[J], ABC):
    """The jobs of one kind as clients stop and delete them. Subclasses create them.

    Args:
        wake: Called with the name of a new or changed job.
    """

    KIND: ClassVar[JobKind[Any]]
    """Of a subclass that creates jobs."""

    def __init__(self, records: RecordStore, *, region: str, clock: Clock, wake: Callable[[str], None]) -> None:
        super().__init__(records, self.KIND)
        self._region = region
        self._clock = clock
        self._wake = wake

    async def stop(self, name: str) -> None:
        """Ask a job to stop: it is Stopping until its instances or trainings have ended, and then Stopped.

        Raises:
            ValidationException: It has ended, or there is no such job; for a tuning job that is ResourceNotFound.
        """
        status = self.get(name).status
        if status.terminal:
            raise ValidationException(
                f"The request was rejected because the {self.kind.title} {name!r} is in status {status}; only a job"
                " that is InProgress can be stopped"
            )
        at_ms = self._clock.now_ms()
        await self.update(name, lambda job: self._stopping(job, at_ms))
        faults.point("control.stopping")
        self._wake(name)

    async def delete(self, name: str) -> None:
        """Delete a job that has ended or whose record is damaged, and its tags. Logs, objects and trainings stay.

        Raises:
            ResourceNotFound: There is no such job.
            ResourceInUse: It has not ended.
        """

        def delete(transaction: Transaction) -> None:
            record = transaction.delete(self.kind.kind, name)
            if record is None:
                raise ResourceNotFound(self.kind.missing.format(name=name))
            job = None if record.is_damaged else self.kind.read(record.document)
            if job is not None and not job.status.terminal:
                raise ResourceInUse(
                    f"The {self.kind.title} {name!r} cannot be deleted: it is in status {job.status}; only a job that"
                    " has ended can be deleted. Stop it first, and wait for its end"
                )
            delete_tags(transaction, job.arn if job else self._arn(name))

        await self._records.change(delete)

    @abstractmethod
    def _stopping(self, job: J, at_ms: int) -> J:
        """Return a job that was asked to stop."""

    def _arn(self, name: str) -> str:
        return sagemaker_arn(self.kind.kind, name, region=self._region)
