"""Check a CreateProcessingJob request beyond AWS's model and the table of refused members."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.control.admission import (
    Capabilities,
    check_capacity,
    check_environment,
    check_network,
    check_s3_uri,
    check_target,
    refusal,
)
from tidemill.core.frameworks import ProcessingFrameworks
from tidemill.core.processing import PROCESSING_DIRECTORY, run_request_of, where_below_ml

_CLUSTER = "processingResources.clusterConfig"


def check_processing_request(
    request: Mapping[str, Any],
    *,
    capabilities: Capabilities | None = None,
    has_bucket: Callable[[str], bool] = lambda _: True,
) -> None:
    """Refuse a request that cannot run as asked.

    Args:
        request: The members of CreateProcessingJob.
        capabilities: What the service can honor. Default: everything.
        has_bucket: Returns whether a bucket exists. Default: every bucket does.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
        ResourceLimitExceeded: The job could never start on this machine.
    """
    capabilities = capabilities or Capabilities(frameworks=ProcessingFrameworks())
    cluster = request["ProcessingResources"]["ClusterConfig"]
    if "InstanceType" not in cluster:
        raise refusal(f"{_CLUSTER}.instanceType", None, "an instance type is required, e.g. 'local' or 'ml.m5.large'")
    _check_application(request, capabilities)
    _check_inputs(request)
    _check_outputs(request, has_bucket)
    check_environment(request.get("Environment", {}))
    run_request, instances = run_request_of(request), cluster.get("InstanceCount", 1)
    check_network(run_request, capabilities=capabilities, instances=instances, at="networkConfig.")
    check_capacity(run_request, capabilities=capabilities, instances=instances, member=f"{_CLUSTER}.instanceCount")


def _check_application(request: Mapping[str, Any], capabilities: Capabilities) -> None:
    application = request["AppSpecification"]
    try:
        capabilities.frameworks.of_training(run_request_of(request))
    except ValueError as error:
        raise refusal("appSpecification.imageUri", application["ImageUri"], str(error)) from error
    command = application.get("ContainerEntrypoint", ())
    if not command:
        raise refusal(
            "appSpecification.containerEntrypoint",
            None,
            "images are not run here, so their own entry points are unknown: give the command, e.g."
            f" ['python3', '{PROCESSING_DIRECTORY}/input/code/prepare.py']",
        )
    for member in ("ContainerEntrypoint", "ContainerArguments"):
        for index, each in enumerate(application.get(member, ()), start=1):
            if "\0" in each:
                at = f"appSpecification.{member[0].lower()}{member[1:]}.{index}.member"
                raise refusal(at, each, "a NUL character cannot be passed as an argument")


def _check_inputs(request: Mapping[str, Any]) -> None:
    inputs = request.get("ProcessingInputs", ())
    _check_names([each["InputName"] for each in inputs], "processingInputs", "inputName")
    for index, each in enumerate(inputs, start=1):
        at = f"processingInputs.{index}.member"
        source = each.get("S3Input")
        if source is None:
            raise refusal(f"{at}.s3Input", None, "an S3Input is required")
        check_s3_uri(source["S3Uri"], f"{at}.s3Input.s3Uri")
        if not each.get("AppManaged"):
            _check_path(source, f"{at}.s3Input.localPath")


def _check_outputs(request: Mapping[str, Any], has_bucket: Callable[[str], bool]) -> None:
    outputs = request.get("ProcessingOutputConfig", {}).get("Outputs", ())
    _check_names([each["OutputName"] for each in outputs], "processingOutputConfig.outputs", "outputName")
    for index, each in enumerate(outputs, start=1):
        at = f"processingOutputConfig.outputs.{index}.member"
        target = each.get("S3Output")
        if target is None:
            raise refusal(f"{at}.s3Output", None, "an S3Output is required")
        check_target(target["S3Uri"], f"{at}.s3Output.s3Uri", has_bucket=has_bucket)
        if not each.get("AppManaged"):
            _check_path(target, f"{at}.s3Output.localPath")


def _check_names(names: list[str], at: str, member: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise refusal(f"{at}.{index + 1}.member.{member}", name, "names are unique; rename one of them")


def _check_path(place: Mapping[str, Any], member: str) -> None:
    path = place.get("LocalPath")
    try:
        where_below_ml(path or "")
    except ValueError as error:
        raise refusal(member, path, str(error)) from error
