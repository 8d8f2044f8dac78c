"""A processing job by its name, for sessions; `ProcessingJob` has its inputs and outputs, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill.sdk.polled_job import PolledJob


@dataclass(frozen=True)
class SubmittedProcessing(PolledJob):
    """One processing job of the service."""

    _title: ClassVar[str] = "processing job"
    _log_group: ClassVar[str] = "/aws/sagemaker/ProcessingJobs"
    _status_member: ClassVar[str] = "ProcessingJobStatus"
    _attach: ClassVar[str] = "ProcessingJob.from_processing_name"

    def describe(self) -> dict[str, Any]:
        """Return what DescribeProcessingJob answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self.session.sagemaker_client.describe_processing_job(ProcessingJobName=self.name)

    def stop(self) -> None:
        """Ask the job to stop: SIGTERM, time to save, then the end."""
        self.session.sagemaker_client.stop_processing_job(ProcessingJobName=self.name)

    def _streams(self, description: Mapping[str, Any]) -> int:
        return int(description["ProcessingResources"]["ClusterConfig"].get("InstanceCount", 1))
