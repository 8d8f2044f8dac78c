"""Pipeline: write a definition, keep it at the service, and execute it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.expressions import expressed
from tidemill.sdk.pipeline_parameters import Parameter
from tidemill.sdk.session import Session
from tidemill.sdk.variable import is_pipeline_variable
from tidemill.sdk.workflow.options import (
    ParallelismConfiguration,
    PipelineDefinitionConfig,
    PipelineExperimentConfig,
    SelectiveExecutionConfig,
)
from tidemill.sdk.workflow.steps import ConditionStep, Step, StepCollection, flattened

__all__ = ["Execution", "Pipeline"]

_SCHEMA = "2020-12-01"
_OWN_EXPERIMENT = PipelineExperimentConfig()
_INLINE_MAX_BYTES = 100 * 1024
"""Longer definitions are uploaded, as AWS asks for."""


class Pipeline:
    """A pipeline.

    Args:
        name: Name of the pipeline.
        parameters: Its parameters.
        pipeline_experiment_config: Experiment and trial of its jobs; None for none.
        steps: Its steps, but those of the branches of conditions. Steps whose results others need are added.
        sagemaker_session: A `PipelineSession` or `Session`. Default: a new one.
        pipeline_definition_config: How the definition is written.

    Example:
        >>> pipeline = Pipeline("digits", parameters=[epochs], steps=[train])  # doctest: +SKIP
        >>> pipeline.upsert("SageMakerRole")  # doctest: +SKIP
        >>> pipeline.start({"Epochs": 5}).wait()  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter] | None = None,
        pipeline_experiment_config: PipelineExperimentConfig | None = _OWN_EXPERIMENT,
        steps: Sequence[Step | StepCollection] | None = None,
        sagemaker_session: Any = None,
        pipeline_definition_config: PipelineDefinitionConfig | None = None,
    ) -> None:
        self.name = name
        self.parameters = list(parameters or ())
        self.pipeline_experiment_config = pipeline_experiment_config
        self.steps = list(steps or ())
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self.pipeline_definition_config = pipeline_definition_config or PipelineDefinitionConfig()

    def definition(self) -> str:
        """Upload the code of the steps, and return the definition.

        Returns:
            JSON of schema 2020-12-01.

        Raises:
            ValueError: Two steps have one name, or a step cannot be written.
        """
        tracked = self.pipeline_experiment_config
        definition: dict[str, Any] = {
            "Version": _SCHEMA,
            "Metadata": {},
            "Parameters": [each.to_request() for each in self.parameters],
            "PipelineExperimentConfig": (
                {"ExperimentName": tracked.experiment_name, "TrialName": tracked.trial_name} if tracked else None
            ),
            "Steps": self._written_steps(),
        }
        return json.dumps(expressed(definition))

    def create(
        self,
        role_arn: str | None = None,
        description: str | None = None,
        tags: Any = None,
        parallelism_config: ParallelismConfiguration | Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Create the pipeline at the service.

        Args:
            role_arn: Name or ARN of the role whose policy limits the steps. Default: ``SageMakerRole``.
            description: A text.
            tags: Tags of the pipeline: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
            parallelism_config: How many steps of an execution run at the same time.

        Returns:
            The answer of CreatePipeline.
        """
        request = self._request(role_arn, description, parallelism_config)
        return self._client.create_pipeline(**request, **present(Tags=tags_of(tags)))

    def update(
        self,
        role_arn: str | None = None,
        description: str | None = None,
        parallelism_config: ParallelismConfiguration | Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Write a new version of the pipeline at the service.

        Args:
            role_arn: As for `create`.
            description: As for `create`.
            parallelism_config: As for `create`.

        Returns:
            The answer of UpdatePipeline.
        """
        return self._client.update_pipeline(**self._request(role_arn, description, parallelism_config))

    def upsert(
        self,
        role_arn: str | None = None,
        description: str | None = None,
        tags: Any = None,
        parallelism_config: ParallelismConfiguration | Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Create the pipeline at the service, or write a new version of it if it exists.

        Args:
            role_arn: As for `create`.
            description: As for `create`.
            tags: As for `create`; added to those of a pipeline that exists.
            parallelism_config: As for `create`.

        Returns:
            The answer of CreatePipeline or UpdatePipeline.
        """
        from botocore.exceptions import ClientError

        try:
            return self.create(role_arn, description, tags, parallelism_config)
        except ClientError as error:
            if "already exists" not in error.response["Error"]["Message"]:
                raise
        answer = self.update(role_arn, description, parallelism_config)
        if tags:
            self._client.add_tags(ResourceArn=answer["PipelineArn"], Tags=tags_of(tags))
        return answer

    def describe(self, pipeline_version_id: int | None = None) -> dict[str, Any]:
        """Return what DescribePipeline answers now.

        Args:
            pipeline_version_id: A version. Default: the latest.

        Returns:
            The answer as boto3 returns it.
        """
        return self._client.describe_pipeline(PipelineName=self.name, **present(PipelineVersionId=pipeline_version_id))

    def delete(self) -> dict[str, Any]:
        """Delete the pipeline and its executions at the service; jobs and models are kept.

        Returns:
            The answer of DeletePipeline.
        """
        return self._client.delete_pipeline(PipelineName=self.name)

    def start(
        self,
        parameters: Mapping[str, Any] | None = None,
        execution_display_name: str | None = None,
        execution_description: str | None = None,
        parallelism_config: ParallelismConfiguration | Mapping[str, int] | None = None,
        selective_execution_config: SelectiveExecutionConfig | None = None,
        pipeline_version_id: int | None = None,
    ) -> "Execution":
        """Start an execution, without waiting for it.

        Args:
            parameters: Values of parameters by name.
            execution_display_name: Name to show.
            execution_description: A text.
            parallelism_config: As for `create`, for this execution.
            selective_execution_config: Steps that are executed. Default: all.
            pipeline_version_id: Version of the definition. Default: the latest.

        Returns:
            The execution.
        """
        given = [{"Name": name, "Value": str(value)} for name, value in (parameters or {}).items()]
        answer = self._client.start_pipeline_execution(
            PipelineName=self.name,
            **present(
                PipelineExecutionDisplayName=execution_display_name,
                PipelineExecutionDescription=execution_description,
                ParallelismConfiguration=_parallelism(parallelism_config),
                SelectiveExecutionConfig=self._selection(selective_execution_config),
                PipelineVersionId=pipeline_version_id,
                PipelineParameters=given or None,
            ),
        )
        return Execution(answer["PipelineExecutionArn"], self.sagemaker_session)

    def list_executions(
        self,
        sort_by: str | None = None,
        sort_order: str | None = None,
        max_results: int | None = None,
        next_token: str | None = None,
    ) -> dict[str, Any]:
        """Return a page of the executions.

        Args:
            sort_by: ``CreationTime`` or ``PipelineExecutionArn``.
            sort_order: ``Ascending`` or ``Descending``.
            max_results: Size of the page.
            next_token: ``NextToken`` of the last page.

        Returns:
            ``PipelineExecutionSummaries``, and ``NextToken`` if there are more.
        """
        paging = present(SortBy=sort_by, SortOrder=sort_order, MaxResults=max_results, NextToken=next_token)
        answer = self._client.list_pipeline_executions(PipelineName=self.name, **paging)
        return {name: value for name, value in answer.items() if name != "ResponseMetadata"}

    def list_pipeline_versions(
        self, sort_order: str | None = None, max_results: int | None = None, next_token: str | None = None
    ) -> dict[str, Any]:
        """Return a page of the versions.

        Args:
            sort_order: ``Ascending`` or ``Descending``.
            max_results: Size of the page.
            next_token: ``NextToken`` of the last page.

        Returns:
            The answer of ListPipelineVersions.
        """
        paging = present(SortOrder=sort_order, MaxResults=max_results, NextToken=next_token)
        return self._client.list_pipeline_versions(PipelineName=self.name, **paging)

    @property
    def latest_pipeline_version_id(self) -> int | None:
        """Number of the latest version at the service."""
        found = self.list_pipeline_versions(max_results=1)["PipelineVersionSummaries"]
        return found[0]["PipelineVersionId"] if found else None

    def build_parameters_from_execution(
        self, pipeline_execution_arn: str, parameter_value_overrides: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the parameters of an execution, for `start`.

        Args:
            pipeline_execution_arn: ARN of the execution.
            parameter_value_overrides: Values in place of those of the execution.

        Returns:
            Values by name.

        Raises:
            ValueError: The execution has no parameter of a name.
        """
        found = Execution(pipeline_execution_arn, self.sagemaker_session).list_parameters()["PipelineParameters"]
        values = {each["Name"]: each["Value"] for each in found}
        unknown = sorted(set(parameter_value_overrides or {}) - set(values))
        if unknown:
            raise ValueError(f"{pipeline_execution_arn} has no parameter {', '.join(unknown)}; it has {sorted(values)}")
        return {**values, **(parameter_value_overrides or {})}

    @property
    def _client(self) -> Any:
        return self.sagemaker_session.sagemaker_client

    def _request(self, role_arn: str | None, description: str | None, parallelism: Any) -> dict[str, Any]:
        definition = self.definition()
        place = {"PipelineDefinition": definition}
        if len(definition.encode()) >= _INLINE_MAX_BYTES:
            bucket = self.sagemaker_session.default_bucket()
            self.sagemaker_session.upload_string_as_file_body(definition, bucket, self.name)
            place = {"PipelineDefinitionS3Location": {"Bucket": bucket, "ObjectKey": self.name}}
        return {
            "PipelineName": self.name,
            "RoleArn": self.sagemaker_session.expand_role(role_arn or "SageMakerRole"),
            **place,
            **present(PipelineDescription=description, ParallelismConfiguration=_parallelism(parallelism)),
        }

    def _selection(self, chosen: SelectiveExecutionConfig | None) -> dict[str, Any] | None:
        if chosen is None:
            return None
        source = chosen.source_pipeline_execution_arn
        if source is None and chosen.reference_latest_execution:
            latest = self.list_executions("CreationTime", "Descending", 1)["PipelineExecutionSummaries"]
            source = latest[0]["PipelineExecutionArn"] if latest else None
        selected = [{"StepName": name} for name in chosen.selected_steps]
        return present(SourcePipelineExecutionArn=source, SelectedSteps=selected)

    def _written_steps(self) -> list[dict[str, Any]]:
        """Return the steps, and behind them those that they need and that were not listed."""
        keeps_prefix = self.pipeline_definition_config.use_custom_job_prefix
        queue, written = flattened(self.steps), list[dict[str, Any]]()
        there = {id(step) for each in queue for step in _with_branches(each)}
        _check_names([step.name for each in queue for step in _with_branches(each)])
        for step in queue:  # grows while it is read
            written.append(step.definition(self.name, keeps_prefix=keeps_prefix))
            for needed in _needed(written[-1]):
                if isinstance(needed, Step) and id(needed) not in there:
                    there.add(id(needed))
                    queue.append(needed)
        return written


@dataclass(frozen=True)
class Execution:
    """An execution of a pipeline.

    Attributes:
        arn: Its ARN.
        sagemaker_session: The session that reaches it.
    """

    arn: str
    sagemaker_session: Any = None

    def describe(self) -> dict[str, Any]:
        """Return what DescribePipelineExecution answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self._client.describe_pipeline_execution(PipelineExecutionArn=self.arn)

    def list_steps(self) -> list[dict[str, Any]]:
        """Return the steps that have begun, the last one first.

        Returns:
            ``PipelineExecutionSteps`` as boto3 returns them.
        """
        return self._client.list_pipeline_execution_steps(PipelineExecutionArn=self.arn)["PipelineExecutionSteps"]

    def list_parameters(self, max_results: int | None = None, next_token: str | None = None) -> dict[str, Any]:
        """Return a page of the parameters.

        Args:
            max_results: Size of the page.
            next_token: ``NextToken`` of the last page.

        Returns:
            The answer of ListPipelineParametersForExecution.
        """
        paging = present(MaxResults=max_results, NextToken=next_token)
        return self._client.list_pipeline_parameters_for_execution(PipelineExecutionArn=self.arn, **paging)

    def stop(self) -> dict[str, Any]:
        """Ask the execution to stop: its running jobs are stopped.

        Returns:
            The answer of StopPipelineExecution.
        """
        return self._client.stop_pipeline_execution(PipelineExecutionArn=self.arn)

    def wait(self, delay: int = 30, max_attempts: int = 60) -> None:
        """Wait for the end of the execution.

        Args:
            delay: Seconds between two looks. Default: 30.
            max_attempts: Number of looks. Default: 60.

        Raises:
            botocore.exceptions.WaiterError: The execution failed or was stopped, or has not ended after all looks.
        """
        from botocore.waiter import WaiterModel, create_waiter_with_client

        states = {"Succeeded": "success", "Failed": "failure", "Stopped": "failure"}
        waiter = {
            "operation": "DescribePipelineExecution",
            "delay": delay,
            "maxAttempts": max_attempts,
            "acceptors": [
                {"matcher": "path", "argument": "PipelineExecutionStatus", "expected": status, "state": state}
                for status, state in states.items()
            ],
        }
        model = WaiterModel({"version": 2, "waiters": {"PipelineExecutionComplete": waiter}})
        create_waiter_with_client("PipelineExecutionComplete", model, self._client).wait(PipelineExecutionArn=self.arn)

    @property
    def _client(self) -> Any:
        return Session.adopt(self.sagemaker_session).sagemaker_client


def _parallelism(given: Any) -> Any:
    return given.to_request() if isinstance(given, ParallelismConfiguration) else given


def _with_branches(step: Step) -> list[Step]:
    """Return a step, and the steps of its branches."""
    if not isinstance(step, ConditionStep):
        return [step]
    inner = flattened([*step.if_steps, *step.else_steps])
    return [step, *(each for one in inner for each in _with_branches(one))]


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"the name {twice[0]!r} belongs to two steps of the pipeline; names are unique, and a step of a branch of a"
            " condition is not a step of the pipeline, too"
        )


def _needed(value: Any) -> Iterator[Any]:
    """Yield the steps whose results a step needs."""
    if is_pipeline_variable(value):
        yield from value.referenced_steps
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _needed(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _needed(each)
