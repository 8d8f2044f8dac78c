"""Jobs that end in two steps: transform and tuning jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tidemill.core.documents import Document
from tidemill.core.training import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedJob(Document):
    """A job whose final status is stored before what it runs is ended, so that no later event changes it.

    Attributes:
        name: The user's name of the job.
        job_id: Random hexadecimal text; never the user's.
        request: The accepted request that creates the job, by botocore's member names.
        created_ms: Milliseconds since the epoch, like the other times.
        decided: Final status; None while the job works.
    """

    name: str
    arn: str
    job_id: str
    request: Mapping[str, Any]
    created_ms: int
    status: JobStatus = JobStatus.IN_PROGRESS
    decided: JobStatus | None = None
    ended_ms: int | None = None
    failure_reason: str = ""

    def decide(self, status: JobStatus, *, failure_reason: str = "") -> Self:
        """Return the job with its final status, which is set once.

        Args:
            status: The final status.
            failure_reason: Shown as FailureReason.
        """
        return self if self.decided else replace(self, decided=status, failure_reason=failure_reason)

    def end(self, *, at_ms: int) -> Self:
        """Return the ended job. A job that has already ended is returned unchanged.

        Args:
            at_ms: Milliseconds since the epoch.
        """
        if self.status.terminal or self.decided is None:
            return self
        return replace(self, status=self.decided, ended_ms=at_ms)
