"""A hyperparameter tuning job, its trials, and their counts (`DescribeHyperParameterTuningJob` in SageMaker's API)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tidemill.core.decided_jobs import DecidedJob
from tidemill.core.training import JobStatus

RETRYABLE_FAILURE = "InternalServerError"
"""How FailureReason begins if the service failed, and not the script."""


class ObjectiveStatus(StrEnum):
    """SageMaker's ObjectiveStatus of a training: whether its objective has a final value."""

    SUCCEEDED = "Succeeded"
    PENDING = "Pending"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTrial:
    """One training of a tuning job, and what is known of it when it has ended.

    Attributes:
        name: TrainingJobName.
        definition: Number of its definition in the request, from 0.
        hyperparameters: The tuned hyperparameters, as texts.
        created_ms: Milliseconds since the epoch, like the other times.
        value: Final value of the objective metric; None without one.
    """

    name: str
    definition: int
    hyperparameters: Mapping[str, str]
    created_ms: int
    status: JobStatus = JobStatus.IN_PROGRESS
    started_ms: int | None = None
    ended_ms: int | None = None
    value: float | None = None
    failure_reason: str = ""

    @property
    def objective_status(self) -> ObjectiveStatus:
        """Whether the objective has a final value that counts."""
        if not self.status.terminal:
            return ObjectiveStatus.PENDING
        failed = self.status is JobStatus.FAILED or self.value is None
        return ObjectiveStatus.FAILED if failed else ObjectiveStatus.SUCCEEDED

    @property
    def objective(self) -> float | None:
        """The value that the search learns from; None if there is none yet, or the training failed."""
        return self.value if self.objective_status is ObjectiveStatus.SUCCEEDED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob(DecidedJob):
    """One hyperparameter tuning job.

    Attributes:
        job_id: The names of its trainings and the default seed are made from it, too.
        trials: Its trainings in the order of their creation. A trial is stored before its training is created.
        parents: Ended trials of the parents of a warm start that have an objective value.
        converged_ms: When ConvergenceDetected ended the search.
    """

    trials: tuple[TuningTrial, ...] = ()
    parents: tuple[TuningTrial, ...] = field(default=())
    converged_ms: int | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """HyperParameterTuningJobConfig of the request."""
        return self.request["HyperParameterTuningJobConfig"]

    @property
    def definitions(self) -> Sequence[Mapping[str, Any]]:
        """The training job definitions; one, unless the request has TrainingJobDefinitions."""
        return self.request.get("TrainingJobDefinitions") or (self.request["TrainingJobDefinition"],)

    @property
    def maximizes(self) -> bool:
        """Whether higher values of the objective are better."""
        objective = self.config.get("HyperParameterTuningJobObjective") or self.definitions[0]["TuningObjective"]
        return objective["Type"] == "Maximize"

    @property
    def running(self) -> tuple[TuningTrial, ...]:
        """Trials whose trainings have not ended."""
        return tuple(trial for trial in self.trials if not trial.status.terminal)

    def with_trials(self, changed: Iterable[TuningTrial]) -> "TuningJob":
        """Return the job with trials replaced by those of the same name.

        Args:
            changed: The new trials. A trial that has ended stays as it is.
        """
        by_name = {trial.name: trial for trial in changed}
        trials = tuple(old if old.status.terminal else by_name.get(old.name, old) for old in self.trials)
        return replace(self, trials=trials)

    def training_counters(self) -> dict[str, int]:
        """Return TrainingJobStatusCounters."""
        counters = dict.fromkeys(("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0)
        for trial in self.trials:
            counters[_counter_of(trial)] += 1
        return counters

    def objective_counters(self) -> dict[str, int]:
        """Return ObjectiveStatusCounters."""
        counters = {str(status): 0 for status in ObjectiveStatus}
        for trial in self.trials:
            counters[trial.objective_status] += 1
        return counters

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        return {
            "arn": self.arn,
            "ended_ms": self.ended_ms,
            "strategy": self.config["Strategy"],
            "limits": dict(self.config["ResourceLimits"]),
            "trainings": self.training_counters(),
            "objectives": self.objective_counters(),
        }


def best_trial(trials: Iterable[TuningTrial], *, maximizes: bool) -> TuningTrial | None:
    """Return the trial with the best objective, the earliest of equal ones; None if no trial has an objective.

    Args:
        trials: In the order of their creation.
        maximizes: Whether higher values are better.
    """
    sign = -1 if maximizes else 1
    best: TuningTrial | None = None
    for trial in trials:
        value = trial.objective
        if value is not None and (best is None or best.objective is None or sign * value < sign * best.objective):
            best = trial
    return best


def _counter_of(trial: TuningTrial) -> str:
    if not trial.status.terminal:
        return "InProgress"
    if trial.status is not JobStatus.FAILED:
        return str(trial.status)
    return "RetryableError" if trial.failure_reason.startswith(RETRYABLE_FAILURE) else "NonRetryableError"
