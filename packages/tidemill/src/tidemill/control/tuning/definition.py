"""One training job definition of a tuning job: its ranges, its objective, and the request of each of its trainings."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill.control.tuning.ranges import Range, ranges_of
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.core.tuning import TuningJob, TuningTrial

OBJECTIVE_HYPERPARAMETER = "_tuning_objective_metric"
"""Names the objective to a script, and tells the runtime that the training is one of several; see the SDKs' attach."""

_SHARED = (
    *("RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "StoppingCondition", "EnableNetworkIsolation"),
    *("EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining", "CheckpointConfig", "RetryStrategy"),
    *("Environment", "AlgorithmSpecification"),
)
"""Members of a definition that are members of CreateTrainingJob, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A training job definition with the ranges and the objective that apply to it.

    Attributes:
        number: Its number in the request, from 0.
        ranges: What is tuned.
        metric: Name of the objective metric.
        given: The definition, by botocore's member names.
    """

    number: int
    ranges: tuple[Range, ...]
    metric: str
    given: Mapping[str, Any]

    @property
    def static(self) -> dict[str, str]:
        """The hyperparameters that all trainings share, with the name of the objective."""
        return {**self.given.get("StaticHyperParameters", {}), OBJECTIVE_HYPERPARAMETER: self.metric}

    @property
    def resources(self) -> dict[str, Any]:
        """ResourceConfig of the trainings. Of several instance configurations the first is the preferred one."""
        if "ResourceConfig" in self.given:
            return dict(self.given["ResourceConfig"])
        tuning = self.given["HyperParameterTuningResourceConfig"]
        chosen = {**tuning, **(tuning.get("InstanceConfigs") or [{}])[0]}
        members = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
        return {member: chosen[member] for member in members if member in chosen}

    def training_request(self, name: str, hyperparameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the CreateTrainingJob request of a trial.

        Args:
            name: TrainingJobName.
        """
        request = {member: self.given[member] for member in _SHARED if member in self.given}
        return {
            **request,
            "TrainingJobName": name,
            "HyperParameters": {**self.static, **hyperparameters},
            "ResourceConfig": self.resources,
        }

    def observed(self, trial: TuningTrial, training: TrainingJob) -> TuningTrial:
        """Return a trial in the state of its training.

        Args:
            trial: The trial as it is stored.
        """
        entered = (each.started_ms for each in training.transitions if each.status is SecondaryStatus.TRAINING)
        values = (each.value for each in training.final_metrics if each.name == self.metric)
        return replace(
            trial,
            status=training.status,
            started_ms=next(entered, None),
            ended_ms=training.ended_ms,
            value=next(values, None) if training.status.terminal else None,
            failure_reason=training.failure_reason,
        )


def definitions_of(job: TuningJob) -> tuple[Definition, ...]:
    """Return the definitions of a tuning job, in the order of the request."""
    shared, objective = job.config.get("ParameterRanges", {}), job.config.get("HyperParameterTuningJobObjective")
    return tuple(
        Definition(
            number=number,
            ranges=ranges_of(given.get("HyperParameterRanges") or shared),
            metric=(given.get("TuningObjective") or objective or {})["MetricName"],
            given=given,
        )
        for number, given in enumerate(job.definitions)
    )


def trial_name(job: TuningJob, number: int) -> str:
    """Return the TrainingJobName of a trial: the same whenever it is asked for, and never that of another job's trial.

    Args:
        number: Number of the trial, from 0.
    """
    mark = hashlib.sha256(f"{job.job_id} {number}".encode()).hexdigest()[:8]
    return f"{job.name}-{number + 1:03}-{mark}"
