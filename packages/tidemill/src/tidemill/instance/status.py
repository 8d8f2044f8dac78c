"""What an instance reports: its phases, why it was stopped, how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Artifact", "InstanceExit", "InstanceStatus", "Outcome", "Phase", "StopReason"]


class StopReason(StrEnum):
    """Why an instance was asked to stop."""

    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"
    INTERRUPTED = "interrupted"
    """As a spot instance is: the job goes on from its checkpoints."""
    PEER_FAILED = "peer_failed"
    """Another instance of the job has failed: nothing that this one does matters any more."""


class Outcome(StrEnum):
    """How an instance ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of an instance, by SageMaker's SecondaryStatus name (endpoints end in ``Serving``)."""

    status: str
    started_ms: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An archive that the instance packed, to be taken over by the object store. The executor knows its path."""

    size_bytes: int
    sha256: str
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceExit:
    """The result of an instance.

    Attributes:
        failure: FailureReason text of at most 1,024 characters; empty unless failed.
        artifacts: ``model`` and ``output``, if they are not empty.
        record: What is needed to repeat the run: environment key and lock digest, command, code digest.
        training_started_ms: When the script was started; None if it never was.
    """

    outcome: Outcome
    failure: str
    ended_ms: int
    training_started_ms: int | None = None
    training_ended_ms: int | None = None
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    peak_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """What one attempt of an instance has reported.

    Attributes:
        attempt: Number of the attempt that reported it. A driver ignores the status of an older one.
        launched: A spec was written: ``launch`` may be called again to make sure that a shim runs.
        running: Its shim lives (or has been started a moment ago and has not yet reported).
        exit: Set when it ended in order. Neither running nor exit, although launched: the shim was lost.
    """

    launched: bool
    running: bool
    phases: tuple[Phase, ...]
    exit: InstanceExit | None
    attempt: int = 1
