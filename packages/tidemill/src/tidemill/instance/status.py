"""The reports of an instance: its phases, why it was stopped, how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

LOST = "InternalServerError: instance agent lost"


class InstanceOutcome(StrEnum):
    """How an instance ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"


class StopReason(StrEnum):
    """Why an instance was asked to stop."""

    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"
    INTERRUPTED = "interrupted"
    """Interrupted like a spot instance: the job resumes from its checkpoints."""
    PEER_FAILED = "peer_failed"
    """Another instance of the job has failed, so the result of this one no longer matters."""

    @property
    def outcome(self) -> InstanceOutcome:
        """How an instance that was asked for this reason ends."""
        return InstanceOutcome.MAX_RUNTIME if self is StopReason.MAX_RUNTIME else InstanceOutcome.STOPPED


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of an instance, by SageMaker's SecondaryStatus name (endpoints end in ``Serving``)."""

    status: str
    started_ms: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An archive that the instance packed, for the object store. The executor knows its path."""

    size_bytes: int
    sha256: str
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceExit:
    """The result of an instance.

    Attributes:
        failure: FailureReason text of at most 1,024 characters; empty unless failed.
        artifacts: ``model`` and ``output``, if they are not empty.
        record: Facts needed to repeat the run: environment key and lock digest, command, code digest.
        lost: Whether the instance lost what it needs outside of itself, such as the job's network: it counts as a lost
            instance, and the job may start again.
        training_started_ms: Start of the script in milliseconds since the epoch; None if it was not started.
    """

    outcome: InstanceOutcome
    failure: str
    ended_ms: int
    lost: bool = False
    training_started_ms: int | None = None
    training_ended_ms: int | None = None
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    peak_rss_bytes: int = 0


class RelayReport(NamedTuple):
    """Where the agent of a model server listens for the service.

    Attributes:
        port: TCP port at the machine's address.
        certificate: The certificate that it presents, in PEM.
    """

    port: int
    certificate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """The reports of one attempt of an instance.

    Attributes:
        attempt: Number of the reporting attempt. A driver ignores the status of an older attempt.
        launched: A spec was written: ``launch`` may be called again to ensure that a shim runs.
        running: The shim is alive (or was started a moment ago and has not reported yet).
        exit: Set when the instance ended normally. Launched, but neither running nor exit: the shim was lost.
        last_words: The end of the log of a lost shim, e.g. why it could not start; empty if unknown.
    """

    launched: bool
    running: bool
    phases: tuple[Phase, ...]
    exit: InstanceExit | None
    attempt: int = 1
    last_words: str = ""

    @property
    def loss(self) -> str:
        """The FailureReason of a lost instance; empty if the instance is not lost."""
        if not self.launched or self.running or self.exit is not None:
            return ""
        return LOST + (f"; its log ends with: {self.last_words}" if self.last_words else "")
