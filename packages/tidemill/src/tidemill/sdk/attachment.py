"""An estimator's arguments, read back from the description of its job."""

from collections.abc import Mapping
from typing import Any

from tidemill.core import hyperparameters as hps
from tidemill.core.images import parse_image, training_image
from tidemill.core.names import S3Uri
from tidemill.sdk import distribution as distributions
from tidemill.sdk.compiler import TrainingCompilerConfig
from tidemill.sdk.naming import base_of

_OF_THE_SDK = frozenset({"model_dir", "mp_parameters"})


def arguments_of(description: Mapping[str, Any], *, region: str, with_image: bool = False) -> dict[str, Any]:
    """Return the constructor arguments that create the same job again.

    Args:
        description: What DescribeTrainingJob answers.
        region: AWS region of the registry.
        with_image: Whether the image is named even if the versions select it.

    Raises:
        ValueError: The job was not started by an estimator: its hyperparameters name no entry point.
    """
    values = hps.decode(description.get("HyperParameters", {}))
    if "sagemaker_program" not in values or "sagemaker_submit_directory" not in values:
        raise ValueError(
            f"training job {description['TrainingJobName']} was not started by an estimator: it has no"
            " sagemaker_program; follow it with `tidemill logs -f` or boto3"
        )
    output = description["OutputDataConfig"]
    arguments = {
        "entry_point": values["sagemaker_program"],
        "source_dir": values["sagemaker_submit_directory"],
        "container_log_level": values.get("sagemaker_container_log_level"),
        "role": description["RoleArn"],
        "base_job_name": base_of(description["TrainingJobName"]),
        "hyperparameters": _of_the_user(values),
        "model_dir": values.get("model_dir", False),
        "distribution": distributions.from_hyperparameters(values),
        "compiler_config": _compiler(values),
        "output_path": output["S3OutputPath"],
        "output_kms_key": output.get("KmsKeyId") or None,
        "disable_output_compression": output.get("CompressionType") == "NONE",
        "code_location": _code_location(values["sagemaker_submit_directory"], description),
        "environment": description.get("Environment") or None,
        "use_spot_instances": description.get("EnableManagedSpotTraining", False),
        "enable_network_isolation": description.get("EnableNetworkIsolation", False),
        "encrypt_inter_container_traffic": description.get("EnableInterContainerTrafficEncryption", False),
        "checkpoint_s3_uri": description.get("CheckpointConfig", {}).get("S3Uri"),
        "checkpoint_local_path": description.get("CheckpointConfig", {}).get("LocalPath"),
        "max_retry_attempts": description.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
        "max_run": description["StoppingCondition"]["MaxRuntimeInSeconds"],
        "max_wait": description["StoppingCondition"].get("MaxWaitTimeInSeconds"),
        "subnets": description.get("VpcConfig", {}).get("Subnets"),
        "security_group_ids": description.get("VpcConfig", {}).get("SecurityGroupIds"),
        "tensorboard_output_config": description.get("TensorBoardOutputConfig"),
        "debugger_hook_config": description.get("DebugHookConfig"),
        "profiler_config": description.get("ProfilerConfig"),
        **_algorithm(description["AlgorithmSpecification"], region, with_image=with_image),
        **_resources(description["ResourceConfig"]),
        **_model_channel(description),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _of_the_user(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if not hps.is_reserved(k) and k not in _OF_THE_SDK}


def _compiler(values: Mapping[str, Any]) -> TrainingCompilerConfig | None:
    if "sagemaker_training_compiler_enabled" not in values:
        return None
    max_cost = values.get("sagemaker_training_compiler_max_cost")
    return TrainingCompilerConfig(
        enabled=values["sagemaker_training_compiler_enabled"],
        debug=values.get("sagemaker_training_compiler_debug_mode", False),
        max_cost=None if max_cost is None else float(max_cost),
    )


def _algorithm(specification: Mapping[str, Any], region: str, *, with_image: bool) -> dict[str, Any]:
    return {
        "input_mode": specification["TrainingInputMode"],
        "metric_definitions": specification.get("MetricDefinitions") or None,
        "enable_sagemaker_metrics": specification.get("EnableSageMakerMetricsTimeSeries"),
        "container_entry_point": specification.get("ContainerEntrypoint"),
        "container_arguments": specification.get("ContainerArguments"),
        **_framework(specification["TrainingImage"], region),
        **({"image_uri": specification["TrainingImage"]} if with_image else {}),
    }


def _framework(uri: str, region: str) -> dict[str, Any]:
    """Return framework and Python version of an image, and ``image_uri`` if another image belongs to these versions."""
    image = parse_image(uri)
    version = image.tensorflow_version
    if version is None or image.py_version is None:
        return {"image_uri": uri}
    known = {"framework_version": version, "py_version": image.py_version}
    same = training_image(version, image.py_version, region, device=image.device) == uri
    return known if same else {**known, "image_uri": uri}


def _resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "instance_count": resources.get("InstanceCount"),
        "instance_type": resources.get("InstanceType"),
        "instance_groups": resources.get("InstanceGroups"),
        "volume_size": resources.get("VolumeSizeInGB") or None,
        "volume_kms_key": resources.get("VolumeKmsKeyId") or None,
        "keep_alive_period_in_seconds": resources.get("KeepAlivePeriodInSeconds"),
    }


def _code_location(code: str, description: Mapping[str, Any]) -> str | None:
    """Return the S3 prefix of the uploaded code; None if it is the default one."""
    tail = f"/{description['TrainingJobName']}/source/sourcedir.tar.gz"
    if not code.startswith("s3://") or not code.endswith(tail):
        return None
    location = code.removesuffix(tail)
    bucket = S3Uri.parse(description["OutputDataConfig"]["S3OutputPath"]).bucket
    return None if location == f"s3://{bucket}" else location


def _model_channel(description: Mapping[str, Any]) -> dict[str, Any]:
    for channel in description.get("InputDataConfig", []):
        if channel.get("ContentType") == "application/x-sagemaker-model":
            return {
                "model_uri": channel["DataSource"]["S3DataSource"]["S3Uri"],
                "model_channel_name": channel["ChannelName"],
            }
    return {}
