"""Training jobs: create, look up, list, stop. What happens to a created job is `tidemill.control.driver`'s business."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import check_s3_uri, check_training_request
from tidemill.control.resources import TRAINING_JOB, job_record
from tidemill.control.tags import check_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import sagemaker_arn
from tidemill.core.training import SecondaryStatus, TrainingJob, TrainingStatus
from tidemill.errors import ResourceInUse, ValidationException
from tidemill.store.base import Query, Record, RecordExists, RecordStore, Transaction
from tidemill.store.objects import ObjectStore

__all__ = ["TRAINING_JOB", "Training"]


class Training:
    """The training jobs of the account.

    Args:
        records: Where jobs are kept.
        objects: To check that a job's output has somewhere to go.
        region: For ARNs.
        clock: Time.
        wake: Called with the name of a job that wants attention.
    """

    def __init__(
        self,
        records: RecordStore,
        objects: ObjectStore,
        *,
        region: str,
        clock: Clock,
        wake: Callable[[str], None],
    ) -> None:
        self._records = records
        self._objects = objects
        self._region = region
        self._clock = clock
        self._wake = wake

    async def create(self, request: Mapping[str, Any], *, tags: Sequence[Mapping[str, str]] = ()) -> TrainingJob:
        """Accept a job. When this returns, the job and its tags survive kill -9.

        Args:
            request: The members of CreateTrainingJob without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The request cannot be honoured.
            ResourceInUse: The name is taken.
        """
        checked_tags = check_tags(tags)
        check_training_request(request)
        self._check_output_bucket(request["OutputDataConfig"]["S3OutputPath"])
        job = self._new_job(request)

        def insert(transaction: Transaction) -> None:
            transaction.insert(job_record(job))
            insert_tags(transaction, job.arn, checked_tags, at_ms=job.created_ms)

        try:
            await self._records.change(insert, grows=True)
        except RecordExists as error:
            raise ResourceInUse(
                f"Training job names must be unique: there is already a training job {job.name!r} ({job.arn});"
                " choose another name"
            ) from error
        faults.point("control.created")
        self._wake(job.name)
        return job

    def get(self, name: str) -> TrainingJob:
        """The job.

        Raises:
            ValidationException: There is none of that name (the code that SageMaker answers here).
        """
        return TrainingJob.from_document(self.record(name).document)

    def record(self, name: str) -> Record:
        """The stored record of a job; raises as `get`."""
        record = self._records.get(TRAINING_JOB, name)
        if record is None:
            raise ValidationException(f"Requested resource not found: there is no training job {name!r}")
        return record

    async def list(self, query: Query) -> tuple[tuple[Record, ...], str | None]:
        """One page of records and the token of the next.

        Raises:
            ValidationException: The token is not one of ours for this query.
        """
        try:
            page = await self._records.list(TRAINING_JOB, query)
        except ValueError as error:
            raise ValidationException(f"Value {query.after!r} at 'nextToken' is not valid: {error}") from error
        return page.records, page.next_token

    async def stop(self, name: str) -> None:
        """Ask a job to stop; it goes Stopping now and Stopped when its script has had its time.

        Raises:
            ValidationException: There is no such job, or it has ended.
        """
        job = self.get(name)
        if job.status.terminal:
            raise ValidationException(
                f"The request was rejected because the training job {name!r} is in status {job.status}; only a job that"
                " is InProgress can be stopped"
            )
        at_ms = self._clock.now_ms()
        await self._records.update(TRAINING_JOB, name, lambda record: _stopping(record, at_ms))
        faults.point("control.stopping")
        self._wake(name)

    def _new_job(self, request: Mapping[str, Any]) -> TrainingJob:
        now_ms = self._clock.now_ms()
        name = request["TrainingJobName"]
        job = TrainingJob(
            name=name,
            arn=sagemaker_arn("training-job", name, region=self._region),
            job_id=secrets.token_hex(16),
            request=dict(request),
            created_ms=now_ms,
            log_streams=(f"{name}/algo-1-{now_ms // 1000}",),
        )
        return job.enter(SecondaryStatus.STARTING, at_ms=now_ms, message="Starting the training job")

    def _check_output_bucket(self, path: str) -> None:
        uri = check_s3_uri(path, "outputDataConfig.s3OutputPath")
        if not self._objects.bucket_exists(uri.bucket):
            raise ValidationException(
                f"Value {path!r} at 'outputDataConfig.s3OutputPath' is not allowed: the bucket {uri.bucket!r} does not"
                " exist; create it first"
            )


def _stopping(record: Record, at_ms: int) -> Record | None:
    job = TrainingJob.from_document(record.document)
    if job.status is not TrainingStatus.IN_PROGRESS:
        return None
    stopping = job.enter(SecondaryStatus.STOPPING, at_ms=at_ms, message="Stopping the training job")
    return job_record(replace(stopping, stop_requested=True))
