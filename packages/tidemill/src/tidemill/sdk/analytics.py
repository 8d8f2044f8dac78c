"""Metrics of a training job, and the runs of an experiment, as tables of pandas."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemill.sdk.arguments import present
from tidemill.sdk.session import Session

__all__ = ["ExperimentAnalytics", "ResultTable", "TrainingJobAnalytics"]

_NAMESPACE = "/aws/sagemaker/TrainingJobs"
_PERIOD_S = 60
_STATISTICS = ("Min", "Max", "Avg", "StdDev", "Last", "Count")


class ResultTable(ABC):
    """Results that are asked for with each call: nothing is kept."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Name of what the results belong to."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table.

        Returns:
            Values by column.
        """

    def dataframe(self, force_refresh: bool = False) -> Any:
        """Return the results as a pandas DataFrame.

        Args:
            force_refresh: Ignored: nothing is kept.

        Returns:
            The table.

        Raises:
            ImportError: pandas is not installed.
        """
        del force_refresh
        import pandas

        return pandas.DataFrame(self.rows())

    def export_csv(self, filename: str | Path) -> None:
        """Write the results to a file.

        Args:
            filename: Path of the file.

        Raises:
            ImportError: pandas is not installed.
        """
        self.dataframe().to_csv(filename)

    def clear_cache(self) -> None:  # noqa: B027 - of AWS's SDK, whose results are kept
        """Do nothing: nothing is kept."""


class TrainingJobAnalytics(ResultTable):
    """The metrics that a training job has written to its log.

    Args:
        training_job_name: Name of the job.
        metric_names: Names of metrics. Default: all of its ``metric_definitions``.
        sagemaker_session: A `Session`. Default: a new one.
        start_time: Earliest time. Default: the start of the training.
        end_time: Latest time. Default: the end of the training, or now.
        period: Seconds that one row covers. Default: 60.
    """

    def __init__(
        self,
        training_job_name: str,
        metric_names: Sequence[str] | None = None,
        sagemaker_session: Any = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        period: int | None = None,
    ) -> None:
        self._session = Session.adopt(sagemaker_session)
        self._job = training_job_name
        self._metrics = metric_names
        self._span = (start_time, end_time)
        self._period_s = period or _PERIOD_S

    @property
    def name(self) -> str:
        """Name of the job."""
        return self._job

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each metric and period: ``timestamp`` (seconds since its first), ``metric_name``, ``value``.

        Returns:
            Values by column.
        """
        described = self._session.describe_training_job(self._job)
        defined = described["AlgorithmSpecification"].get("MetricDefinitions", ())
        begin = self._span[0] or described.get("TrainingStartTime") or described["CreationTime"]
        end = self._span[1] or described.get("TrainingEndTime") or datetime.now(UTC)
        cloudwatch = self._session.boto_session.client("cloudwatch", region_name=self._session.boto_region_name)
        rows = []
        for metric in self._metrics or [each["Name"] for each in defined]:
            answer = cloudwatch.get_metric_statistics(
                Namespace=_NAMESPACE,
                MetricName=metric,
                Dimensions=[{"Name": "TrainingJobName", "Value": self._job}],
                StartTime=begin.replace(second=0, microsecond=0),
                EndTime=end + timedelta(minutes=1),
                Period=self._period_s,
                Statistics=["Average"],
            )
            points = sorted((each["Timestamp"], each["Average"]) for each in answer["Datapoints"])
            rows += [
                {"timestamp": (moment - points[0][0]).total_seconds(), "metric_name": metric, "value": value}
                for moment, value in points
            ]
        return rows


class ExperimentAnalytics(ResultTable):
    """The trial components of an experiment, e.g. its runs and the jobs within them.

    Args:
        experiment_name: Name of the experiment.
        search_expression: Further conditions, in the form of the operation Search.
        sort_by: Property that orders the rows.
        sort_order: ``Ascending`` or ``Descending``.
        metric_names: Metrics that are shown. Default: all.
        parameter_names: Parameters that are shown. Default: all.
        sagemaker_session: A `Session`. Default: a new one.
        input_artifact_names: Input files that are shown. Default: all.
        output_artifact_names: Output files that are shown. Default: all.

    Raises:
        ValueError: There is neither an experiment nor a condition.
    """

    def __init__(
        self,
        experiment_name: str | None = None,
        search_expression: Mapping[str, Any] | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        metric_names: Sequence[str] | None = None,
        parameter_names: Sequence[str] | None = None,
        sagemaker_session: Any = None,
        input_artifact_names: Sequence[str] | None = None,
        output_artifact_names: Sequence[str] | None = None,
    ) -> None:
        if not experiment_name and not search_expression:
            raise ValueError("ExperimentAnalytics needs an experiment_name or a search_expression")
        self._session = Session.adopt(sagemaker_session)
        self._experiment = experiment_name
        self._expression = dict(search_expression or {})
        self._order = present(SortBy=sort_by, SortOrder=sort_order)
        self._metrics = metric_names
        self._parameters = parameter_names
        self._artifacts = {"InputArtifacts": input_artifact_names, "OutputArtifacts": output_artifact_names}

    @property
    def name(self) -> str | None:
        """Name of the experiment."""
        return self._experiment

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each trial component: its name, source, parameters, metrics, files and parents.

        Returns:
            Values by column.
        """
        expression = dict(self._expression)
        if self._experiment:
            own = {"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": self._experiment}
            expression["Filters"] = [*expression.get("Filters", ()), own]
        pages = self._session.sagemaker_client.get_paginator("search").paginate(
            Resource="ExperimentTrialComponent", SearchExpression=expression, **self._order
        )
        return [self._row(each["TrialComponent"]) for page in pages for each in page["Results"]]

    def _row(self, component: Mapping[str, Any]) -> dict[str, Any]:
        row = {name: component.get(name, "") for name in ("TrialComponentName", "DisplayName")}
        if "Source" in component:
            row["SourceArn"] = component["Source"]["SourceArn"]
        for name, value in _chosen(component.get("Parameters"), self._parameters):
            row[name] = value.get("NumberValue", value.get("StringValue"))
        metrics = {each["MetricName"]: each for each in component.get("Metrics", ())}
        for name, values in _chosen(metrics, self._metrics):
            row |= {f"{name} - {kind}": values[kind] for kind in _STATISTICS if values.get(kind) is not None}
        for member, names in self._artifacts.items():
            for name, value in _chosen(component.get(member), names):
                row |= {f"{name} - {kind}": value.get(kind) for kind in ("MediaType", "Value")}
        parents = component.get("Parents", ())
        row["Trials"] = [each["TrialName"] for each in parents]
        row["Experiments"] = [each["ExperimentName"] for each in parents]
        return row


def _chosen(values: Mapping[str, Any] | None, names: Sequence[str] | None) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in sorted((values or {}).items()) if not names or name in names]
