"""Hyperparameter tuning jobs on the wire."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from tidemill.control.resources import TRAINING_JOB
from tidemill.control.training.jobs import Training
from tidemill.control.tuning.completion import not_improving, trials_allowed
from tidemill.control.tuning.definition import Definition, definitions_of
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.core.tuning import TuningJob, TuningTrial, best_trial
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import page_of_rows, page_reply, query_of, row_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

_ECHOED = ("WarmStartConfig", "Autotune")
_KINDS = ("IntegerParameterRanges", "ContinuousParameterRanges", "CategoricalParameterRanges")
_PAGE = 100

_SORT_KEYS: Mapping[str, Callable[[TuningTrial], Any]] = {
    "Name": attrgetter("name"),
    "CreationTime": attrgetter("created_ms"),
    "Status": attrgetter("status"),
    "FinalObjectiveMetricValue": attrgetter("value"),
}


class TuningHandlers(Operations):
    """Create, describe, list, stop and delete tuning jobs, and list their trainings."""

    def __init__(self, jobs: TuningJobs, training: Training) -> None:
        self._jobs = jobs
        self._training = training

    async def create_hyper_parameter_tuning_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"HyperParameterTuningJobArn": (await self._jobs.create(request, tags=tags)).arn}

    async def describe_hyper_parameter_tuning_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return tuning_description(self._jobs.record(request["HyperParameterTuningJobName"]))

    async def list_hyper_parameter_tuning_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        jobs, token = await self._jobs.list(query_of(request))
        return page_reply("HyperParameterTuningJobSummaries", [tuning_summary(job) for job in jobs], token)

    async def list_training_jobs_for_hyper_parameter_tuning_job(
        self, request: dict[str, Any], context: Context
    ) -> Mapping[str, Any]:
        job = self._jobs.get(request["HyperParameterTuningJobName"])
        members = ("HyperParameterTuningJobName", "SortBy", "SortOrder", "StatusEquals")
        listing, definitions = ":".join(str(request.get(each, "")) for each in members), definitions_of(job)
        page, token = page_of_rows(_sorted(self._current(job), request), request, listing=listing, size=_PAGE)
        return {"TrainingJobSummaries": [_trial(job, trial, definitions) for trial in page], **token}

    async def stop_hyper_parameter_tuning_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.stop(request["HyperParameterTuningJobName"])
        return {}

    async def delete_hyper_parameter_tuning_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.delete(request["HyperParameterTuningJobName"])
        return {}

    def _current(self, job: TuningJob) -> Sequence[TuningTrial]:
        """Return the trials in the states of their trainings, of which the driver stores only the last."""
        definitions = definitions_of(job)
        trials: list[TuningTrial] = []
        for trial in job.trials:
            training = None if trial.status.terminal else self._training.find(trial.name)
            trials.append(definitions[trial.definition].observed(trial, training) if training else trial)
        return trials


def tuning_description(record: Record) -> dict[str, Any]:
    """Return the description of a tuning job.

    Args:
        record: The stored job.
    """
    job = TuningJob.from_document(record.document)
    definitions = definitions_of(job)
    given = [
        # SDKs read ResourceConfig, and remove the name of the objective, without asking whether they are there.
        {**each.given, "StaticHyperParameters": each.static, "ResourceConfig": each.resources}
        for each in definitions
    ]
    best = best_trial(job.trials, maximizes=job.maximizes)
    overall = best_trial([*job.parents, *job.trials], maximizes=job.maximizes)
    identical = job.request.get("WarmStartConfig", {}).get("WarmStartType") == "IdenticalDataAndAlgorithm"
    runtime_ms = (job.ended_ms or record.modified_ms) - job.created_ms
    return {
        **row_of("HyperParameterTuningJob", record),
        **_counters(job.to_summary()),
        **{member: job.request[member] for member in _ECHOED if member in job.request},
        "HyperParameterTuningJobConfig": _config(job, trials_allowed(job, definitions)),
        **({"TrainingJobDefinitions": given} if "TrainingJobDefinitions" in job.request else {}),
        **({"TrainingJobDefinition": given[0]} if "TrainingJobDefinition" in job.request else {}),
        **({"BestTrainingJob": _trial(job, best, definitions)} if best else {}),
        **({"OverallBestTrainingJob": _trial(job, overall, definitions)} if overall and identical else {}),
        **({"FailureReason": job.failure_reason} if job.failure_reason else {}),
        "TuningJobCompletionDetails": {
            "NumberOfTrainingJobsObjectiveNotImproving": not_improving(job),
            **({"ConvergenceDetectedTime": when(job.converged_ms)} if job.converged_ms else {}),
        },
        "ConsumedResources": {"RuntimeInSeconds": max(0, runtime_ms // 1000)},
    }


def _trial(job: TuningJob, trial: TuningTrial, definitions: Sequence[Definition]) -> dict[str, Any]:
    own = any(each.name == trial.name for each in job.trials)
    definition = definitions[trial.definition]
    shown: dict[str, Any] = {
        "TrainingJobName": trial.name,
        "TrainingJobArn": f"{job.arn.rpartition(':')[0]}:{TRAINING_JOB}/{trial.name}",
        "TuningJobName": job.name if own else trial.name.rsplit("-", 2)[0],
        "CreationTime": when(trial.created_ms),
        "TrainingJobStatus": str(trial.status),
        "TunedHyperParameters": dict(trial.hyperparameters),
        "ObjectiveStatus": str(trial.objective_status),
    }
    if "DefinitionName" in definition.given:
        shown["TrainingJobDefinitionName"] = definition.given["DefinitionName"]
    if trial.started_ms is not None:
        shown["TrainingStartTime"] = when(trial.started_ms)
    if trial.ended_ms is not None:
        shown["TrainingEndTime"] = when(trial.ended_ms)
    if trial.failure_reason:
        shown["FailureReason"] = trial.failure_reason
    if trial.value is not None:
        objective = {"Type": "Maximize" if job.maximizes else "Minimize", "MetricName": definition.metric}
        shown["FinalHyperParameterTuningJobObjectiveMetric"] = {**objective, "Value": trial.value}
    return shown


def _config(job: TuningJob, allowed: int) -> dict[str, Any]:
    """Return the configuration with SageMaker's defaults, which SDKs read without asking whether they are there."""
    config = dict(job.config)
    config["ResourceLimits"] = {"MaxNumberOfTrainingJobs": allowed, **config["ResourceLimits"]}
    config.setdefault("TrainingJobEarlyStoppingType", "Off")
    if "ParameterRanges" in config:
        config["ParameterRanges"] = {**{kind: list[Any]() for kind in _KINDS}, **config["ParameterRanges"]}
    return config


def tuning_summary(job: Summary) -> dict[str, Any]:
    """Return what lists show of a tuning job.

    Args:
        job: The summary.
    """
    summary = job.summary
    shown = {
        **row_of("HyperParameterTuningJob", job),
        **_counters({} if job.is_damaged else summary),
        "Strategy": "" if job.is_damaged else summary["strategy"],
    }
    return shown if job.is_damaged else {**shown, "ResourceLimits": summary["limits"]}


def _counters(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of trainings, which a damaged record no longer knows, and the end."""
    ended_ms = summary.get("ended_ms")
    return {
        "TrainingJobStatusCounters": summary.get("trainings", {}),
        "ObjectiveStatusCounters": summary.get("objectives", {}),
        **({"HyperParameterTuningEndTime": when(ended_ms)} if ended_ms else {}),
    }


def _sorted(trials: Sequence[TuningTrial], request: Mapping[str, Any]) -> list[TuningTrial]:
    """Return the trials to list: by name, the first one first, unless the request says otherwise."""
    by, wanted = request.get("SortBy", "Name"), request.get("StatusEquals")
    found = [trial for trial in trials if wanted in (None, trial.status)]
    if by == "FinalObjectiveMetricValue":
        found = [trial for trial in found if trial.value is not None]
    return sorted(found, key=_SORT_KEYS[by], reverse=request.get("SortOrder") == "Descending")
