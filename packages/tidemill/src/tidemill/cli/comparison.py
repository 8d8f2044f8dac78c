"""Training jobs side by side: the last values of metrics, and the hyperparameters in which the jobs differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import LIVE, TRAINING
from tidemill.cli.text import print_json, print_table
from tidemill.core import hyperparameters as hps

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService


@dataclass(frozen=True, slots=True)
class Comparison:
    """Descriptions of jobs, and what to compare.

    Attributes:
        metrics: Names of metrics, in the order of the columns.
        jobs: Answers of DescribeTrainingJob, newest first.
        values: By job, the last value of each metric.
    """

    metrics: tuple[str, ...]
    jobs: tuple[dict[str, Any], ...]
    values: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(
        cls, service: "NamedService", summaries: Sequence[dict[str, Any]], *, metrics: Sequence[str]
    ) -> "Comparison":
        """Describe the jobs of a list.

        Args:
            summaries: The jobs.
            metrics: Names of metrics; one text may have several, with commas.

        Raises:
            CommandFailed: No job has one of the metrics.
        """
        names = tuple(dict.fromkeys(name for text in metrics for name in text.split(",") if name))
        jobs = tuple(service.describe(TRAINING, TRAINING.name(each)) for each in summaries)
        values = {TRAINING.name(job): _metrics(service, job) for job in jobs}
        known = {name for each in values.values() for name in each}
        unknown = [name for name in names if name not in known]
        if unknown and jobs:
            there = ", ".join(sorted(known)) or "none: metric_definitions or `tidemill train --metric` name them"
            raise CommandFailed(f"no job of the list has the metric {', '.join(unknown)}; there are {there}")
        return cls(names, jobs, values)

    def show(self, *, json: bool) -> None:
        """Print the comparison.

        Args:
            json: As JSON, with all hyperparameters of the scripts.
        """
        if json:
            print_json({"jobs": [self._entry(job) for job in self.jobs]})
            return
        if not self.jobs:
            typer.echo("no training jobs")
            return
        columns = self._differing()
        rows = [
            (
                TRAINING.name(job),
                TRAINING.status(job),
                *(_figure(self.values[TRAINING.name(job)].get(name)) for name in self.metrics),
                *(own_hyperparameters(job).get(name, "") for name in columns),
            )
            for job in self.jobs
        ]
        print_table(("JOB", "STATUS", *(name.upper() for name in self.metrics), *columns), rows)

    def _entry(self, job: dict[str, Any]) -> dict[str, Any]:
        values = self.values[TRAINING.name(job)]
        return {
            "name": TRAINING.name(job),
            "status": TRAINING.status(job),
            "metrics": {name: values.get(name) for name in self.metrics},
            "hyperparameters": own_hyperparameters(job),
        }

    def _differing(self) -> list[str]:
        """Return the hyperparameters that do not have the same value in all jobs."""
        values = [own_hyperparameters(job) for job in self.jobs]
        names = sorted({name for each in values for name in each})
        return [name for name in names if len({each.get(name) for each in values}) > 1]


def _metrics(service: "NamedService", job: Mapping[str, Any]) -> dict[str, float]:
    """Return the last value of each metric, also of a job that runs."""
    if TRAINING.status(job) not in LIVE:
        return {each["MetricName"]: each["Value"] for each in job.get("FinalMetricDataList", ())}
    from tidemill.sdk.job_card import metric_points

    return {name: points[-1][1] for name, points in metric_points(service.sdk, job).items() if points}


def own_hyperparameters(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the script's own hyperparameters as text, without the JSON quotes in which the SDK sends them.

    Args:
        job: Description of a training job.
    """
    texts = job.get("HyperParameters", {})
    values = hps.decode(texts)
    return {
        name: decoded if isinstance(decoded := values[name], str) else text
        for name, text in texts.items()
        if not hps.is_reserved(name) and name != "model_dir"
    }


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
