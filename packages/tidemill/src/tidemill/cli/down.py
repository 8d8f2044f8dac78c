"""`tidemill down`: stop the service but not its jobs."""

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption, StateDirOption
from tidemill.cli.text import print_json

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)

_LOOK_EVERY_S = 0.5


@app.command()
def down(
    stop_jobs: Annotated[
        bool,
        typer.Option("--stop-jobs", help="First stop running jobs, delete endpoints, and wait until both are done."),
    ] = False,
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Stop the service. Running jobs continue, and the next `tidemill up` finds them again."""
    from tidemill.cli.service import ServiceChoice, find_service
    from tidemill.server.background import end_service

    choice = ServiceChoice.of(state_dir=state_dir).own_for("down")
    service = find_service(choice)
    if service is None or service.own is None:
        if json:
            print_json({"url": None, "stopped": [], "running_jobs": [], "kept_endpoints": []})
        else:
            typer.echo(f"no service runs on {choice.state.root}")
        return
    jobs, endpoints = _what_runs(service)
    if stop_jobs and jobs is None:
        raise CommandFailed("the service does not answer, so its jobs cannot be stopped; without --stop-jobs it ends")
    stopped = [*(jobs or []), *endpoints] if stop_jobs else []
    if stop_jobs:
        _stop(service, jobs or [], list(endpoints), timeout_s=choice.settings.stop_grace_s + 30)
        jobs = None
        endpoints.clear()
    end_service(service.own.connection.service)
    if json:
        kept = {"running_jobs": jobs or [], "kept_endpoints": endpoints}
        print_json({"url": service.url, "stopped": stopped, **kept})
        return
    typer.echo(f"tidemill at {service.url} has ended")
    if jobs:
        typer.echo(f"{_count(jobs, 'job')} still running: {', '.join(jobs)}")
    leaving = [name for name, status in endpoints.items() if status == "Deleting"]
    if leaving:
        typer.echo(
            f"{_count(leaving, 'endpoint')} being deleted, which the next `tidemill up` ends: {', '.join(leaving)}"
        )
    if kept := [name for name in endpoints if name not in leaving]:
        typer.echo(f"{_count(kept, 'endpoint')} kept, unreachable until `tidemill up`: {', '.join(kept)}")


def _what_runs(service: "NamedService") -> tuple[list[str] | None, dict[str, str]]:
    """Return the names of live jobs (None if the service does not answer), and the statuses of endpoints by name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return service.live_job_names(), {each["EndpointName"]: each["EndpointStatus"] for each in service.endpoints()}
    except (BotoCoreError, ClientError) as error:
        typer.echo(f"what runs cannot be asked: {error}", err=True)
        return None, {}


def _stop(service: "NamedService", jobs: list[str], endpoints: list[str], *, timeout_s: float) -> None:
    from botocore.exceptions import ClientError

    for name in jobs:
        # It may have ended meanwhile, e.g. because its tuning job was stopped.
        with contextlib.suppress(ClientError, CommandFailed):
            service.stop(service.find(name))
    for endpoint in service.endpoints():
        if endpoint["EndpointStatus"] != "Deleting":
            service.sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])
    if jobs:
        typer.echo(f"stopping {_count(jobs, 'job')}: {', '.join(jobs)}")
    if endpoints:
        typer.echo(f"deleting {_count(endpoints, 'endpoint')}: {', '.join(endpoints)}; configurations and models stay")
    deadline_s = time.monotonic() + timeout_s
    while remaining := _still_there(service, jobs, endpoints):
        if time.monotonic() > deadline_s:
            raise CommandFailed(
                f"{', '.join(sorted(remaining))} did not stop within {timeout_s:g} s; the service was left running"
            )
        time.sleep(_LOOK_EVERY_S)


def _still_there(service: "NamedService", jobs: list[str], endpoints: list[str]) -> set[str]:
    left = set(service.live_job_names()).intersection(jobs) if jobs else set()
    if endpoints:
        left |= {endpoint["EndpointName"] for endpoint in service.endpoints()}.intersection(endpoints)
    return left


def _count(names: list[str], noun: str) -> str:
    return f"{len(names)} {noun}{'s' if len(names) != 1 else ''}"
