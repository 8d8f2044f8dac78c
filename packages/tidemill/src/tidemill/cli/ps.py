"""`tidemill ps`: list jobs, executions of pipelines, and endpoints."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.kinds import ENDPOINT, EXECUTION, JOBS, PROCESSING, TRAINING, TRANSFORM, TUNING, NamedKind
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption, point_in_time
from tidemill.cli.text import age, execution_name, print_json, print_table

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)


class _KindName(StrEnum):
    TRAINING = "training"
    PROCESSING = "processing"
    TRANSFORM = "transform"
    TUNING = "tuning"
    EXECUTION = "execution"
    ENDPOINT = "endpoint"


_ESTIMATED = 20
"""Maximum number of running jobs whose remaining time is estimated: each takes a few requests."""

_KINDS = dict(zip(_KindName, (*JOBS, EXECUTION, ENDPOINT), strict=True))
_HEADS = {
    TRAINING: ("JOB", "STATUS", "PHASE", "AGE", "TOOK", "LEFT"),
    PROCESSING: ("PROCESSING JOB", "STATUS", "AGE", "TOOK"),
    TRANSFORM: ("TRANSFORM JOB", "STATUS", "AGE", "TOOK"),
    TUNING: ("TUNING JOB", "STATUS", "TRAININGS", "AGE", "TOOK"),
    EXECUTION: ("EXECUTION", "STATUS", "AGE"),
    ENDPOINT: ("ENDPOINT", "STATUS", "AGE"),
}


@dataclass(frozen=True, slots=True)
class _Selection:
    """What to list.

    Attributes:
        name: Text that the names contain.
        status: The only status. None: those that have not ended, unless ``ended``.
        since: Earliest time of the creation.
        ended: Whether to list ended jobs, too.
        limit: Maximum number of jobs of a kind, if ended ones are listed.
    """

    name: str | None
    status: str | None
    since: datetime | None
    ended: bool
    limit: int

    def of(self, service: "NamedService", kind: NamedKind) -> list[dict[str, Any]]:
        """Return the summaries of one kind, newest first.

        Args:
            kind: The kind.
        """
        if kind is EXECUTION:
            listed = service.executions() if self.ended else iter(service.live_executions())
            return list(islice((each for each in listed if self._has(each)), self.limit))
        filters: dict[str, Any] = {"NameContains": self.name} if self.name else {}
        if self.since is not None:
            filters["CreationTimeAfter"] = self.since
        if self.status is not None:
            filters["StatusEquals"] = self.status
        if self.ended:
            return list(islice(service.summaries(kind, **filters), self.limit))
        return list(service.summaries(kind, **filters)) if kind is ENDPOINT else service.live(kind, **filters)

    def _has(self, execution: dict[str, Any]) -> bool:
        return (
            (self.name or "") in execution_name(execution)
            and self.status in (None, execution["PipelineExecutionStatus"])
            and (self.since is None or execution["StartTime"] >= self.since)
        )


@app.command()
def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Include ended jobs.")] = False,
    kinds: Annotated[list[_KindName] | None, typer.Option("--kind", help="Only this kind; repeatable.")] = None,
    status: Annotated[str | None, typer.Option(help="Only this status, e.g. Failed.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="Only names that contain this.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="2h|TIME", help="Only what was created since then, ended jobs included.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC,...",
            help="Compare training jobs, ended ones included: last values of metrics, hyperparameters that differ.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs of a kind, newest first.")] = 100,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """List running jobs, executions of pipelines, and endpoints. The options choose others, and fewer."""
    from tidemill.cli.service import require_service

    begin = point_in_time(since, option="--since") if since else None
    ended = all_jobs or status is not None or begin is not None or compare is not None
    wanted = _Selection(name, status, begin, ended, limit)
    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    if compare is not None:
        from tidemill.cli.comparison import Comparison

        Comparison.of(service, wanted.of(service, TRAINING), metrics=compare).show(json=json)
        return
    listed = {_KINDS[each]: wanted.of(service, _KINDS[each]) for each in kinds or _KindName}
    if json:
        print_json({kind.table: entries for kind, entries in listed.items()})
        return
    left = _left(service, listed.get(TRAINING, []))
    shown = {
        kind: [_row(kind, each, left=left.get(kind.name(each), "") if kind is TRAINING else "") for each in entries]
        for kind, entries in listed.items()
        if entries
    }
    if not shown:
        typer.echo("no jobs, no endpoints" if ended else "nothing runs; `tidemill ps --all` lists ended jobs")
    for index, (kind, rows) in enumerate(shown.items()):
        if index:
            typer.echo()
        # Without any estimate the last column of jobs is left out.
        width = len(_HEADS[kind]) - (kind is TRAINING and not left)
        print_table(_HEADS[kind][:width], [row[:width] for row in rows])


def _left(service: "NamedService", jobs: list[dict[str, Any]]) -> dict[str, str]:
    """Return by job how long it still runs, if earlier runs tell; nothing if too many jobs run to ask about each."""
    running = [TRAINING.name(job) for job in jobs if TRAINING.status(job) == "InProgress"]
    if not 0 < len(running) <= _ESTIMATED:
        return {}
    from tidemill.cli.estimate import Estimates

    estimates = Estimates(service.sdk)
    described = [service.describe(TRAINING, name) for name in running]
    found = {TRAINING.name(job): (job, estimates.of(job)) for job in described}
    return {name: left for name, (job, each) in found.items() if each and (left := each.left(job))}


def _row(kind: NamedKind, summary: dict[str, Any], *, left: str = "") -> tuple[str, ...]:
    if kind is EXECUTION:
        return execution_name(summary), summary["PipelineExecutionStatus"], age(summary["StartTime"])
    name, status, created = kind.name(summary), kind.status(summary), summary["CreationTime"]
    if kind is ENDPOINT:
        return name, status, age(created)
    ended = kind.ended(summary)
    took = age(created, until=ended) if ended else ""
    if kind is TRAINING:
        return name, status, summary.get("SecondaryStatus", ""), age(created), took, left
    if kind is TUNING:
        return name, status, _trainings(summary), age(created), took
    return name, status, age(created), took


def _trainings(job: dict[str, Any]) -> str:
    counts, most = job["TrainingJobStatusCounters"], job.get("ResourceLimits", {}).get("MaxNumberOfTrainingJobs")
    ended = sum(counts.values()) - counts.get("InProgress", 0)
    return f"{ended} of {most}" if most else str(ended)
