"""Processing jobs: create, look up, list, stop, delete. `tidemill.control.training.driver` runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import Capabilities
from tidemill.control.jobs import PROCESSING
from tidemill.control.processing.admission import check_processing_request
from tidemill.control.tags import check_tags
from tidemill.control.training.jobs import ScriptJobs
from tidemill.core.clock import Clock
from tidemill.core.frameworks import ProcessingFrameworks
from tidemill.core.processing import ProcessingJob
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import RecordStore


class ProcessingJobs(ScriptJobs[ProcessingJob]):
    """The processing jobs of the account. Arguments are those of `ScriptJobs`, without the kind."""

    def __init__(
        self,
        records: RecordStore,
        objects: ObjectStore,
        *,
        region: str,
        clock: Clock,
        wake: Callable[[str], None],
        capabilities: Capabilities | None = None,
    ) -> None:
        super().__init__(
            records, objects, kind=PROCESSING, region=region, clock=clock, wake=wake, capabilities=capabilities
        )
        images = self._capabilities.frameworks.images
        self._capabilities = replace(self._capabilities, frameworks=ProcessingFrameworks(images))

    async def create(self, request: Mapping[str, Any], *, tags: Sequence[Mapping[str, str]] = ()) -> ProcessingJob:
        """Accept a job. After this returns, the job and its tags survive kill -9.

        Args:
            request: The members of CreateProcessingJob without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The request cannot be honored.
            ResourceInUse: The name is taken.
            ResourceLimitExceeded: The job could never start on this machine.
        """
        checked_tags = check_tags(tags)
        check_processing_request(request, capabilities=self._capabilities, has_bucket=self._objects.bucket_exists)
        return await self._accept(
            ProcessingJob,
            request["ProcessingJobName"],
            request,
            resources=request["ProcessingResources"]["ClusterConfig"],
            tags=checked_tags,
        )
