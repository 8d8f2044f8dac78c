"""A training job: its state transitions, and its instances in groups.

States and their names are SageMaker's (`DescribeTrainingJob` in its API reference). `TrainingJob.enter` refuses every
transition that the table does not allow, so a job never moves backward, and a terminal job stays terminal even if a
late message arrives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from tidemill.core.documents import Document
from tidemill.core.job_scope import JobScope

HOMOGENEOUS = "homogeneousCluster"
"""Name of the only group of a job with InstanceCount, as in SageMaker's resourceconfig.json."""


class JobStatus(StrEnum):
    """SageMaker's TrainingJobStatus, ProcessingJobStatus, TransformJobStatus and HyperParameterTuningJobStatus."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self not in (JobStatus.IN_PROGRESS, JobStatus.STOPPING)


class SecondaryStatus(StrEnum):
    """The part of SageMaker's SecondaryStatus values that tidemill uses."""

    STARTING = "Starting"
    PENDING = "Pending"
    DOWNLOADING_IMAGE = "DownloadingTrainingImage"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    COMPLETED = "Completed"
    FAILED = "Failed"


_STATUS_OF = {
    SecondaryStatus.STOPPING: JobStatus.STOPPING,
    SecondaryStatus.STOPPED: JobStatus.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: JobStatus.STOPPED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: JobStatus.STOPPED,
    SecondaryStatus.COMPLETED: JobStatus.COMPLETED,
    SecondaryStatus.FAILED: JobStatus.FAILED,
}

_ENDS = frozenset(s for s, status in _STATUS_OF.items() if status.terminal)
_AFTER_TRAINING = _ENDS | {SecondaryStatus.STOPPING}
_S = SecondaryStatus
_RESTARTS = frozenset({_S.INTERRUPTED, _S.RESTARTING})
_NEXT: Mapping[SecondaryStatus, frozenset[SecondaryStatus]] = {
    _S.STARTING: frozenset({_S.PENDING, _S.DOWNLOADING_IMAGE, _S.DOWNLOADING, _S.TRAINING, _S.UPLOADING})
    | _RESTARTS
    | _AFTER_TRAINING,
    _S.PENDING: frozenset({_S.STARTING}) | _AFTER_TRAINING,
    **{restart: frozenset({_S.STARTING}) | _AFTER_TRAINING for restart in _RESTARTS},
    _S.DOWNLOADING_IMAGE: frozenset({_S.DOWNLOADING, _S.TRAINING, _S.UPLOADING}) | _RESTARTS | _AFTER_TRAINING,
    _S.DOWNLOADING: frozenset({_S.TRAINING, _S.UPLOADING}) | _RESTARTS | _AFTER_TRAINING,
    _S.TRAINING: frozenset({_S.UPLOADING}) | _RESTARTS | _AFTER_TRAINING,
    _S.UPLOADING: _RESTARTS | _AFTER_TRAINING,
    _S.STOPPING: _ENDS,
    **{end: frozenset() for end in _ENDS},
}


@dataclass(frozen=True, slots=True)
class Transition:
    """One SecondaryStatusTransition. Times are in milliseconds since the epoch."""

    status: SecondaryStatus
    started_ms: int
    message: str
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FinalMetric:
    """The last value of a metric in a job's log.

    Attributes:
        at_ms: Its time in milliseconds since the epoch.
        statistics: Of all values, as in `TrialComponent.metrics`; empty for a job without an experiment.
    """

    name: str
    value: float
    at_ms: int
    statistics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(Document):
    """One training job. Other jobs that run a script to its end are subclasses with another contract.

    Attributes:
        name: The user's TrainingJobName.
        job_id: Hexadecimal name of its directory; never the user's text.
        request: The accepted CreateTrainingJob request, by botocore's member names.
        log_streams: ``JOB/algo-N-SECONDS`` in the log group of training jobs, one per instance.
        attempt: Number of the current launch; reports of earlier launches are ignored.
        interrupted_attempt: The attempt to interrupt, as a spot instance is; 0 if none.
        stop_requested: Whether the user has requested a stop.
        model_artifacts: S3 URI of model.tar.gz; empty until it is stored.
        final_metrics: Metrics read from the log at the end of the job.
        record: Facts needed to repeat the job: environment, code and data digests, command.
        tuning_job_arn: ARN of the tuning job whose trial it is; empty if it is none.
        trace: W3C's traceparent of the request that created it; None if that was not traced.
    """

    name: str
    arn: str
    job_id: str
    request: Mapping[str, Any]
    created_ms: int
    log_streams: tuple[str, ...]
    status: JobStatus = JobStatus.IN_PROGRESS
    transitions: tuple[Transition, ...] = ()
    attempt: int = 1
    interrupted_attempt: int = 0
    stop_requested: bool = False
    training_started_ms: int | None = None
    training_ended_ms: int | None = None
    ended_ms: int | None = None
    failure_reason: str = ""
    model_artifacts: str = ""
    final_metrics: tuple[FinalMetric, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    tuning_job_arn: str = ""
    trace: str | None = None

    create_operation: ClassVar[str] = "CreateTrainingJob"
    log_group: ClassVar[str] = "/aws/sagemaker/TrainingJobs"

    @property
    def run_request(self) -> Mapping[str, Any]:
        """The request by which the job is planned and run, by the member names of CreateTrainingJob."""
        return self.request

    @property
    def scope(self) -> JobScope:
        """What the keys of the job may write by its own request."""
        return JobScope.of_request(self.request)

    @property
    def secondary_status(self) -> SecondaryStatus:
        return self.transitions[-1].status

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the instances, ``algo-1`` first."""
        return tuple(f"algo-{i + 1}" for i in range(len(self.log_streams)))

    @property
    def is_spot(self) -> bool:
        """Whether its instances may be interrupted (EnableManagedSpotTraining)."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def interrupted(self) -> bool:
        """Whether its current attempt is being interrupted."""
        return self.interrupted_attempt == self.attempt

    def trained_ms(self, now_ms: int) -> int:
        """Return the milliseconds that its scripts have run until ``now_ms``, over all attempts.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        trained = (t for t in self.transitions if t.status is SecondaryStatus.TRAINING)
        return sum((t.ended_ms if t.ended_ms is not None else now_ms) - t.started_ms for t in trained)

    def may_enter(self, status: SecondaryStatus) -> bool:
        """Return whether the table allows the transition.

        Args:
            status: The next secondary status.
        """
        return not self.transitions or status in _NEXT[self.secondary_status]

    def enter(self, status: SecondaryStatus, *, at_ms: int, message: str) -> Self:
        """Return the job in its next state; the previous transition is closed.

        Raises:
            ValueError: The table does not allow the transition.
        """
        if not self.may_enter(status):
            raise ValueError(f"job {self.name}: cannot go from {self.secondary_status} to {status}")
        closed = tuple(t if t.ended_ms is not None else replace(t, ended_ms=at_ms) for t in self.transitions)
        main = _STATUS_OF.get(status, JobStatus.IN_PROGRESS)
        entered = Transition(status, at_ms, message, ended_ms=at_ms if main.terminal else None)
        return replace(
            self,
            status=main,
            transitions=(*closed, entered),
            ended_ms=at_ms if main.terminal else None,
        )

    def restate(self, status: SecondaryStatus, *, message: str) -> Self:
        """Return the job with another message of its current state; the same job if it is in another state.

        Args:
            status: The state that the message is about.
        """
        if self.secondary_status is not status or self.transitions[-1].message == message:
            return self
        return replace(self, transitions=(*self.transitions[:-1], replace(self.transitions[-1], message=message)))

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        return {"arn": self.arn, "ended_ms": self.ended_ms, "secondary_status": str(self.secondary_status)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroup:
    """The instances of one type of a training job.

    Attributes:
        hosts: Their names, ``algo-1`` and so on, numbered across all groups of a job in the order of the request.
    """

    name: str
    instance_type: str
    hosts: tuple[str, ...]


def instance_groups(resources: Mapping[str, Any]) -> tuple[HostGroup, ...]:
    """Return the groups of a job in the order of the request; one for a job without InstanceGroups.

    Args:
        resources: ``ResourceConfig``, by botocore's member names.
    """
    given = resources.get("InstanceGroups") or (
        {
            "InstanceGroupName": HOMOGENEOUS,
            "InstanceType": resources.get("InstanceType", ""),
            "InstanceCount": resources.get("InstanceCount", 1),
        },
    )
    groups: list[HostGroup] = []
    before = 0
    for each in given:
        hosts = tuple(f"algo-{before + i + 1}" for i in range(each["InstanceCount"]))
        groups.append(HostGroup(name=each["InstanceGroupName"], instance_type=each["InstanceType"], hosts=hosts))
        before += len(hosts)
    return tuple(groups)


def hosts_of_channel(groups: Sequence[HostGroup], channel: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts that get a channel: those of its InstanceGroupNames, or all if it names no groups.

    Args:
        groups: The groups of the job.
        channel: A member of ``InputDataConfig``, by botocore's member names.
    """
    names = channel["DataSource"]["S3DataSource"].get("InstanceGroupNames") or [group.name for group in groups]
    return tuple(host for group in groups if group.name in names for host in group.hosts)
