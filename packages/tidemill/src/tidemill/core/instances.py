"""The values by which all layers name an instance and what belongs to it: its attempt, isolation, log and objects."""

from dataclasses import dataclass
from enum import StrEnum


class Isolation(StrEnum):
    """How far an instance is separated from the machine. The job's log names the mode."""

    FULL = "full"
    """As ``mount``, and in addition a network namespace per instance, with an address that no other job can reach."""
    MOUNT = "mount"
    """Private /opt/ml, HOME and temporary directories; the state directory and the user's keys are hidden."""
    PLAIN = "plain"
    """SAGEMAKER_BASE_DIR instead of /opt/ml; nothing is hidden."""


@dataclass(frozen=True, slots=True, order=True)
class InstanceRef:
    """One attempt to run one instance.

    Attributes:
        job_id: Hexadecimal, never text of a user, because it may name directories.
        instance_index: 0 is ``algo-1``.
        attempt: Number of this launch of the job, from 1.
    """

    job_id: str
    instance_index: int
    attempt: int = 1

    @property
    def mark(self) -> str:
        """``JOB_ID/INDEX``, and ``/ATTEMPT`` from the second attempt on: the mark of processes, and a name."""
        mark = f"{self.job_id}/{self.instance_index}"
        return mark if self.attempt == 1 else f"{mark}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class StreamName:
    """A log stream of the service."""

    group: str
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """An object of the service's object store as it was when the job was planned.

    Attributes:
        uri: ``s3://bucket/key``.
        name: Path below the channel directory, ``/``-separated; the shim checks each segment before writing it.
        content_id: Name of the immutable content in the object store; ``s3://bucket/key`` if it lies in another S3.
        sha256: SHA-256 of the content, hexadecimal.
        etag: The object's ETag, without quotes.
    """

    uri: str
    name: str
    content_id: str
    size_bytes: int
    sha256: str
    etag: str = ""
