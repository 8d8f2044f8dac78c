"""The running service as the verbs see it: found by the state directory, spoken to with boto3."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.server.discovery import Connection, connect
from tidemill.server.state import StateDirectory

if TYPE_CHECKING:
    from tidemill.settings import Settings

__all__ = ["LocalService", "endpoint_is_named", "ensure_service", "require_service"]


@dataclass(frozen=True)
class LocalService:
    """A live service with the clients that the verbs need."""

    state: StateDirectory
    connection: Connection

    @cached_property
    def session(self) -> Any:
        """A boto3 session for it."""
        from tidemill.server.client import boto_session

        return boto_session(self.connection)

    @cached_property
    def sagemaker(self) -> Any:
        return self.session.client("sagemaker")

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

    def endpoints(self) -> list[dict[str, Any]]:
        """Summaries of endpoints, newest first."""
        pages = self.sagemaker.get_paginator("list_endpoints").paginate(SortBy="CreationTime", SortOrder="Descending")
        return [endpoint for page in pages for endpoint in page["Endpoints"]]


def require_service(settings: "Settings") -> LocalService:
    """The service of the state directory.

    Raises:
        CommandFailed: None runs.
    """
    state = StateDirectory(settings.state_dir.absolute())
    connection = connect(state)
    if connection is None:
        raise CommandFailed(f"no service runs on {state.root}; start one with `tidemill up`")
    return LocalService(state, connection)


def ensure_service(settings: "Settings") -> LocalService:
    """The service of the state directory, started in the background where it does not run.

    Raises:
        ConfigurationError: It does not start.
        CommandFailed: It started and ended at once.
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
    """Whether settings or environment send clients to a particular service, so that none is to be started."""
    return bool(settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
