"""Transform jobs: create, look up, list, stop. `tidemill.control.transform.driver` runs them."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import check_target
from tidemill.control.hosting import MODEL
from tidemill.control.jobs import TRANSFORM, AcceptedJobs
from tidemill.control.tags import check_tags
from tidemill.control.transform.admission import check_transform_model, check_transform_request
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Resource
from tidemill.core.names import sagemaker_arn
from tidemill.core.training import JobStatus
from tidemill.core.transform import TransformJob
from tidemill.errors import ValidationException
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import RecordStore, Transaction


class TransformJobs(AcceptedJobs[TransformJob]):
    """The transform jobs of the account.

    Args:
        objects: Used to check that the bucket of the results exists.
        wake: Called with the name of a new or changed job.
    """

    KIND = TRANSFORM

    def __init__(
        self, records: RecordStore, objects: ObjectStore, *, region: str, clock: Clock, wake: Callable[[str], None]
    ) -> None:
        super().__init__(records, region=region, clock=clock, wake=wake)
        self._objects = objects

    async def create(self, request: Mapping[str, Any], *, tags: Sequence[Mapping[str, str]] = ()) -> TransformJob:
        """Accept a job. After this returns, the job and its tags survive kill -9.

        Args:
            request: The members of CreateTransformJob without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The request cannot be honored, or its model does not exist.
            ResourceInUse: The name is taken.
        """
        checked_tags = check_tags(tags)
        check_transform_request(request)
        output = request["TransformOutput"]["S3OutputPath"]
        check_target(output, "transformOutput.s3OutputPath", has_bucket=self._objects.bucket_exists)
        job = await self.insert(lambda transaction: self._new_job(request, transaction), tags=checked_tags)
        faults.point("control.transform.created")
        self._wake(job.name)
        return job

    def _stopping(self, job: TransformJob, at_ms: int) -> TransformJob:
        return replace(job, status=JobStatus.STOPPING) if job.status is JobStatus.IN_PROGRESS else job

    def _model(self, transaction: Transaction, name: str) -> Mapping[str, Any]:
        record = transaction.get(MODEL, name)
        if record is None:
            raise ValidationException(f'Could not find model "{sagemaker_arn(MODEL, name, region=self._region)}".')
        model = Resource.from_document(record.document).served
        check_transform_model(model)
        return model

    def _new_job(self, request: Mapping[str, Any], transaction: Transaction) -> TransformJob:
        model = self._model(transaction, request["ModelName"])
        now_ms, name = self._clock.now_ms(), request["TransformJobName"]
        return TransformJob(
            name=name,
            arn=self._arn(name),
            job_id=secrets.token_hex(16),
            request=dict(request),
            model=model,
            created_ms=now_ms,
            log_streams=tuple(
                f"{name}/algo-{index + 1}-{now_ms // 1000}"
                for index in range(request["TransformResources"]["InstanceCount"])
            ),
        )
