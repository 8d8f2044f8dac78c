"""A batch transform job and its state transitions (`DescribeTransformJob` in SageMaker's API reference)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tidemill.core.documents import Document

MEBIBYTE = 1024 * 1024
DEFAULT_PAYLOAD_MB = 6
LARGEST_PAYLOAD_MB = 100


class TransformStatus(StrEnum):
    """SageMaker's TransformJobStatus."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self not in (TransformStatus.IN_PROGRESS, TransformStatus.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformJob(Document):
    """One batch transform job.

    It holds a copy of its model's definition, so deleting the model later does not affect it.

    Attributes:
        name: The user's TransformJobName.
        job_id: Hexadecimal name of the directory of its instances; never the user's text.
        request: The accepted CreateTransformJob request, by botocore's member names.
        model: The CreateModel request of its model, as `Resource.served`.
        log_streams: Log streams in the group of transform jobs, one per instance.
        started_ms: Time when all servers answered, in milliseconds since the epoch, like the other times.
        decided: Final status of the job, stored before its servers are ended; None while it works.
    """

    name: str
    arn: str
    job_id: str
    request: Mapping[str, Any]
    model: Mapping[str, Any]
    created_ms: int
    log_streams: tuple[str, ...]
    status: TransformStatus = TransformStatus.IN_PROGRESS
    decided: TransformStatus | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    failure_reason: str = ""

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

    def decide(self, status: TransformStatus, *, failure_reason: str = "") -> "TransformJob":
        """Return the job with its final status, which is set once. A job that was being stopped becomes Stopped.

        Args:
            failure_reason: Shown as FailureReason.
        """
        if self.status is TransformStatus.STOPPING:
            status, failure_reason = TransformStatus.STOPPED, ""
        return self if self.decided else replace(self, decided=status, failure_reason=failure_reason)

    def end(self, *, at_ms: int) -> "TransformJob":
        """Return the ended job. A job that has already ended is returned unchanged.

        Args:
            at_ms: Milliseconds since the epoch.
        """
        if self.status.terminal or self.decided is None:
            return self
        return replace(self, status=self.decided, ended_ms=at_ms)

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        return {"arn": self.arn, "ended_ms": self.ended_ms, "failure_reason": self.failure_reason}
