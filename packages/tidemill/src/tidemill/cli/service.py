"""The service that a command uses: one rule for all commands, and the calls that they share.

In this order: the flags `--endpoint-url` and `--state-dir`, the environment, the settings, this user's own service. The
SDK follows the same order (`tidemill.sdk.connection`).
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import load_settings
from tidemill.cli.text import execution_name
from tidemill.server.discovery import ServiceConnection, connect
from tidemill.server.state import StateDirectory
from tidemill.settings import NamedEndpoint

if TYPE_CHECKING:
    from tidemill.settings import Settings

_NEWEST_JOBS = 10
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
    def sdk(self) -> Any:
        """A session of the SDK for the service."""
        from tidemill.sdk import Session

        return Session(self.session)

    @cached_property
    def logs(self) -> Any:
        return self.session.client("logs")

    def jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Return summaries of training jobs, newest first.

        Args:
            status: For example ``InProgress``. Default: all.

        Returns:
            Summaries, page by page as they are needed.
        """
        return self._summaries("list_training_jobs", "TrainingJobSummaries", status)

    def live_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the jobs that have not ended."""
        return [*self.jobs(status="InProgress"), *self.jobs(status="Stopping")]

    def processing_jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Return summaries of processing jobs, newest first.

        Args:
            status: For example ``InProgress``. Default: all.

        Returns:
            Summaries, page by page as they are needed.
        """
        return self._summaries("list_processing_jobs", "ProcessingJobSummaries", status)

    def live_processing_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the processing jobs that have not ended."""
        return [*self.processing_jobs(status="InProgress"), *self.processing_jobs(status="Stopping")]

    def transform_jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Return summaries of batch transform jobs, newest first.

        Args:
            status: For example ``InProgress``. Default: all.

        Returns:
            Summaries, page by page as they are needed.
        """
        return self._summaries("list_transform_jobs", "TransformJobSummaries", status)

    def live_transform_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the batch transform jobs that have not ended."""
        return [*self.transform_jobs(status="InProgress"), *self.transform_jobs(status="Stopping")]

    def tuning_jobs(self, *, status: str | None = None) -> Iterator[dict[str, Any]]:
        """Return summaries of hyperparameter tuning jobs, newest first.

        Args:
            status: For example ``InProgress``. Default: all.

        Returns:
            Summaries, page by page as they are needed.
        """
        return self._summaries("list_hyper_parameter_tuning_jobs", "HyperParameterTuningJobSummaries", status)

    def live_tuning_jobs(self) -> list[dict[str, Any]]:
        """Summaries of the hyperparameter tuning jobs that have not ended."""
        return [*self.tuning_jobs(status="InProgress"), *self.tuning_jobs(status="Stopping")]

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
            *(job["HyperParameterTuningJobName"] for job in self.live_tuning_jobs()),
            *(job["TrainingJobName"] for job in self.live_jobs()),
            *(job["ProcessingJobName"] for job in self.live_processing_jobs()),
            *(job["TransformJobName"] for job in self.live_transform_jobs()),
        ]

    def _summaries(self, operation: str, member: str, status: str | None) -> Iterator[dict[str, Any]]:
        wanted = {"StatusEquals": status} if status else {}
        pages = self.sagemaker.get_paginator(operation).paginate(
            SortBy="CreationTime", SortOrder="Descending", **wanted
        )
        for page in pages:
            yield from page[member]

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

    def stop_job(self, name: str) -> str:
        """Stop the first that exists of a training, processing, transform and tuning job, or an execution of that name.

        Returns:
            Its kind, e.g. ``transform job``.

        Raises:
            CommandFailed: There is no job of that name.
            ClientError: The job has ended.
        """
        kind, description = self.find(name)
        if kind == "job":
            self.sagemaker.stop_training_job(TrainingJobName=name)
        elif kind == "processing job":
            self.sagemaker.stop_processing_job(ProcessingJobName=name)
        elif kind == "transform job":
            self.sagemaker.stop_transform_job(TransformJobName=name)
        elif kind == "tuning job":
            self.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        elif kind == "execution":
            self.sagemaker.stop_pipeline_execution(PipelineExecutionArn=description["PipelineExecutionArn"])
        else:
            raise CommandFailed(f"{name} is an endpoint; `tidemill delete {name}` deletes it")
        return kind

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
        pages = self.sagemaker.get_paginator("list_endpoints").paginate(SortBy="CreationTime", SortOrder="Descending")
        return [endpoint for page in pages for endpoint in page["Endpoints"]]

    def find(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return the kind of a name and its description.

        A name can be that of several: a training, processing, transform and tuning job and an endpoint, in this order.
        An execution is named ``PIPELINE/ID``.

        Raises:
            CommandFailed: There is no job, execution or endpoint of that name.
        """
        from botocore.exceptions import ClientError

        looks: tuple[tuple[str, Callable[..., dict[str, Any]], str], ...] = (
            ("job", self.sagemaker.describe_training_job, "TrainingJobName"),
            ("processing job", self.sagemaker.describe_processing_job, "ProcessingJobName"),
            ("transform job", self.sagemaker.describe_transform_job, "TransformJobName"),
            ("tuning job", self.sagemaker.describe_hyper_parameter_tuning_job, "HyperParameterTuningJobName"),
            ("endpoint", self.sagemaker.describe_endpoint, "EndpointName"),
        )
        if "/" in name:  # no name of the others has a slash
            looks = (("execution", self._describe_execution, "name"),)
        reason = ""
        for kind, describe, member in looks:
            try:
                return kind, describe(**{member: name})
            except ClientError as error:
                reason = reason or error.response.get("Error", {}).get("Message", str(error))
        raise CommandFailed(f"no job, execution or endpoint named {name!r} ({reason}); `tidemill ps --all` lists them")


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
