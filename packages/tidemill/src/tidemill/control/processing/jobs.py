"""Processing jobs: create, look up, list, stop, delete. `tidemill.control.training.driver` runs them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.jobs import PROCESSING
from tidemill.control.processing.admission import check_processing_request
from tidemill.control.tags import check_tags
from tidemill.control.training.jobs import ScriptJobs
from tidemill.core.frameworks import ProcessingFrameworks
from tidemill.core.processing import ProcessingJob


class ProcessingJobs(ScriptJobs[ProcessingJob]):
    """The processing jobs of the account."""

    KIND = PROCESSING

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
        frameworks = ProcessingFrameworks(self._capabilities.frameworks.images)
        capabilities = replace(self._capabilities, frameworks=frameworks)
        check_processing_request(request, capabilities=capabilities, has_bucket=self._objects.bucket_exists)
        return await self._accept(
            ProcessingJob,
            request["ProcessingJobName"],
            request,
            resources=request["ProcessingResources"]["ClusterConfig"],
            tags=checked_tags,
        )
