"""`tidemill ps`: list jobs, executions of pipelines, and endpoints."""

from itertools import islice
from typing import Annotated, Any

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, execution_name, print_json, print_table

app = typer.Typer()


@app.command()
def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Include ended jobs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="With --all: maximum number of jobs, newest first.")] = 100,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """List running jobs, executions of pipelines, and endpoints."""
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    jobs = list(islice(service.jobs(), limit)) if all_jobs else service.live_jobs()
    processing = list(islice(service.processing_jobs(), limit)) if all_jobs else service.live_processing_jobs()
    transforms = list(islice(service.transform_jobs(), limit)) if all_jobs else service.live_transform_jobs()
    tunings = list(islice(service.tuning_jobs(), limit)) if all_jobs else service.live_tuning_jobs()
    executions = list(islice(service.executions(), limit)) if all_jobs else service.live_executions()
    endpoints = service.endpoints()
    if json:
        kinds = {"jobs": jobs, "processing_jobs": processing, "transform_jobs": transforms, "tuning_jobs": tunings}
        print_json({**kinds, "executions": executions, "endpoints": endpoints})
        return
    tables = (
        (("JOB", "STATUS", "PHASE", "AGE", "TOOK"), [_job_row(job) for job in jobs]),
        (("PROCESSING JOB", "STATUS", "AGE", "TOOK"), [_row(job, "Processing") for job in processing]),
        (("TRANSFORM JOB", "STATUS", "AGE", "TOOK"), [_row(job, "Transform") for job in transforms]),
        (("TUNING JOB", "STATUS", "TRAININGS", "AGE", "TOOK"), [_tuning_row(job) for job in tunings]),
        (("EXECUTION", "STATUS", "AGE"), [_execution_row(execution) for execution in executions]),
        (("ENDPOINT", "STATUS", "AGE"), [_endpoint_row(endpoint) for endpoint in endpoints]),
    )
    shown = [(head, rows) for head, rows in tables if rows]
    if not shown:
        typer.echo("no jobs, no endpoints" if all_jobs else "nothing runs; `tidemill ps --all` lists ended jobs")
    for index, (head, rows) in enumerate(shown):
        if index:
            typer.echo()
        print_table(head, rows)


def _job_row(job: dict[str, Any]) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get("TrainingEndTime")
    took = age(created, until=ended) if ended else ""
    return job["TrainingJobName"], job["TrainingJobStatus"], job.get("SecondaryStatus", ""), age(created), took


def _row(job: dict[str, Any], kind: str) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get(f"{kind}EndTime")
    took = age(created, until=ended) if ended else ""
    return job[f"{kind}JobName"], job[f"{kind}JobStatus"], age(created), took


def _tuning_row(job: dict[str, Any]) -> tuple[str, ...]:
    created, ended = job["CreationTime"], job.get("HyperParameterTuningEndTime")
    counts, most = job["TrainingJobStatusCounters"], job.get("ResourceLimits", {}).get("MaxNumberOfTrainingJobs")
    ended_trainings = sum(counts.values()) - counts.get("InProgress", 0)
    trainings = f"{ended_trainings} of {most}" if most else str(ended_trainings)
    took = age(created, until=ended) if ended else ""
    return job["HyperParameterTuningJobName"], job["HyperParameterTuningJobStatus"], trainings, age(created), took


def _execution_row(execution: dict[str, Any]) -> tuple[str, ...]:
    return execution_name(execution), execution["PipelineExecutionStatus"], age(execution["StartTime"])


def _endpoint_row(endpoint: dict[str, Any]) -> tuple[str, ...]:
    return endpoint["EndpointName"], endpoint["EndpointStatus"], age(endpoint["CreationTime"])
