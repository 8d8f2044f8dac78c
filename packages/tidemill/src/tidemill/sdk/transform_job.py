"""A submitted batch transform job, as `Transformer.latest_transform_job` gives it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tidemill.sdk.polled_job import PolledJob


class TransformJob(PolledJob):
    """One batch transform job of the service."""

    _title: ClassVar[str] = "transform job"
    _log_group: ClassVar[str] = "/aws/sagemaker/TransformJobs"
    _status_member: ClassVar[str] = "TransformJobStatus"
    _attach: ClassVar[str] = "Transformer.attach"

    def describe(self) -> dict[str, Any]:
        """Return what DescribeTransformJob answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self.session.sagemaker_client.describe_transform_job(TransformJobName=self.name)

    def stop(self) -> None:
        """Ask the job to stop; the results that are there stay."""
        self.session.sagemaker_client.stop_transform_job(TransformJobName=self.name)

    def _streams(self, description: Mapping[str, Any]) -> int:
        # One stream for each instance, and one of what became of the objects.
        return int(description["TransformResources"]["InstanceCount"]) + 1
