"""Training jobs on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.training.jobs import Training
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import page_reply, query_of, row_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

# Members of CreateTrainingJob that DescribeTrainingJob returns unchanged.
_ECHOED = (
    *("HyperParameters", "RoleArn", "InputDataConfig", "ResourceConfig", "VpcConfig", "DebugHookConfig"),
    *("DebugRuleConfigurations", "TensorBoardOutputConfig", "CheckpointConfig", "ExperimentConfig"),
    *("ProfilerConfig", "ProfilerRuleConfigurations", "Environment", "EnableManagedSpotTraining"),
    *("RetryStrategy", "RemoteDebugConfig", "InfraCheckConfig", "SessionChainingConfig"),
)

# A header that AWS's clients never send: with it StopTrainingJob interrupts the job, which then starts again.
_INTERRUPT_HEADER = "x-tidemill-interrupt"

# Filters that match no job: no job keeps a warm pool or has a training plan.
_NEVER_TRUE = ("WarmPoolStatusEquals", "TrainingPlanArnEquals")


class TrainingHandlers(Operations):
    """Create, describe, list, update, stop and delete training jobs."""

    def __init__(self, training: Training) -> None:
        self._training = training

    async def create_training_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        job = await self._training.create(request, tags=tags)
        return {"TrainingJobArn": job.arn}

    async def describe_training_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return job_description(self._training.record(request["TrainingJobName"]))

    async def list_training_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if any(name in request for name in _NEVER_TRUE):
            return {"TrainingJobSummaries": []}
        jobs, token = await self._training.list(query_of(request))
        return page_reply("TrainingJobSummaries", [job_summary(job) for job in jobs], token)

    async def stop_training_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if _INTERRUPT_HEADER in context.headers:
            await self._training.interrupt(request["TrainingJobName"])
        else:
            await self._training.stop(request["TrainingJobName"])
        return {}

    async def update_training_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"TrainingJobArn": (await self._training.update_recorded(request)).arn}

    async def delete_training_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._training.delete(request["TrainingJobName"])
        return {}


def job_summary(job: Summary) -> dict[str, Any]:
    """Return what lists show of a training job.

    Args:
        job: The summary.
    """
    summary = row_of("TrainingJob", job)
    if job.is_damaged:
        return summary
    ended_ms = job.summary["ended_ms"]
    summary["SecondaryStatus"] = job.summary["secondary_status"]
    return summary | ({"TrainingEndTime": when(ended_ms)} if ended_ms else {})


def job_description(record: Record) -> dict[str, Any]:
    """Return the description of a training job.

    Args:
        record: The stored job.
    """
    job = TrainingJob.from_document(record.document)
    request = job.request
    return {
        **{member: request[member] for member in _ECHOED if member in request},
        **row_of("TrainingJob", record),
        "SecondaryStatus": str(job.secondary_status),
        "SecondaryStatusTransitions": [_transition(t) for t in job.transitions],
        "AlgorithmSpecification": request["AlgorithmSpecification"],
        # AWS's SDKs read KmsKeyId without checking that it exists.
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400, **request.get("StoppingCondition", {})},
        "ModelArtifacts": {"S3ModelArtifacts": job.model_artifacts},
        "EnableNetworkIsolation": request.get("EnableNetworkIsolation", False),
        "EnableInterContainerTrafficEncryption": request.get("EnableInterContainerTrafficEncryption", False),
        **({"TuningJobArn": job.tuning_job_arn} if job.tuning_job_arn else {}),
        **_rules(job),
        **_times(job),
        **_metrics(job),
        **({"FailureReason": job.failure_reason} if job.failure_reason else {}),
    }


def _transition(transition: Any) -> dict[str, Any]:
    shown = {
        "Status": str(transition.status),
        "StartTime": when(transition.started_ms),
        "StatusMessage": transition.message,
    }
    return shown | ({"EndTime": when(transition.ended_ms)} if transition.ended_ms is not None else {})


def _rules(job: TrainingJob) -> dict[str, Any]:
    """Return the status of each rule: none is evaluated, so clients that wait for one need not wait."""
    kinds = (
        ("DebugRuleConfigurations", "DebugRuleEvaluationStatuses"),
        ("ProfilerRuleConfigurations", "ProfilerRuleEvaluationStatuses"),
    )
    return {
        statuses: [
            {
                "RuleConfigurationName": rule["RuleConfigurationName"],
                "RuleEvaluationStatus": "Stopped",
                "StatusDetails": "The rule is recorded and not evaluated: tidemill has no debugger",
                "LastModifiedTime": when(job.created_ms),
            }
            for rule in job.request[configurations]
        ]
        for configurations, statuses in kinds
        if job.request.get(configurations)
    }


def _metrics(job: TrainingJob) -> dict[str, Any]:
    found = [
        {"MetricName": metric.name, "Value": metric.value, "Timestamp": when(metric.at_ms)}
        for metric in job.final_metrics
    ]
    return {"FinalMetricDataList": found} if found else {}


def _times(job: TrainingJob) -> dict[str, Any]:
    started_ms = next((t.started_ms for t in job.transitions if t.status is SecondaryStatus.TRAINING), None)
    if started_ms is None:
        return {}
    times: dict[str, Any] = {"TrainingStartTime": when(started_ms)}
    if job.ended_ms is not None:
        trained_ms = job.ended_ms - started_ms if job.attempt == 1 else job.trained_ms(job.ended_ms)
        seconds = max(1, round(trained_ms / 1000))
        times |= {
            "TrainingEndTime": when(job.ended_ms),
            "TrainingTimeInSeconds": seconds,
            "BillableTimeInSeconds": seconds,
        }
    return times
