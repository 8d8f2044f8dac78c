"""A processing job: a job that runs a command on inputs and uploads outputs, below ``/opt/ml/processing``.

It is run as a training job is: the same states, attempts, queue and instances. `ProcessingJob.run_request` translates
its request, and `tidemill.control.processing.plan` adds what processing jobs have instead of channels and a model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill.core.job_scope import JobScope
from tidemill.core.training import TrainingJob

PROCESSING_DIRECTORY = "/opt/ml/processing"
"""Inputs and outputs of processing jobs are below this directory."""
_EXIT_MESSAGE = "exit_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingJob(TrainingJob):
    """One processing job. It has no model artifacts and no final metrics."""

    create_operation: ClassVar[str] = "CreateProcessingJob"
    log_group: ClassVar[str] = "/aws/sagemaker/ProcessingJobs"

    @property
    def run_request(self) -> Mapping[str, Any]:
        return run_request_of(self.request)

    @property
    def scope(self) -> JobScope:
        return JobScope.of_processing(self.request)

    @property
    def exit_message(self) -> str:
        """What its command left in ``/opt/ml/output/message``."""
        return str(self.record.get(_EXIT_MESSAGE, ""))

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        return {
            "arn": self.arn,
            "ended_ms": self.ended_ms,
            "secondary_status": str(self.secondary_status),
            "failure_reason": self.failure_reason,
            "exit_message": self.exit_message,
        }


def run_request_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CreateProcessingJob request by the member names of CreateTrainingJob.

    Inputs are channels named by their position, e.g. ``input-1``: their own names may hold any character.

    Args:
        request: The members of CreateProcessingJob.
    """
    application, network = request["AppSpecification"], request.get("NetworkConfig", {})
    copied = ("RoleArn", "StoppingCondition", "Environment")
    return {
        "TrainingJobName": request["ProcessingJobName"],
        **{name: request[name] for name in copied if name in request},
        "AlgorithmSpecification": {
            "TrainingImage": application["ImageUri"],
            "TrainingInputMode": "File",
            "ContainerEntrypoint": application.get("ContainerEntrypoint", []),
            "ContainerArguments": application.get("ContainerArguments", []),
        },
        "ResourceConfig": request["ProcessingResources"]["ClusterConfig"],
        "InputDataConfig": [_channel(name, source) for name, _, source in s3_inputs(request)],
        "EnableNetworkIsolation": network.get("EnableNetworkIsolation", False),
        "EnableInterContainerTrafficEncryption": network.get("EnableInterContainerTrafficEncryption", False),
    }


def s3_inputs(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the inputs that the service brings, i.e. all but those that the application reads itself (AppManaged).

    Args:
        request: The members of CreateProcessingJob.

    Yields:
        Name of the channel of `run_request_of`, the input, and its S3Input.
    """
    for index, each in enumerate(request.get("ProcessingInputs", ()), start=1):
        if "S3Input" in each and not each.get("AppManaged"):
            yield f"input-{index}", each, each["S3Input"]


def s3_outputs(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the S3Output of each output that the service uploads, i.e. of all but those that are AppManaged.

    Args:
        request: The members of CreateProcessingJob.
    """
    for each in request.get("ProcessingOutputConfig", {}).get("Outputs", ()):
        if "S3Output" in each and not each.get("AppManaged"):
            yield each["S3Output"]


def where_below_ml(local_path: str) -> str:
    """Return a LocalPath relative to ``/opt/ml``, e.g. ``processing/input/code``.

    Args:
        local_path: Absolute path of an input or output, below ``/opt/ml/processing``.

    Raises:
        ValueError: It is another path.
    """
    segments = [each for each in local_path.split("/") if each]
    is_clean = local_path.startswith("/") and not {".", ".."} & set(segments) and "\0" not in local_path
    if not is_clean or segments[:3] != ["opt", "ml", "processing"]:
        raise ValueError(
            f"expected an absolute path below {PROCESSING_DIRECTORY}, e.g. {PROCESSING_DIRECTORY}/input/data"
        )
    return "/".join(segments[2:])


def _channel(name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ChannelName": name,
        "InputMode": "File",
        "DataSource": {
            "S3DataSource": {
                "S3DataType": source["S3DataType"],
                "S3Uri": source["S3Uri"],
                "S3DataDistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            }
        },
    }
