"""A submitted job of the service: what training, processing and transform jobs have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.errors import JobFailed


@dataclass(frozen=True)
class AwaitedJob(ABC):
    """One job of the service.

    Attributes:
        session: The session that reaches it.
        name: Its name.
    """

    session: Any  # a Session; its module imports this one, since it waits for jobs
    name: str

    @property
    def job_name(self) -> str:
        """The name, under its other name."""
        return self.name

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the service's current description of the job."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the job to stop; what it has saved stays."""

    @abstractmethod
    def wait(self, logs: bool = True) -> dict[str, Any]:
        """Wait for the end of the job and return its last description.

        Raises:
            JobFailed: The job failed.
        """


def raise_if_failed(title: str, name: str, status: str, description: Mapping[str, Any]) -> None:
    """Raise for a job that failed.

    Args:
        title: ``training job``, ``processing job`` or ``transform job``.
        name: Of the job.
        status: How it ended.
        description: Has its ``FailureReason``.

    Raises:
        JobFailed: The job failed; the message contains the whole FailureReason.
    """
    if status == "Failed":
        raise JobFailed(f"{title} {name} failed:\n{description.get('FailureReason', '(no reason was given)')}")
