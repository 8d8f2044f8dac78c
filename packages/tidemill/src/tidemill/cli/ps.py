"""`tidemill ps`: list jobs and endpoints."""

from itertools import islice
from typing import Annotated, Any

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, print_json, print_table

__all__ = ["app"]

app = typer.Typer()


@app.command()
def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Include ended jobs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="With --all: maximum number of jobs, newest first.")] = 100,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """List running jobs and endpoints."""
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    jobs = list(islice(service.jobs(), limit)) if all_jobs else service.live_jobs()
    transforms = list(islice(service.transform_jobs(), limit)) if all_jobs else service.live_transform_jobs()
    tunings = list(islice(service.tuning_jobs(), limit)) if all_jobs else service.live_tuning_jobs()
    endpoints = service.endpoints()
    if json:
        print_json({"jobs": jobs, "transform_jobs": transforms, "tuning_jobs": tunings, "endpoints": endpoints})
        return
    if not jobs and not transforms and not tunings and not endpoints:
        typer.echo("no jobs, no endpoints" if all_jobs else "nothing runs; `tidemill ps --all` lists ended jobs")
    if jobs:
        print_table(("JOB", "STATUS", "PHASE", "AGE", "TOOK"), [_job_row(job) for job in jobs])
    if transforms:
        if jobs:
            typer.echo()
        print_table(("TRANSFORM JOB", "STATUS", "AGE", "TOOK"), [_transform_row(job) for job in transforms])
    if tunings:
        if jobs or transforms:
            typer.echo()
        print_table(("TUNING JOB", "STATUS", "TRAININGS", "AGE", "TOOK"), [_tuning_row(job) for job in tunings])
    if (jobs or transforms or tunings) and endpoints:
        typer.echo()
    if endpoints:
        print_table(("ENDPOINT", "STATUS", "AGE"), [_endpoint_row(endpoint) for endpoint in endpoints])


def _job_row(job: dict[str, Any]) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get("TrainingEndTime")
    took = age(created, until=ended) if ended else ""
    return job["TrainingJobName"], job["TrainingJobStatus"], job.get("SecondaryStatus", ""), age(created), took


def _transform_row(job: dict[str, Any]) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get("TransformEndTime")
    took = age(created, until=ended) if ended else ""
    return job["TransformJobName"], job["TransformJobStatus"], age(created), took


def _tuning_row(job: dict[str, Any]) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get("HyperParameterTuningEndTime")
    counts, most = job["TrainingJobStatusCounters"], job.get("ResourceLimits", {}).get("MaxNumberOfTrainingJobs")
    ended_trainings = sum(counts.values()) - counts.get("InProgress", 0)
    trainings = f"{ended_trainings} of {most}" if most else str(ended_trainings)
    took = age(created, until=ended) if ended else ""
    return job["HyperParameterTuningJobName"], job["HyperParameterTuningJobStatus"], trainings, age(created), took


def _endpoint_row(endpoint: dict[str, Any]) -> tuple[str, ...]:
    return endpoint["EndpointName"], endpoint["EndpointStatus"], age(endpoint["CreationTime"])
