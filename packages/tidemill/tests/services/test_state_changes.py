"""The events of state changes of every kind."""

import json
from typing import Any

import pytest

from tidemill.control.resources import (
    ENDPOINT,
    PIPELINE_EXECUTION,
    PROCESSING_JOB,
    TRAINING_JOB,
    TRANSFORM_JOB,
    TUNING_JOB,
    endpoint_record,
    record_of,
)
from tidemill.control.webhooks.outbox import NAMES
from tidemill.core.hosting import Deployment, Endpoint
from tidemill.core.pipelines import PipelineExecution
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.services.sagemaker.state_changes import state_change
from tidemill.store.records.base import Record

ARN = "arn:aws:sagemaker:us-west-2:000000000000:"
CREATED_MS = 1_700_000_000_123
SCRIPT = {"AlgorithmSpecification": {"TrainingInputMode": "File"}, "OutputDataConfig": {"S3OutputPath": "s3://b/o"}}
EXECUTION = PipelineExecution(
    execution_id="abcdefabcdef",
    pipeline="p",
    pipeline_arn=f"{ARN}pipeline/p",
    pipeline_id="i",
    version=1,
    role="",
    key_id="AKIA",
    starter="arn:aws:iam::000000000000:root",
    parameters={},
    created_ms=CREATED_MS,
    token="t",
)


def script_job(kind: type[Any], name: str, request: dict[str, Any]) -> Any:
    new = kind(name="j", arn=f"{ARN}{name}/j", job_id="0" * 32, request=request, created_ms=CREATED_MS, log_streams=())
    return new.enter(SecondaryStatus.STARTING, at_ms=CREATED_MS, message="Starting")


CHANGED: dict[str, tuple[Any, str, str]] = {
    TRAINING_JOB: (
        script_job(TrainingJob, "training-job", SCRIPT),
        "SageMaker Training Job State Change",
        "TrainingJobStatus",
    ),
    PROCESSING_JOB: (
        script_job(ProcessingJob, "processing-job", {}),
        "SageMaker Processing Job State Change",
        "ProcessingJobStatus",
    ),
    TRANSFORM_JOB: (
        TransformJob(
            name="j",
            arn=f"{ARN}transform-job/j",
            job_id="0" * 32,
            request={},
            model={},
            created_ms=CREATED_MS,
            log_streams=(),
        ),
        "SageMaker Transform Job State Change",
        "TransformJobStatus",
    ),
    PIPELINE_EXECUTION: (
        EXECUTION,
        "SageMaker Model Building Pipeline Execution Status Change",
        "currentPipelineExecutionStatus",
    ),
    ENDPOINT: (
        Endpoint(
            name="e",
            arn=f"{ARN}endpoint/e",
            endpoint_id="0" * 32,
            created_ms=CREATED_MS,
            starting=Deployment(config_name="c", variants=(), begun_ms=CREATED_MS),
        ),
        "SageMaker Endpoint State Change",
        "EndpointStatus",
    ),
}
"""By kind of record: a resource, the event's detail-type, and the member of the detail with the status."""


def record(kind: str) -> Record:
    resource = CHANGED[kind][0]
    return endpoint_record(resource) if kind == ENDPOINT else record_of(kind, resource, status=str(resource.status))


@pytest.mark.parametrize("kind", CHANGED)
def test_a_change_of_each_kind_is_an_event_of_eventbridge(kind: str) -> None:
    _, title, status = CHANGED[kind]
    changed = record(kind)
    event = json.loads(json.dumps(state_change(changed, previous="Before", delivery="d-1", region="us-west-2")))
    assert (event["detail-type"], event["source"], event["account"]) == (title, "aws.sagemaker", "000000000000")
    assert event["time"] == "2023-11-14T22:13:20Z"
    (arn,) = event["resources"]
    assert arn.startswith(ARN)
    assert arn in event["detail"].values()
    assert event["detail"][status] == changed.status
    if kind == PIPELINE_EXECUTION:
        assert event["detail"]["previousPipelineExecutionStatus"] == "Before"
        assert event["detail"]["executionStartTime"] == event["time"]
    else:
        assert event["detail"]["CreationTime"] == CREATED_MS
    again, other = (
        state_change(changed, previous="Before", delivery=each, region="us-west-2")["id"] for each in ("d-1", "d-2")
    )
    assert (event["id"] == again, event["id"] == other) == (True, False)


def test_every_kind_is_tested() -> None:
    # A test of tuning jobs has theirs: a description needs their whole request.
    assert {*CHANGED, TUNING_JOB} == NAMES.keys()
