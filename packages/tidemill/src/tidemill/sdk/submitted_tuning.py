"""A submitted tuning job, as `HyperparameterTuner.latest_tuning_job` gives it, and its results as a table."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tidemill.sdk.analytics import ResultTable
from tidemill.sdk.polled_job import PolledJob
from tidemill.sdk.session import Session

_SEVERAL = "TrainingJobDefinitions"
_KINDS = ("IntegerParameterRanges", "ContinuousParameterRanges", "CategoricalParameterRanges")


class SubmittedTuning(PolledJob):
    """One hyperparameter tuning job of the service. Its trainings have the logs."""

    _stem: ClassVar[str] = "HyperParameterTuningJob"
    _title: ClassVar[str] = "tuning job"
    _attach: ClassVar[str] = "HyperparameterTuner.attach"

    def trainings(self) -> list[dict[str, Any]]:
        """Return the summaries of its training jobs, the first one first."""
        pages = self.session.sagemaker_client.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
        found = pages.paginate(HyperParameterTuningJobName=self.name)
        return [each for page in found for each in page["TrainingJobSummaries"]]

    def _progress(self, description: Mapping[str, Any]) -> str:
        """Return the status, how many trainings have ended, and the best value."""
        counts = description["TrainingJobStatusCounters"]
        ended, running = sum(counts.values()) - counts["InProgress"], counts["InProgress"]
        text = f"{self._status(description)}, {ended} trainings ended, {running} in progress"
        objective = description.get("BestTrainingJob", {}).get("FinalHyperParameterTuningJobObjectiveMetric")
        return f"{text}, best {objective['MetricName']} {objective['Value']:g}" if objective else text


class HyperparameterTuningJobAnalytics(ResultTable):
    """The results of a tuning job.

    Args:
        hyperparameter_tuning_job_name: Name of the tuning job.
        sagemaker_session: A `Session` of this SDK or of AWS's SDK. Default: a new one for the service.
    """

    def __init__(self, hyperparameter_tuning_job_name: str, sagemaker_session: Any = None) -> None:
        self._job = SubmittedTuning(Session.adopt(sagemaker_session), hyperparameter_tuning_job_name)

    @property
    def name(self) -> str:
        """Name of the tuning job."""
        return self._job.name

    def description(self, force_refresh: bool = False) -> dict[str, Any]:
        """Return what DescribeHyperParameterTuningJob answers now.

        Args:
            force_refresh: Ignored: nothing is kept.

        Returns:
            The answer as boto3 returns it.
        """
        del force_refresh
        return self._job.describe()

    def training_job_summaries(self, force_refresh: bool = False) -> list[dict[str, Any]]:
        """Return the summaries of the training jobs.

        Args:
            force_refresh: Ignored: nothing is kept.

        Returns:
            The summaries as boto3 returns them, the first training first.
        """
        del force_refresh
        return self._job.trainings()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each training: its hyperparameters, status, objective and times.

        Returns:
            Values by column.
        """
        return [_row(each) for each in self.training_job_summaries()]

    @property
    def tuning_ranges(self) -> dict[str, Any]:
        """The ranges that are searched, in the API's form by the hyperparameter's name.

        With several definitions, these dictionaries by the name of the definition.
        """
        found = self.description()
        if "TrainingJobDefinition" in found:
            return _ranges(found["HyperParameterTuningJobConfig"]["ParameterRanges"])
        return {each["DefinitionName"]: _ranges(each["HyperParameterRanges"]) for each in found[_SEVERAL]}


def _ranges(given: dict[str, Any]) -> dict[str, Any]:
    return {each["Name"]: each for kind in _KINDS for each in given.get(kind, ())}


def _row(training: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: _number(text) for name, text in training["TunedHyperParameters"].items()}
    begin, end = training.get("TrainingStartTime"), training.get("TrainingEndTime")
    objective = training.get("FinalHyperParameterTuningJobObjectiveMetric", {})
    return row | {
        "TrainingJobName": training["TrainingJobName"],
        "TrainingJobStatus": training["TrainingJobStatus"],
        "FinalObjectiveValue": objective.get("Value"),
        "TrainingStartTime": begin,
        "TrainingEndTime": end,
        "TrainingElapsedTimeSeconds": (end - begin).total_seconds() if begin and end else None,
    }


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
