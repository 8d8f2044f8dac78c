"""Hyperparameter tuning jobs: create, look up, list, stop, delete. `tidemill.control.tuning.driver` runs them."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import refusal
from tidemill.control.jobs import TUNING, AcceptedJobs
from tidemill.control.resources import TUNING_JOB
from tidemill.control.tags import check_tags
from tidemill.control.training.jobs import Training
from tidemill.control.tuning.admission import check_search, check_tuning_request
from tidemill.control.tuning.definition import definitions_of, trial_name
from tidemill.control.tuning.search import texts_at
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.training import JobStatus
from tidemill.core.tuning import TuningJob, TuningTrial
from tidemill.store.records.base import RecordStore, Transaction


class TuningJobs(AcceptedJobs[TuningJob]):
    """The hyperparameter tuning jobs of the account.

    Args:
        training: The training jobs, by whose rules the definitions are checked.
        wake: Called with the name of a new or changed job.
    """

    KIND = TUNING

    def __init__(
        self, records: RecordStore, training: Training, *, region: str, clock: Clock, wake: Callable[[str], None]
    ) -> None:
        super().__init__(records, region=region, clock=clock, wake=wake)
        self._training = training

    async def create(self, request: Mapping[str, Any], *, tags: Sequence[Mapping[str, str]] = ()) -> TuningJob:
        """Accept a job. After this returns, the job and its tags survive kill -9.

        Args:
            request: The members of CreateHyperParameterTuningJob without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each. The trainings get the tags, too.

        Raises:
            ValidationException: The request, or that of its trainings, cannot be honored.
            ResourceInUse: The name is taken.
            ResourceLimitExceeded: A training could never start on this machine.
        """
        checked_tags = check_tags(tags)
        check_tuning_request(request)
        request = self._with_metrics(request)
        name = request["HyperParameterTuningJobName"]
        new = TuningJob(
            name=name,
            arn=self._arn(name),
            job_id=secrets.token_hex(16),
            request=dict(request),
            created_ms=self._clock.now_ms(),
        )
        definitions = definitions_of(new)
        for each in definitions:
            tuned = texts_at(each.ranges, [0.0] * len(each.ranges))
            await self._training.check(each.training_request(trial_name(new, 0), tuned))
        check_search(new.config, definitions)
        job = await self.insert(
            lambda transaction: replace(new, parents=self._parents(request, transaction)), tags=checked_tags
        )
        faults.point("control.tuning.created")
        self._wake(job.name)
        return job

    def _stopping(self, job: TuningJob, at_ms: int) -> TuningJob:
        if job.status is not JobStatus.IN_PROGRESS or job.decided:
            return job
        return replace(job.decide(JobStatus.STOPPED), status=JobStatus.STOPPING)

    def _with_metrics(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request with the MetricDefinitions of its first parent, if its definition has none.

        The tuners that AWS's SDK makes for a warm start have none (``identical_dataset_and_algorithm_tuner``).
        """
        own, parents = request.get("TrainingJobDefinition"), _parents_named(request)
        if own is None or own["AlgorithmSpecification"].get("MetricDefinitions") or not parents:
            return request
        record = self._records.get(TUNING_JOB, parents[0] or "")
        given = TuningJob.from_document(record.document).request.get("TrainingJobDefinition") if record else None
        metrics = (given or {}).get("AlgorithmSpecification", {}).get("MetricDefinitions", [])
        algorithm = {**own["AlgorithmSpecification"], "MetricDefinitions": metrics}
        return {**request, "TrainingJobDefinition": {**own, "AlgorithmSpecification": algorithm}}

    def _parents(self, request: Mapping[str, Any], transaction: Transaction) -> tuple[TuningTrial, ...]:
        """Return the trials of the parents of a warm start that have an objective."""
        trials: list[TuningTrial] = []
        for number, name in enumerate(_parents_named(request), start=1):
            at = f"warmStartConfig.parentHyperParameterTuningJobs.{number}.member.hyperParameterTuningJobName"
            record = None if name is None else transaction.get(TUNING_JOB, name)
            if record is None:
                raise refusal(at, name, "there is no such tuning job; give one that has ended")
            job = TuningJob.from_document(record.document)
            if not job.status.terminal:
                raise refusal(at, name, f"it is in status {job.status}; give a tuning job that has ended")
            _check_parent(at, request, job)
            known = {} if _is_identical(request) else job.definitions[0].get("StaticHyperParameters", {})
            trials += [
                replace(trial, hyperparameters={**known, **trial.hyperparameters})
                for trial in job.trials
                if trial.objective is not None
            ]
        return tuple(trials)


def _parents_named(request: Mapping[str, Any]) -> list[str | None]:
    given = request.get("WarmStartConfig", {}).get("ParentHyperParameterTuningJobs", ())
    return [each.get("HyperParameterTuningJobName") for each in given]


def _check_parent(at: str, request: Mapping[str, Any], parent: TuningJob) -> None:
    """Refuse a parent whose results say nothing about the new job's."""
    own, given = request.get("TrainingJobDefinition"), parent.request.get("TrainingJobDefinition")
    if own is None or given is None:
        raise refusal(at, parent.name, "a warm start needs TrainingJobDefinition in both jobs, not several definitions")
    objective = request["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"]
    if parent.config["HyperParameterTuningJobObjective"] != objective:
        raise refusal(at, parent.name, f"its objective differs from this job's, which is {objective}")
    if not _is_identical(request):
        return
    image = own["AlgorithmSpecification"].get("TrainingImage")
    if given["AlgorithmSpecification"].get("TrainingImage") != image:
        raise refusal(at, parent.name, f"its TrainingImage is not {image}; use WarmStartType TransferLearning")
    if _sources(given) != _sources(own):
        raise refusal(at, parent.name, "its InputDataConfig differs; use WarmStartType TransferLearning")


def _is_identical(request: Mapping[str, Any]) -> bool:
    return request["WarmStartConfig"]["WarmStartType"] == "IdenticalDataAndAlgorithm"


def _sources(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {channel["ChannelName"]: channel["DataSource"] for channel in definition.get("InputDataConfig", ())}
