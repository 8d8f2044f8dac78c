"""The types of steps that exist, and what each asks of SageMaker's API; and why the others are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """A type of steps that create a job or another resource.

    Attributes:
        resource: What it creates, as the names of operations and members have it, e.g. ``TrainingJob``.
        shown_as: Member of the step's Metadata; empty if that is ``resource``.
        succeeded: Status of success; empty for what is ready when it is created.
        stops: Whether there is an operation that stops it.
        repeatable: Member whose repetition returns what was created before, for a resource that gets its name from the
            service; empty for one that is named by the request.
        changed_by: Members of the operation that changes what exists already under the request's name, which the step
            then does instead of creating it; empty if each execution creates one with a name of its own.
        wanted: Member of the request that the description shows, too, unless the change was rolled back.
        children: Operation that lists what the job created, whose answer is also a part of the properties; empty for
            none.
        tracked: Whether the request has an ExperimentConfig.
        longest_name: Maximum length of its name, or of the value of ``repeatable``.
        compared: Members of the request that CacheConfig compares, as on SageMaker: those on which the result depends,
            and not those that say where it is stored or on which machines it is made. Empty if CacheConfig is not
            allowed.
    """

    resource: str
    shown_as: str = ""
    succeeded: str = ""
    stops: bool = False
    repeatable: str = ""
    changed_by: tuple[str, ...] = ()
    wanted: str = ""
    children: str = ""
    tracked: bool = False
    longest_name: int = 63
    compared: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Member of request and description that names it; of the description alone if there is a ``repeatable``."""
        return f"{self.resource}Name"

    @property
    def arn(self) -> str:
        """Member of the answers with the ARN."""
        return f"{self.resource}Arn"

    def operation(self, verb: str) -> str:
        """Return the operation that creates, describes, stops or changes it.

        Args:
            verb: E.g. ``Describe``.
        """
        return f"{verb}{self.resource}"

    def status_in(self, description: Mapping[str, Any]) -> str:
        """Return the status of a resource; what is ready when it is created has that of success, an empty text."""
        return str(description[f"{self.resource}Status"]) if self.succeeded else ""

    def has_succeeded(self, description: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
        """Return whether a resource is what a request asks for: a job has ended so, an endpoint serves it."""
        if not self.wanted:
            return self.status_in(description) == self.succeeded
        serves = self.status_in(description) in (self.succeeded, "Updating")
        return serves and description[self.wanted] == arguments.get(self.wanted)

    def will_be(self, description: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
        """Return whether a resource will be what a request asks for when what has begun has ended."""
        target = description.get("PendingDeploymentSummary") or description
        return not self.wanted or target.get(self.wanted) == arguments.get(self.wanted)


JOBS: Mapping[str, JobStep] = {
    "Training": JobStep(
        resource="TrainingJob",
        succeeded="Completed",
        stops=True,
        tracked=True,
        compared=(
            *("AlgorithmSpecification", "CheckpointConfig", "DebugHookConfig", "DebugRuleConfigurations"),
            *("Environment", "HyperParameters", "InputDataConfig"),
        ),
    ),
    "Processing": JobStep(
        resource="ProcessingJob",
        succeeded="Completed",
        stops=True,
        tracked=True,
        compared=("AppSpecification", "Environment", "ProcessingInputs"),
    ),
    "Tuning": JobStep(
        resource="HyperParameterTuningJob",
        shown_as="TuningJob",
        succeeded="Completed",
        stops=True,
        children="ListTrainingJobsForHyperParameterTuningJob",
        longest_name=32,
        compared=(
            *("HyperParameterTuningJobConfig", "TrainingJobDefinition", "TrainingJobDefinitions", "WarmStartConfig"),
        ),
    ),
    "Transform": JobStep(
        resource="TransformJob",
        succeeded="Completed",
        stops=True,
        tracked=True,
        compared=("DataProcessing", "Environment", "ModelName", "TransformInput"),
    ),
    "Model": JobStep(resource="Model"),
    "RegisterModel": JobStep(
        resource="ModelPackage", shown_as="RegisterModel", repeatable="ClientToken", longest_name=36
    ),
    "EndpointConfig": JobStep(
        resource="EndpointConfig",
        compared=(
            *("ProductionVariants", "ShadowProductionVariants", "DataCaptureConfig", "AsyncInferenceConfig"),
            *("ExplainerConfig", "ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation", "KmsKeyId"),
        ),
    ),
    "Endpoint": JobStep(
        resource="Endpoint",
        succeeded="InService",
        changed_by=("EndpointName", "EndpointConfigName", "DeploymentConfig"),
        wanted="EndpointConfigName",
        compared=("EndpointName", "EndpointConfigName"),
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
    "Job": "there are no jobs of CreateJob here; use a Training or Processing step",
    "Cleanup": "nothing deletes the outputs of steps here; delete them in a Processing step's script, or afterwards",
    "ForEach": "there are no loops of steps here; write a step for each item, or loop in a script",
    "InferenceComponent": "there are no inference components; an Endpoint step serves models by production variants",
    "Lineage": "there are no actions and contexts here; make artifacts and associations in a Processing step's script",
}
"""Why a type of SageMaker does not exist here and what to do instead."""
