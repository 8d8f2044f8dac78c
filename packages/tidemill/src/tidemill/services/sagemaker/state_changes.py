"""The events of state changes, as Amazon EventBridge sends them for SageMaker.

The detail of a job or an endpoint is its description, with times in milliseconds since the epoch, as in EventBridge's
"SageMaker ... State Change" events; that of an execution of a pipeline has EventBridge's own members.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemill.control.resources import (
    ENDPOINT,
    PIPELINE_EXECUTION,
    PROCESSING_JOB,
    TRAINING_JOB,
    TRANSFORM_JOB,
    TUNING_JOB,
)
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.pipelines import PipelineExecution
from tidemill.services.sagemaker.hosting import endpoint_description
from tidemill.services.sagemaker.processing import processing_description
from tidemill.services.sagemaker.training import job_description
from tidemill.services.sagemaker.transform import transform_description
from tidemill.services.sagemaker.tuning import tuning_description
from tidemill.services.times import when
from tidemill.store.records.base import Record

_IDS = uuid.UUID("6b0b1f0e-3c1a-5f7e-9a55-2f3f0f7f3d11")


def state_change(record: Record, *, previous: str, delivery: str, region: str) -> Mapping[str, Any]:
    """Return the event of a change, a value of JSON.

    Args:
        record: The changed record.
        previous: Its status before; empty for a new one.
        delivery: Identifies the change.
    """
    title, describe = _KINDS[record.kind]
    detail = describe(record)
    if record.kind == PIPELINE_EXECUTION and previous:
        detail["previousPipelineExecutionStatus"] = previous
    arn = record.summary["arn"]
    return event(title, _json(detail), resources=[arn], at_ms=record.modified_ms, delivery=delivery, region=region)


def event(
    title: str, detail: Any, *, resources: Sequence[str], at_ms: int, delivery: str, region: str
) -> Mapping[str, Any]:
    """Return an event in EventBridge's envelope.

    Args:
        title: Its detail-type.
        detail: A value of JSON.
        resources: ARNs.
        at_ms: Its time in milliseconds since the epoch.
        delivery: Identifies it; equal ones get equal ids.
    """
    return {
        "version": "0",
        "id": str(uuid.uuid5(_IDS, delivery)),
        "detail-type": title,
        "source": "aws.sagemaker",
        "account": ACCOUNT_ID,
        "time": f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "region": region,
        "resources": list(resources),
        "detail": detail,
    }


def _execution(record: Record) -> dict[str, Any]:
    execution = PipelineExecution.from_document(record.document)
    ended = {"executionEndTime": _iso(execution.ended_ms)} if execution.ended_ms is not None else {}
    return {
        "pipelineArn": execution.pipeline_arn,
        "pipelineExecutionArn": execution.arn,
        "pipelineExecutionDisplayName": execution.display_name,
        "pipelineExecutionDescription": execution.description,
        "currentPipelineExecutionStatus": str(execution.status),
        "executionStartTime": _iso(execution.created_ms),
        **ended,
        **({"failureReason": execution.failure_reason} if execution.failure_reason else {}),
    }


def _iso(milliseconds: int) -> str:
    return f"{when(milliseconds):%Y-%m-%dT%H:%M:%SZ}"


_KINDS: Mapping[str, tuple[str, Callable[[Record], dict[str, Any]]]] = {
    TRAINING_JOB: ("SageMaker Training Job State Change", job_description),
    PROCESSING_JOB: ("SageMaker Processing Job State Change", processing_description),
    TRANSFORM_JOB: ("SageMaker Transform Job State Change", transform_description),
    TUNING_JOB: ("SageMaker HyperParameter Tuning Job State Change", tuning_description),
    PIPELINE_EXECUTION: ("SageMaker Model Building Pipeline Execution Status Change", _execution),
    ENDPOINT: ("SageMaker Endpoint State Change", endpoint_description),
}
"""By kind of record: EventBridge's detail-type, and the detail."""


def _json(value: Any) -> Any:
    """Return a description as a value of JSON, with times in milliseconds since the epoch."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json(each) for each in value]
    return value
