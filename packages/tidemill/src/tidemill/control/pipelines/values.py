"""Read what the expressions of one step name: parameters, variables, properties of earlier steps, property files."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.control.pipelines.definition import PipelineDefinition
from tidemill.control.pipelines.expressions import Get, Unresolved, part_of
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.pipelines.step_types import JOBS
from tidemill.core.names import S3Uri
from tidemill.core.pipelines import PipelineExecution, StepRun, StepStatus
from tidemill.errors import AwsError, ServiceUnavailable
from tidemill.store.objects.store import ObjectStore

_CHILDREN = 50
"""As many of the best trainings as steps can read on SageMaker."""
_MAX_FILE_BYTES = 10 * 1024 * 1024


class ExecutionValues:
    """The values that exist before the first step. Implements `tidemill.control.pipelines.expressions.Reader`.

    Args:
        job: Name of the step's own job. Default: none.
    """

    def __init__(self, execution: PipelineExecution, *, now_ms: int, job: str = "") -> None:
        self._execution = execution
        self._outside = {
            "Parameters": execution.parameters,
            "Execution": {
                "PipelineName": execution.pipeline,
                "PipelineArn": execution.pipeline_arn,
                "PipelineExecutionId": execution.execution_id,
                "PipelineExecutionArn": execution.arn,
                "StartDateTime": _time(execution.created_ms),
                "CurrentDateTime": _time(now_ms),
                "TrainingJobName": job,
                "ProcessingJobName": job,
            },
        }

    async def get(self, path: Get) -> Any:
        values = self._outside.get(path.root, {})
        if path.name not in values:
            raise Unresolved(f"{path} does not exist yet")
        return values[path.name]

    async def json(self, source: Get | str) -> Any:
        raise Unresolved(f"the file {source} does not exist yet")


class StepValues(ExecutionValues):
    """The values that one step can read.

    Args:
        requests: Asks for the properties of steps.
        objects: Holds the property files.
        job: Name of the step's own job. Default: none.
    """

    def __init__(
        self,
        execution: PipelineExecution,
        definition: PipelineDefinition,
        requests: StepRequests,
        objects: ObjectStore,
        *,
        now_ms: int,
        job: str = "",
    ) -> None:
        super().__init__(execution, now_ms=now_ms, job=job)
        self._definition = definition
        self._requests = requests
        self._objects = objects
        self._properties: dict[str, Mapping[str, Any]] = {}

    async def get(self, path: Get) -> Any:
        if path.root != "Steps":
            return await super().get(path)
        return part_of(await self._of_step(path.name), path.path, what=f"the answer of the step {path.name!r}")

    async def json(self, source: Get | str) -> Any:
        uri = source if isinstance(source, str) else await self._file_uri(source)
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
        except (ServiceUnavailable, Unresolved):
            raise
        except AwsError as error:
            raise Unresolved(f"the file {uri} cannot be read: {error.code}: {error.message}") from error
        except (ValueError, RecursionError) as error:
            raise Unresolved(f"the file {uri} is not JSON: {error}") from error

    async def _of_step(self, name: str) -> Mapping[str, Any]:
        run = self._execution.find(name)
        if run is None or run.status is not StepStatus.SUCCEEDED:
            raise Unresolved(f"the step {name!r} has no result")
        if name not in self._properties:
            self._properties[name] = await self._properties_of(run)
        return self._properties[name]

    async def _file_uri(self, path: Get) -> str:
        file = self._definition.steps[path.name].files[path.file]
        place = f"ProcessingOutputConfig.Outputs['{file.output}'].S3Output.S3Uri"
        output = await self.get(Get("Steps", path.name, place))
        return f"{str(output).rstrip('/')}/{file.path.lstrip('/')}"

    async def _properties_of(self, run: StepRun) -> Mapping[str, Any]:
        """Return the properties of a step: the outcome of a condition, or the description of a job."""
        job = JOBS.get(self._definition.steps[run.name].type)
        if job is None:
            return {"Outcome": run.outcome} if run.outcome else {}
        named = {job.name: run.job}
        try:
            description = await self._requests.send(None, job.operation("Describe"), named)
            if not job.children:
                return description
            order = "Descending" if _maximizes(description) else "Ascending"
            best_first = {"SortBy": "FinalObjectiveMetricValue", "SortOrder": order, "MaxResults": _CHILDREN}
            return {**description, **await self._requests.send(None, job.children, {**named, **best_first})}
        except ServiceUnavailable:
            raise
        except AwsError as error:
            reason = f"{error.code}: {error.message}"
            raise Unresolved(f"{run.job}, which the step {run.name!r} created: {reason}") from error


def _maximizes(tuning: Mapping[str, Any]) -> bool:
    """Return whether the first of the best trainings of a tuning job is the one with the largest value."""
    [definition, *_] = tuning.get("TrainingJobDefinitions") or [{}]
    config = tuning["HyperParameterTuningJobConfig"].get("HyperParameterTuningJobObjective")
    return bool((config or definition.get("TuningObjective") or {}).get("Type") == "Maximize")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
