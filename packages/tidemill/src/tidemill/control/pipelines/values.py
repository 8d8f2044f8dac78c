"""Read what the expressions of one step name: parameters, variables, properties of earlier steps, property files."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.control.pipelines.definition import PipelineDefinition
from tidemill.control.pipelines.expressions import Get, JsonFile, Unresolved, part_of
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.pipelines.step_types import JOBS
from tidemill.core.names import S3Uri
from tidemill.core.pipelines import PipelineExecution, StepRun, StepStatus
from tidemill.errors import AwsError, ServiceUnavailable
from tidemill.store.objects.store import ObjectStore

__all__ = ["ExecutionValues", "StepValues", "properties_of"]

_CHILDREN = 50
"""As many of the best trainings as steps can read on SageMaker."""
_MAX_FILE_BYTES = 10 * 1024 * 1024


class ExecutionValues:
    """The values that exist before the first step. Implements `tidemill.control.pipelines.expressions.Reader`.

    Args:
        execution: The execution.
        job: Name of the step's own job; empty for a step without one.
        now_ms: The current time, in milliseconds since the epoch.
    """

    def __init__(self, execution: PipelineExecution, *, job: str, now_ms: int) -> None:
        self._execution = execution
        self._variables = {
            "PipelineName": execution.pipeline,
            "PipelineArn": execution.pipeline_arn,
            "PipelineExecutionId": execution.execution_id,
            "PipelineExecutionArn": execution.arn,
            "StartDateTime": _time(execution.created_ms),
            "CurrentDateTime": _time(now_ms),
            "TrainingJobName": job,
            "ProcessingJobName": job,
        }

    async def get(self, path: Get) -> Any:
        """Return the value of a path.

        Args:
            path: A parameter, or a variable of the execution.

        Raises:
            Unresolved: It names something else.
        """
        values = {"Parameters": self._execution.parameters, "Execution": self._variables}.get(path.root, {})
        if path.name not in values:
            raise Unresolved(f"{path} does not exist yet")
        return values[path.name]

    async def json(self, source: JsonFile) -> Any:
        """Raise Unresolved: only steps read files.

        Args:
            source: The file.

        Raises:
            Unresolved: Always.
        """
        raise Unresolved(f"the file {source.file or source.uri} does not exist yet")


class StepValues(ExecutionValues):
    """The values that one step can read.

    Args:
        execution: The execution.
        definition: Its definition.
        requests: Describes the jobs of earlier steps.
        objects: Holds the property files.
        job: Name of the step's own job; empty for a step without one.
        now_ms: The current time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        execution: PipelineExecution,
        definition: PipelineDefinition,
        requests: StepRequests,
        objects: ObjectStore,
        *,
        job: str,
        now_ms: int,
    ) -> None:
        super().__init__(execution, job=job, now_ms=now_ms)
        self._definition = definition
        self._requests = requests
        self._objects = objects
        self._properties: dict[str, Mapping[str, Any]] = {}

    async def get(self, path: Get) -> Any:
        """Return the value of a path.

        Args:
            path: A parameter, a variable of the execution, or a property of an earlier step.

        Raises:
            Unresolved: The step has no such property, or did not succeed.
        """
        if path.root != "Steps":
            return await super().get(path)
        return part_of(await self._of_step(path.name), path.path, what=f"the answer of the step {path.name!r}")

    async def json(self, source: JsonFile) -> Any:
        """Return the content of a JSON file.

        Args:
            source: The file.

        Raises:
            Unresolved: There is no such file, it may not be read, or it is not JSON.
        """
        uri = source.uri if source.file is None else await self._file_uri(source.file)
        try:
            place = S3Uri.parse(uri)
            # The request checks the rights; the object is read below, because the answer has no body.
            await self._requests.send(
                self._execution, "HeadObject", {"Bucket": place.bucket, "Key": place.key}, service="s3"
            )
            info = self._objects.head(place.bucket, place.key)
            if info is None or info.size_bytes > _MAX_FILE_BYTES:
                raise Unresolved(f"the file {uri} does not exist, or has more than {_MAX_FILE_BYTES} bytes")
            return json.loads(await self._objects.read_bytes(info))
        except ServiceUnavailable:
            raise
        except AwsError as error:
            raise Unresolved(f"the file {uri} cannot be read: {error.code}: {error.message}") from error
        except (ValueError, RecursionError) as error:
            raise (
                error if isinstance(error, Unresolved) else Unresolved(f"the file {uri} is not JSON: {error}")
            ) from error

    async def _of_step(self, name: str) -> Mapping[str, Any]:
        run = self._execution.find(name)
        if run is None or run.status is not StepStatus.SUCCEEDED:
            raise Unresolved(f"the step {name!r} has no result")
        if name not in self._properties:
            kind = self._definition.steps[name].type
            self._properties[name] = await properties_of(run, kind, self._requests)
        return self._properties[name]

    async def _file_uri(self, path: Get) -> str:
        file = self._definition.steps[path.name].files[path.file]
        output = part_of(
            await self._of_step(path.name),
            f"ProcessingOutputConfig.Outputs['{file.output}'].S3Output.S3Uri",
            what=f"the answer of the step {path.name!r}",
        )
        return f"{str(output).rstrip('/')}/{file.path.lstrip('/')}"


async def properties_of(run: StepRun, kind: str, requests: StepRequests) -> Mapping[str, Any]:
    """Return the properties of a step: the description of its job.

    Args:
        run: The step, which has a job or an outcome.
        kind: Type of the step.
        requests: Sends the request.

    Raises:
        Unresolved: The job cannot be described, e.g. because it was deleted.
    """
    if kind not in JOBS:
        return {"Outcome": run.outcome} if run.outcome else {}
    job = JOBS[kind]
    try:
        description = await requests.send_own(job.describe, {job.name: run.job})
        if not job.children:
            return description
        order = "Descending" if _maximizes(description) else "Ascending"
        best_first = {"SortBy": "FinalObjectiveMetricValue", "SortOrder": order, "MaxResults": _CHILDREN}
        return {**description, **await requests.send_own(job.children, {job.name: run.job, **best_first})}
    except ServiceUnavailable:
        raise
    except AwsError as error:
        raise Unresolved(f"{run.job}, which the step {run.name!r} created: {error.code}: {error.message}") from error


def _maximizes(tuning: Mapping[str, Any]) -> bool:
    """Return whether the first of the best trainings of a tuning job is the one with the largest value."""
    [definition, *_] = tuning.get("TrainingJobDefinitions") or [{}]
    config = tuning["HyperParameterTuningJobConfig"].get("HyperParameterTuningJobObjective")
    return bool((config or definition.get("TuningObjective") or {}).get("Type") == "Maximize")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
