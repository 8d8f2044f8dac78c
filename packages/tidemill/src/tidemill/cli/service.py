"""The service that a command uses: one rule for all commands, and the calls that they share.

In this order: the flags `--endpoint-url` and `--state-dir`, the environment, the settings, this user's own service. The
SDK follows the same order (`tidemill.sdk.connection`).
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import (
    ENDPOINT,
    EXECUTION,
    LIVE,
    NAMED,
    PROCESSING,
    TRAINING,
    TRANSFORM,
    TUNING,
    NamedKind,
    python_name,
)
from tidemill.cli.options import load_settings
from tidemill.cli.text import execution_name
from tidemill.server.client import own_client
from tidemill.server.discovery import ServiceConnection, connect
from tidemill.server.state import StateDirectory
from tidemill.settings import NamedEndpoint

if TYPE_CHECKING:
    from tidemill.settings import Settings

_NEWEST_JOBS = 10
_PAGE = 100
_JOBS_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_COMPILER = "sagemaker_training_compiler_enabled"
_COMPILER_LINE = "training compiler: "


@dataclass(frozen=True, slots=True)
class OwnService:
    """A running service of this user on this machine."""

    state: StateDirectory
    connection: ServiceConnection

    def is_at(self, url: str) -> bool:
        """Return whether the service has this URL.

        Args:
            url: With or without a slash at the end.
        """
        return self.connection.service.url.rstrip("/") == url.rstrip("/")


@dataclass(frozen=True, slots=True)
class ServiceChoice:
    """The service that the flags, the environment and the settings select; it need not run.

    Attributes:
        endpoint: The service, if something names one; None selects the service of the state directory.
    """

    settings: "Settings"
    endpoint: NamedEndpoint | None

    @classmethod
    def of(cls, *, state_dir: Path | None, endpoint_url: str | None = None) -> "ServiceChoice":
        """Select a service.

        Args:
            state_dir: The flag `--state-dir`, which selects the service of that directory.
            endpoint_url: The flag `--endpoint-url`.

        Raises:
            ConfigurationError: A flag, the settings file or a ``TIDEMILL_*`` variable is invalid.
            CommandFailed: Both flags are given.
        """
        if endpoint_url is not None and state_dir is not None:
            raise CommandFailed("--endpoint-url and --state-dir name two services; give one of them")
        settings = load_settings(state_dir=state_dir)
        if endpoint_url is not None:
            return cls(settings, NamedEndpoint(endpoint_url, "--endpoint-url"))
        return cls(settings, None if state_dir is not None else settings.named_endpoint)

    @property
    def state(self) -> StateDirectory:
        """The state directory of this user's own service."""
        return StateDirectory(self.settings.state_dir.absolute())

    @property
    def reason(self) -> str:
        """What selected the service, for messages."""
        return "this user's own service" if self.endpoint is None else f"named by {self.endpoint.named_by}"

    def session(self) -> Any:
        """Return a boto3 session for the service, which need not run: for requests that are only written."""
        from tidemill.sdk.connection import connect_to

        service = find_service(self)
        nowhere = NamedEndpoint("http://127.0.0.1", "no request is sent")
        return connect_to(nowhere, region=self.settings.region) if service is None else service.session

    def own_for(self, verb: str) -> "ServiceChoice":
        """Return the choice of this user's own service, for a command that works in its state directory.

        Raises:
            CommandFailed: Another service is selected, so the command would act on the wrong one.
        """
        own = _find_own(self.state)
        if self.endpoint is None or (own is not None and own.is_at(self.endpoint.url)):
            return ServiceChoice(self.settings, None)
        raise CommandFailed(
            f"`tidemill {verb}` works in the state directory of a service on this machine, but the selected service is"
            f" {self.endpoint.url} ({self.reason}). Run it on the machine of that service, or name a state directory"
            f" of this machine: tidemill {verb} --state-dir {shlex.quote(str(self.state.root))}"
        )


@dataclass(frozen=True, slots=True)
class Named:
    """A job, an execution or an endpoint.

    Attributes:
        description: What the Describe operation of its kind answers.
    """

    kind: NamedKind
    name: str
    description: dict[str, Any]


class NotFound(CommandFailed):
    """Nothing has the name."""


@dataclass(frozen=True)
class NamedService:
    """The service that a command uses, with the clients that it needs.

    Attributes:
        choice: What selected it.
        session: A boto3 session for it.
        own: The files of the service, if it is this user's own service on this machine.
    """

    url: str
    choice: ServiceChoice
    session: Any
    own: OwnService | None

    @cached_property
    def sagemaker(self) -> Any:
        return self.session.client("sagemaker")

    @cached_property
    def tidemill(self) -> Any:
        """A client of tidemill's own operations."""
        return own_client(self.session, self.url)

    @cached_property
    def sdk(self) -> Any:
        """A session of the SDK for the service."""
        from tidemill.sdk import Session

        return Session(self.session, sagemaker_client=self.sagemaker)

    @cached_property
    def logs(self) -> Any:
        return self.session.client("logs")

    def summaries(self, kind: NamedKind, **filters: Any) -> Iterator[dict[str, Any]]:
        """Return summaries of jobs or endpoints, newest first.

        Args:
            kind: Any kind but executions.
            **filters: Members of the List operation, e.g. ``StatusEquals``.

        Returns:
            Summaries, page by page as they are needed.
        """
        pages = self.sagemaker.get_paginator(python_name(kind.lists)).paginate(
            SortBy="CreationTime", SortOrder="Descending", PaginationConfig={"PageSize": _PAGE}, **filters
        )
        for page in pages:
            yield from page[kind.listed]

    def live(self, kind: NamedKind, **filters: Any) -> list[dict[str, Any]]:
        """Return summaries of jobs that have not ended.

        Args:
            kind: A kind of job.
            **filters: As for `summaries`.
        """
        return [each for status in LIVE for each in self.summaries(kind, StatusEquals=status, **filters)]

    def executions(self) -> Iterator[dict[str, Any]]:
        """Yield summaries of the executions of all pipelines, those of one pipeline newest first."""
        pipelines = self.sagemaker.get_paginator("list_pipelines").paginate()
        for pipeline in (each for page in pipelines for each in page["PipelineSummaries"]):
            name = pipeline["PipelineName"]
            for page in self.sagemaker.get_paginator("list_pipeline_executions").paginate(PipelineName=name):
                yield from page["PipelineExecutionSummaries"]

    def live_executions(self) -> list[dict[str, Any]]:
        """Summaries of the executions that have not ended."""
        return [each for each in self.executions() if each["PipelineExecutionStatus"] in ("Executing", "Stopping")]

    def live_job_names(self) -> list[str]:
        """Names of the jobs and executions that have not ended. Those come first that create further jobs."""
        return [
            *(execution_name(each) for each in self.live_executions()),
            *(kind.name(job) for kind in (TUNING, TRAINING, PROCESSING, TRANSFORM) for job in self.live(kind)),
        ]

    def compiler_summaries(self) -> dict[str, str]:
        """By job: the last line that the training compiler wrote to its log. Of the newest jobs, those that use it."""
        found = {}
        for job in islice(self.summaries(TRAINING), _NEWEST_JOBS):
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

    def stop(self, found: Named) -> None:
        """Stop a job or an execution.

        Args:
            found: As `find` returns it.

        Raises:
            CommandFailed: It is an endpoint.
            ClientError: The job has ended.
        """
        if found.kind is EXECUTION:
            self.sagemaker.stop_pipeline_execution(PipelineExecutionArn=found.description["PipelineExecutionArn"])
        elif found.kind is ENDPOINT:
            raise CommandFailed(f"{found.name} is an endpoint; `tidemill delete {found.name}` deletes it")
        else:
            getattr(self.sagemaker, python_name(found.kind.stops))(**{found.kind.member: found.name})

    def _describe_execution(self, name: str) -> dict[str, Any]:
        """Return the description of an execution, with its steps in the order of their begin."""
        pipeline, _, execution_id = name.partition("/")
        arn = f"{self.sagemaker.describe_pipeline(PipelineName=pipeline)['PipelineArn']}/execution/{execution_id}"
        description = self.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        pages = self.sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
            PipelineExecutionArn=arn, SortOrder="Ascending"
        )
        return {**description, "Steps": [step for page in pages for step in page["PipelineExecutionSteps"]]}

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
        return list(self.summaries(ENDPOINT))

    def find(self, name: str, *, first: Sequence[NamedKind] = ()) -> Named:
        """Return what has a name, and its description.

        A name can be that of several: a training, processing, transform and tuning job and an endpoint, in this order.
        An execution is named ``PIPELINE/ID``.

        Args:
            name: The whole name; `tidemill.cli.choice` also takes its begin.
            first: Kinds that win over the others.

        Raises:
            CommandFailed: There is no job, execution or endpoint of that name.
        """
        from botocore.exceptions import ClientError

        reason = ""
        named = dict.fromkeys((*(kind for kind in first if kind is not EXECUTION), *NAMED))
        for kind in (EXECUTION,) if "/" in name else named:  # no name of the others has a slash
            try:
                return Named(kind, name, self.describe(kind, name))
            except ClientError as error:
                reason = reason or error.response.get("Error", {}).get("Message", str(error))
        raise NotFound(f"no job, execution or endpoint named {name!r} ({reason}); `tidemill ps --all` lists them")

    def describe(self, kind: NamedKind, name: str) -> dict[str, Any]:
        """Return the description of a job, an execution or an endpoint.

        Args:
            kind: Its kind.
            name: Its whole name.

        Raises:
            ClientError: There is none.
        """
        if kind is EXECUTION:
            return self._describe_execution(name)
        return getattr(self.sagemaker, python_name(kind.describes))(**{kind.member: name})


def require_service(*, state_dir: Path | None, endpoint_url: str | None = None) -> NamedService:
    """Return the service that the flags, the environment and the settings select.

    Raises:
        CommandFailed: It would be this user's own service, which is not running.
    """
    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    service = find_service(choice)
    if service is None:
        raise CommandFailed(f"no service runs on {choice.state.root}; start one with `tidemill up`")
    return service


def find_service(choice: ServiceChoice) -> NamedService | None:
    """Return the selected service; None if it would be this user's own, which is not running.

    A service that is named is not asked whether it runs: the first request shows that.

    Args:
        choice: The service that flags, variables and settings select.
    """
    own = _find_own(choice.state)
    endpoint = choice.endpoint
    if endpoint is None:
        return None if own is None else _own_service(own, choice)
    from tidemill.sdk.connection import connect_to

    session = connect_to(endpoint, region=choice.settings.region)
    return NamedService(endpoint.url, choice, session, own if own is not None and own.is_at(endpoint.url) else None)


def ensure_service(choice: ServiceChoice) -> NamedService:
    """Return the selected service; start this user's own in the background if that is selected and not running.

    Raises:
        ConfigurationError: The service does not start.
        CommandFailed: The service started and exited immediately.
    """
    from tidemill.server.background import start_in_background

    service = find_service(choice)
    if service is None:
        started = start_in_background(choice.settings)
        typer.echo(f"tidemill runs at {started.url} (pid {started.pid}); `tidemill down` ends it", err=True)
        service = find_service(choice)
    if service is None:
        raise CommandFailed(f"the service that was started has ended again; see {choice.state.service_log}")
    return service


def _own_service(own: OwnService, choice: ServiceChoice) -> NamedService:
    from tidemill.server.client import boto_session

    return NamedService(own.connection.service.url, choice, boto_session(own.connection), own)


def _find_own(state: StateDirectory) -> OwnService | None:
    """Return the running service of a state directory, or None."""
    connection = connect(state)
    return None if connection is None else OwnService(state, connection)
