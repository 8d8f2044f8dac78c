"""Settings of steps, of pipelines and of executions that are objects of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemill.sdk.arguments import present
from tidemill.sdk.pipeline_parameters import ExecutionVariables

__all__ = [
    "CacheConfig",
    "ParallelismConfiguration",
    "PipelineDefinitionConfig",
    "PipelineExperimentConfig",
    "RetryPolicy",
    "SageMakerJobExceptionTypeEnum",
    "SageMakerJobStepRetryPolicy",
    "SelectiveExecutionConfig",
    "StepExceptionTypeEnum",
    "StepRetryPolicy",
]


@dataclass(frozen=True)
class CacheConfig:
    """Whether a step is not executed again if it succeeded before with the same arguments.

    Attributes:
        enable_caching: Whether it is so. Default: False.
        expire_after: How long a result can be used, as a duration of ISO 8601, e.g. ``P30D``. Default: for ever.
    """

    enable_caching: bool = False
    expire_after: str | None = None

    def to_request(self) -> dict[str, Any]:
        """Return ``CacheConfig`` of a step.

        Returns:
            The member in a definition.
        """
        return present(Enabled=self.enable_caching, ExpireAfter=self.expire_after)


class StepExceptionTypeEnum(Enum):
    """Failures of any step's request that can be repeated."""

    SERVICE_FAULT = "Step.SERVICE_FAULT"
    THROTTLING = "Step.THROTTLING"


class SageMakerJobExceptionTypeEnum(Enum):
    """Failures of a step's job that can be repeated."""

    INTERNAL_ERROR = "SageMaker.JOB_INTERNAL_ERROR"
    CAPACITY_ERROR = "SageMaker.CAPACITY_ERROR"
    RESOURCE_LIMIT = "SageMaker.RESOURCE_LIMIT"


class RetryPolicy:
    """When a failed step is executed again.

    Args:
        exception_types: The failures.
        backoff_rate: Factor by which the pause grows. Default: 2.
        interval_seconds: Pause before the first repetition. Default: 1 s.
        max_attempts: Number of repetitions, 1 to 20.
        expire_after_mins: Minutes in which repetitions are tried, up to 14,400.

    Raises:
        ValueError: Not exactly one of ``max_attempts`` and ``expire_after_mins`` is given, or no failure.
    """

    def __init__(
        self,
        exception_types: Sequence[Enum],
        backoff_rate: float = 2.0,
        interval_seconds: int = 1,
        max_attempts: int | None = None,
        expire_after_mins: int | None = None,
    ) -> None:
        if not exception_types:
            raise ValueError("exception_types is empty; give the failures after which the step is executed again")
        if (max_attempts is None) == (expire_after_mins is None):
            raise ValueError(
                f"max_attempts={max_attempts!r} and expire_after_mins={expire_after_mins!r}; expected exactly one"
            )
        self.exception_types = list(exception_types)
        self.backoff_rate = backoff_rate
        self.interval_seconds = interval_seconds
        self.max_attempts = max_attempts
        self.expire_after_mins = expire_after_mins

    def to_request(self) -> dict[str, Any]:
        """Return the policy in a definition.

        Returns:
            A member of ``RetryPolicies``.
        """
        return present(
            BackoffRate=self.backoff_rate,
            IntervalSeconds=self.interval_seconds,
            MaxAttempts=self.max_attempts,
            ExpireAfterMin=self.expire_after_mins,
            ExceptionType=[each.value for each in self.exception_types],
        )


class StepRetryPolicy(RetryPolicy):
    """A `RetryPolicy` for failures of requests: `StepExceptionTypeEnum`. Arguments: see `RetryPolicy`."""


class SageMakerJobStepRetryPolicy(RetryPolicy):
    """A `RetryPolicy` for failures of jobs.

    Args:
        exception_types: `SageMakerJobExceptionTypeEnum`, of the request that creates the job.
        failure_reason_types: `SageMakerJobExceptionTypeEnum`, of the job that failed.
        backoff_rate: As for `RetryPolicy`.
        interval_seconds: As for `RetryPolicy`.
        max_attempts: As for `RetryPolicy`.
        expire_after_mins: As for `RetryPolicy`.
    """

    def __init__(
        self,
        exception_types: Sequence[SageMakerJobExceptionTypeEnum] | None = None,
        failure_reason_types: Sequence[SageMakerJobExceptionTypeEnum] | None = None,
        backoff_rate: float = 2.0,
        interval_seconds: int = 1,
        max_attempts: int | None = None,
        expire_after_mins: int | None = None,
    ) -> None:
        types = [*(exception_types or ()), *(failure_reason_types or ())]
        super().__init__(types, backoff_rate, interval_seconds, max_attempts, expire_after_mins)


@dataclass(frozen=True)
class ParallelismConfiguration:
    """How many steps of an execution run at the same time.

    Attributes:
        max_parallel_execution_steps: The number, at least 1.
    """

    max_parallel_execution_steps: int

    def to_request(self) -> dict[str, int]:
        """Return ``ParallelismConfiguration`` of a request.

        Returns:
            The member in the API's form.
        """
        return {"MaxParallelExecutionSteps": self.max_parallel_execution_steps}


@dataclass(frozen=True)
class SelectiveExecutionConfig:
    """Steps that are executed, while the others have the results of another execution.

    Attributes:
        selected_steps: Their names.
        reference_latest_execution: Whether the other execution is the latest one, if no ARN is given. Default: True.
        source_pipeline_execution_arn: ARN of the other execution.
    """

    selected_steps: Sequence[str]
    reference_latest_execution: bool = True
    source_pipeline_execution_arn: str | None = None


@dataclass(frozen=True)
class PipelineExperimentConfig:
    """The experiment and the trial of a pipeline's jobs. They are created if they are missing.

    Attributes:
        experiment_name: Name of the experiment, or a variable. Default: the name of the pipeline.
        trial_name: Name of the trial, or a variable. Default: the id of the execution.
    """

    experiment_name: Any = ExecutionVariables.PIPELINE_NAME
    trial_name: Any = ExecutionVariables.PIPELINE_EXECUTION_ID


@dataclass(frozen=True)
class PipelineDefinitionConfig:
    """How a definition is written.

    Attributes:
        use_custom_job_prefix: Whether the ``base_job_name`` of an estimator or processor begins the names of its jobs.
            Default: False: they begin with ``pipelines-``.
    """

    use_custom_job_prefix: bool = False
