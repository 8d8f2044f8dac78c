"""The types of steps that exist, and what each asks of SageMaker's API; and why the others are refused."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["JOBS", "REFUSED_TYPES", "STEP_TYPES", "JobStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """A type of steps that create a job or another resource.

    Attributes:
        create: Operation that creates it.
        describe: Operation whose answer has the step's properties.
        name: Member of both that names it; of the description alone if there is a ``repeatable``.
        arn: Member of their answers with the ARN.
        metadata: Member of the step's Metadata.
        status: Member of the description with the status; empty for what is ready when it is created.
        succeeded: Status of success.
        stop: Operation that stops it; empty if nothing can be stopped.
        repeatable: Member whose repetition returns what was created before, for a resource that gets its name from the
            service; empty for one that is named by the request.
        children: Operation that lists what the job created, whose answer is also a part of the properties; empty for
            none.
        tracked: Whether the request has an ExperimentConfig.
        longest_name: Maximum length of its name, or of the value of ``repeatable``.
        compared: Members of the request that CacheConfig compares, as on SageMaker: those on which the result depends,
            and not those that say where it is stored or on which machines it is made. Empty if CacheConfig is not
            allowed.
    """

    create: str
    describe: str
    name: str
    arn: str
    metadata: str
    status: str = ""
    succeeded: str = "Completed"
    stop: str = ""
    repeatable: str = ""
    children: str = ""
    tracked: bool = False
    longest_name: int = 63
    compared: tuple[str, ...] = ()


JOBS: Mapping[str, JobStep] = {
    "Training": JobStep(
        create="CreateTrainingJob",
        describe="DescribeTrainingJob",
        name="TrainingJobName",
        arn="TrainingJobArn",
        metadata="TrainingJob",
        status="TrainingJobStatus",
        stop="StopTrainingJob",
        tracked=True,
        compared=(
            *("AlgorithmSpecification", "CheckpointConfig", "DebugHookConfig", "DebugRuleConfigurations"),
            *("Environment", "HyperParameters", "InputDataConfig"),
        ),
    ),
    "Processing": JobStep(
        create="CreateProcessingJob",
        describe="DescribeProcessingJob",
        name="ProcessingJobName",
        arn="ProcessingJobArn",
        metadata="ProcessingJob",
        status="ProcessingJobStatus",
        stop="StopProcessingJob",
        tracked=True,
        compared=("AppSpecification", "Environment", "ProcessingInputs"),
    ),
    "Tuning": JobStep(
        create="CreateHyperParameterTuningJob",
        describe="DescribeHyperParameterTuningJob",
        name="HyperParameterTuningJobName",
        arn="HyperParameterTuningJobArn",
        metadata="TuningJob",
        status="HyperParameterTuningJobStatus",
        stop="StopHyperParameterTuningJob",
        children="ListTrainingJobsForHyperParameterTuningJob",
        longest_name=32,
        compared=(
            "HyperParameterTuningJobConfig",
            "TrainingJobDefinition",
            "TrainingJobDefinitions",
            "WarmStartConfig",
        ),
    ),
    "Transform": JobStep(
        create="CreateTransformJob",
        describe="DescribeTransformJob",
        name="TransformJobName",
        arn="TransformJobArn",
        metadata="TransformJob",
        status="TransformJobStatus",
        stop="StopTransformJob",
        tracked=True,
        compared=("DataProcessing", "Environment", "ModelName", "TransformInput"),
    ),
    "Model": JobStep(
        create="CreateModel",
        describe="DescribeModel",
        name="ModelName",
        arn="ModelArn",
        metadata="Model",
    ),
    "RegisterModel": JobStep(
        create="CreateModelPackage",
        describe="DescribeModelPackage",
        name="ModelPackageName",
        repeatable="ClientToken",
        longest_name=36,
        arn="ModelPackageArn",
        metadata="RegisterModel",
    ),
}
"""By the step's Type."""

STEP_TYPES = (*JOBS, "Condition", "Fail")
"""All types of steps that can be executed."""

_SCRIPT = "run the code as a Processing step, or call it between two executions"
REFUSED_TYPES: Mapping[str, str] = {
    "Lambda": f"there is no AWS Lambda here; {_SCRIPT}",
    "Callback": f"there is no queue of SQS to send the token to; {_SCRIPT}",
    "EMR": f"there is no Amazon EMR here; {_SCRIPT}",
    "EMRServerless": f"there is no Amazon EMR here; {_SCRIPT}",
    "Athena": f"there is no Amazon Athena here; {_SCRIPT}",
    "QualityCheck": "there is no Model Monitor here; compute the statistics in a script, and compare in a Condition",
    "ClarifyCheck": "there is no SageMaker Clarify here; compute the metrics in a script, and compare in a Condition",
    "AutoML": "there is no Autopilot here; use a Training step",
    "InferenceComponent": "there are no inference components; create an endpoint after the execution",
    "Endpoint": "an execution ends with a model; create the endpoint from it afterwards",
    "EndpointConfig": "an execution ends with a model; create the configuration from it afterwards",
    "Lineage": "there is no lineage tracking here; leave the step out",
}
"""Why a type of SageMaker does not exist here and what to do instead."""
