"""A batch transform job and its state transitions (`DescribeTransformJob` in SageMaker's API reference)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tidemill.core.decided_jobs import DecidedJob
from tidemill.core.training import JobStatus

MEBIBYTE = 1024 * 1024
DEFAULT_PAYLOAD_MB = 6
LARGEST_PAYLOAD_MB = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformJob(DecidedJob):
    """One batch transform job.

    It holds a copy of its model's definition, so deleting the model later does not affect it.

    Attributes:
        job_id: Also the name of the directory of its instances.
        model: The CreateModel request of its model, as `Resource.served`.
        log_streams: Log streams in the group of transform jobs, one per instance.
        started_ms: Time when all servers answered.
    """

    model: Mapping[str, Any]
    log_streams: tuple[str, ...]
    started_ms: int | None = None

    @property
    def container(self) -> Mapping[str, Any]:
        """The container definition of the model, by botocore's member names."""
        return self.model.get("PrimaryContainer") or self.model["Containers"][0]

    @property
    def data_log_stream(self) -> str:
        """The log stream with the results and failures of the objects."""
        return f"{self.name}/data-log"

    @property
    def max_concurrent(self) -> int:
        """Maximum number of concurrent requests to one instance."""
        return self.request.get("MaxConcurrentTransforms") or 1

    @property
    def max_payload_bytes(self) -> int:
        """Maximum bytes of a request's body."""
        # 0 leaves the limit to the server, whose limit this is.
        return (self.request.get("MaxPayloadInMB", DEFAULT_PAYLOAD_MB) or LARGEST_PAYLOAD_MB) * MEBIBYTE

    @property
    def strategy(self) -> str:
        """``MultiRecord`` or ``SingleRecord``."""
        return self.request.get("BatchStrategy", "MultiRecord")

    def decide(self, status: JobStatus, *, failure_reason: str = "") -> Self:
        """Return the job with its final status, which is set once. A job that was being stopped becomes Stopped.

        Args:
            failure_reason: Shown as FailureReason.
        """
        if self.status is JobStatus.STOPPING:
            status, failure_reason = JobStatus.STOPPED, ""
        return super(TransformJob, self).decide(status, failure_reason=failure_reason)

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        return {"arn": self.arn, "ended_ms": self.ended_ms, "failure_reason": self.failure_reason}
