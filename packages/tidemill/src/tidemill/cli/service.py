"""Find the service of a state directory, start it if needed, and call it with boto3."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.server.discovery import Connection, connect
from tidemill.server.state import StateDirectory

if TYPE_CHECKING:
    from tidemill.settings import Settings

__all__ = ["LocalService", "endpoint_is_named", "ensure_service", "require_service"]

_NEWEST_JOBS = 10
_JOBS_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_COMPILER = "sagemaker_training_compiler_enabled"
_COMPILER_LINE = "training compiler: "


@dataclass(frozen=True)
class LocalService:
    """A running service with the clients that the commands need."""

    state: StateDirectory
    connection: Connection

    @cached_property
    def session(self) -> Any:
        """A boto3 session for the service."""
        from tidemill.server.client import boto_session

        return boto_session(self.connection)

    @cached_property
    def sagemaker(self) -> Any:
        return self.session.client("sagemaker")

    @cached_property
    def sdk(self) -> Any:
        """A session of the SDK for the service."""
        from tidemill.sdk import Session

        return Session(self.session)

    @cached_property
    def logs(self) -> Any:
        return self.session.client("logs")

    def jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Summaries of training jobs, newest first."""
        wanted = {"StatusEquals": status} if status else {}
        pages = self.sagemaker.get_paginator("list_training_jobs").paginate(
            SortBy="CreationTime", SortOrder="Descending", **wanted
        )
        for page in pages:
            yield from page["TrainingJobSummaries"]

    def live_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the jobs that have not ended."""
        return [*self.jobs(status="InProgress"), *self.jobs(status="Stopping")]

    def transform_jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Summaries of batch transform jobs, newest first."""
        wanted = {"StatusEquals": status} if status else {}
        pages = self.sagemaker.get_paginator("list_transform_jobs").paginate(
            SortBy="CreationTime", SortOrder="Descending", **wanted
        )
        for page in pages:
            yield from page["TransformJobSummaries"]

    def live_transform_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the batch transform jobs that have not ended."""
        return [*self.transform_jobs(status="InProgress"), *self.transform_jobs(status="Stopping")]

    def live_job_names(self) -> list[str]:
        """Names of the training jobs, then of the batch transform jobs, that have not ended."""
        training = [job["TrainingJobName"] for job in self.live_jobs()]
        return training + [job["TransformJobName"] for job in self.live_transform_jobs()]

    def compiler_summaries(self) -> dict[str, str]:
        """By job: the last line that the training compiler wrote to its log. Of the newest jobs, those that use it."""
        found = {}
        for job in islice(self.jobs(), _NEWEST_JOBS):
            name = job["TrainingJobName"]
            settings = self.sagemaker.describe_training_job(TrainingJobName=name).get("HyperParameters", {})
            if settings.get(_COMPILER, "false").strip('"').lower() == "true":
                lines = self._lines_of_compiler(name)
                found[name] = lines[-1].removeprefix(_COMPILER_LINE).strip() if lines else "nothing decided yet"
        return found

    def _lines_of_compiler(self, job: str) -> list[str]:
        pages = self.logs.get_paginator("filter_log_events").paginate(
            logGroupName=_JOBS_LOG_GROUP, logStreamNamePrefix=f"{job}/", filterPattern=f'"{_COMPILER_LINE}"'
        )
        try:
            events = [event["message"] for page in pages for event in page["events"]]
        except self.logs.exceptions.ResourceNotFoundException:
            return []
        return [message for message in events if message.startswith(_COMPILER_LINE)]

    def stop_job(self, name: str) -> None:
        """Stop the training job of that name, or else the batch transform job of that name.

        Raises:
            CommandFailed: There is no job of that name.
            ClientError: The job has ended.
        """
        kind, _ = self.find(name)
        if kind == "job":
            self.sagemaker.stop_training_job(TrainingJobName=name)
        elif kind == "transform job":
            self.sagemaker.stop_transform_job(TransformJobName=name)
        else:
            raise CommandFailed(f"{name} is an endpoint; `tidemill delete {name}` deletes it")

    def interrupt_job(self, name: str) -> None:
        """Interrupt a training job as if its spot instances were reclaimed.

        Raises:
            ClientError: There is no such job, it is not on spot instances, or it has ended.
        """
        client = self.session.client("sagemaker")

        def mark(params: dict[str, Any], **_: Any) -> None:
            params["headers"]["X-Tidemill-Interrupt"] = "1"

        client.meta.events.register("before-call.sagemaker.StopTrainingJob", mark)
        client.stop_training_job(TrainingJobName=name)

    def endpoints(self) -> list[dict[str, Any]]:
        """Summaries of endpoints, newest first."""
        pages = self.sagemaker.get_paginator("list_endpoints").paginate(SortBy="CreationTime", SortOrder="Descending")
        return [endpoint for page in pages for endpoint in page["Endpoints"]]

    def find(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return the kind of a name (the first that exists of job, transform job and endpoint) and its description.

        Raises:
            CommandFailed: There is no job or endpoint of that name.
        """
        from botocore.exceptions import ClientError

        looks: tuple[tuple[str, Callable[..., dict[str, Any]], str], ...] = (
            ("job", self.sagemaker.describe_training_job, "TrainingJobName"),
            ("transform job", self.sagemaker.describe_transform_job, "TransformJobName"),
            ("endpoint", self.sagemaker.describe_endpoint, "EndpointName"),
        )
        reason = ""
        for kind, describe, member in looks:
            try:
                return kind, describe(**{member: name})
            except ClientError as error:
                reason = reason or error.response.get("Error", {}).get("Message", str(error))
        raise CommandFailed(f"no job or endpoint named {name!r} ({reason}); `tidemill ps --all` lists them")


def require_service(settings: "Settings") -> LocalService:
    """Return the service of the state directory.

    Raises:
        CommandFailed: No service is running.
    """
    state = StateDirectory(settings.state_dir.absolute())
    connection = connect(state)
    if connection is None:
        raise CommandFailed(f"no service runs on {state.root}; start one with `tidemill up`")
    return LocalService(state, connection)


def ensure_service(settings: "Settings") -> LocalService:
    """Return the service of the state directory; start it in the background if it is not running.

    Raises:
        ConfigurationError: The service does not start.
        CommandFailed: The service started and exited immediately.
    """
    from tidemill.server.background import start_in_background

    state = StateDirectory(settings.state_dir.absolute())
    connection = connect(state)
    if connection is None:
        started = start_in_background(settings)
        typer.echo(f"tidemill runs at {started.url} (pid {started.pid}); `tidemill down` ends it", err=True)
        connection = connect(state)
    if connection is None:
        raise CommandFailed(f"the service that was started has ended again; see {state.service_log}")
    return LocalService(state, connection)


def endpoint_is_named(settings: "Settings") -> bool:
    """Return whether settings or environment name an endpoint, so that no service has to be started."""
    return bool(settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
