"""Rows of the arguments of the processors of `tidemill.sdk`."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Refused, Sent, honored
from tidemill.core.compatibility.sdk_rows import CODE, GIT, SESSION, Arguments, sent

_PROCESSOR: Arguments = {
    **honored("base_job_name"),
    **SESSION,
    **sent(
        "CreateProcessingJob",
        {
            "role": "RoleArn",
            "image_uri": "AppSpecification.ImageUri",
            "instance_count": "ProcessingResources.ClusterConfig.InstanceCount",
            "instance_type": "ProcessingResources.ClusterConfig.InstanceType",
            "volume_size_in_gb": "ProcessingResources.ClusterConfig.VolumeSizeInGB",
            "volume_kms_key": "ProcessingResources.ClusterConfig.VolumeKmsKeyId",
            "output_kms_key": "ProcessingOutputConfig.KmsKeyId",
            "max_runtime_in_seconds": "StoppingCondition.MaxRuntimeInSeconds",
            "env": "Environment",
            "tags": "Tags",
            "network_config": "NetworkConfig",
        },
    ),
}

_COMMAND: Arguments = {"command": Sent("AppSpecification.ContainerEntrypoint", "CreateProcessingJob")}

_FRAMEWORK_PROCESSOR: Arguments = {
    **_PROCESSOR,
    **_COMMAND,
    "framework_version": Honored("as for the estimator"),
    "py_version": Honored("as for the estimator"),
    "code_location": Honored(),
}

_RUN: Arguments = {
    **honored("wait", "logs", "job_name"),
    **sent(
        "CreateProcessingJob",
        {
            "inputs": "ProcessingInputs",
            "outputs": "ProcessingOutputConfig.Outputs",
            "arguments": "AppSpecification.ContainerArguments",
            "experiment_config": "ExperimentConfig",
        },
    ),
    "kms_key": Sent("SSEKMSKeyId", "PutObject", "s3"),
}

ARGUMENTS: Mapping[str, Arguments] = {
    "Processor": {**_PROCESSOR, "entrypoint": Sent("AppSpecification.ContainerEntrypoint", "CreateProcessingJob")},
    "Processor.run": _RUN,
    "ScriptProcessor": {**_PROCESSOR, **_COMMAND},
    "RunArgs": honored("code", "inputs", "outputs", "arguments"),
    "ScriptProcessor.get_run_args": honored("code", "inputs", "outputs", "arguments"),
    "FrameworkProcessor.get_run_args": honored(
        *("code", "source_dir", "dependencies", "git_config", "inputs", "outputs", "arguments", "job_name")
    ),
    "ScriptProcessor.run": {**_RUN, "code": Honored("a file or an S3 URI")},
    "FrameworkProcessor": {
        **_FRAMEWORK_PROCESSOR,
        "estimator_cls": Honored("`TensorFlow`; any class with an image_uri"),
    },
    "FrameworkProcessor.run": {
        **_RUN,
        **CODE,
        **GIT,
        "code": Honored("a file, or an S3 URI"),
        "codeartifact_repo_arn": Refused("is not supported: there is no CodeArtifact; configure pip by env"),
    },
    "TensorFlowProcessor": _FRAMEWORK_PROCESSOR,
    "SKLearnProcessor": {
        **{name: row for name, row in _PROCESSOR.items() if name != "image_uri"},
        **_COMMAND,
        "framework_version": Honored("named in the log; the newest scikit-learn runs"),
    },
    "ProcessingInput": {
        **sent(
            "CreateProcessingJob",
            {
                "source": "ProcessingInputs[].S3Input.S3Uri",
                "destination": "ProcessingInputs[].S3Input.LocalPath",
                "input_name": "ProcessingInputs[].InputName",
                "s3_data_type": "ProcessingInputs[].S3Input.S3DataType",
                "s3_input_mode": "ProcessingInputs[].S3Input.S3InputMode",
                "s3_data_distribution_type": "ProcessingInputs[].S3Input.S3DataDistributionType",
                "s3_compression_type": "ProcessingInputs[].S3Input.S3CompressionType",
                "s3_input": "ProcessingInputs[].S3Input",
                "app_managed": "ProcessingInputs[].AppManaged",
            },
        ),
        "dataset_definition": Refused(
            "is not supported: there is neither Athena nor Redshift here; put the result into S3, and name it by source"
        ),
    },
    "ProcessingOutput": {
        **sent(
            "CreateProcessingJob",
            {
                "source": "ProcessingOutputConfig.Outputs[].S3Output.LocalPath",
                "destination": "ProcessingOutputConfig.Outputs[].S3Output.S3Uri",
                "output_name": "ProcessingOutputConfig.Outputs[].OutputName",
                "s3_upload_mode": "ProcessingOutputConfig.Outputs[].S3Output.S3UploadMode",
                "app_managed": "ProcessingOutputConfig.Outputs[].AppManaged",
            },
        ),
        "feature_store_output": Refused("is not supported: there is no feature store here; name a destination"),
    },
    "ProcessingJob": honored("session", "name", "inputs", "outputs", "output_kms_key"),
    "ProcessingJob.from_processing_name": {"processing_job_name": Honored(), **SESSION},
    "ProcessingJob.from_processing_arn": {"processing_job_arn": Honored(), **SESSION},
    "NetworkConfig": sent(
        "CreateProcessingJob",
        {
            "enable_network_isolation": "NetworkConfig.EnableNetworkIsolation",
            "security_group_ids": "NetworkConfig.VpcConfig",
            "subnets": "NetworkConfig.VpcConfig",
            "encrypt_inter_container_traffic": "NetworkConfig.EnableInterContainerTrafficEncryption",
        },
    ),
}
