"""Rows of the arguments of `tidemill.sdk`, by callable: ``TensorFlow``, ``TensorFlow.fit`` and so on."""

from collections.abc import Mapping

from tidemill.core.compatibility import sdk_modules, sdk_processing, sdk_tuning
from tidemill.core.compatibility.hyperparameters import LEGACY_MODE
from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Sent, honored
from tidemill.core.compatibility.sdk_rows import CODE, GIT, SESSION, Arguments, sent

_TYPES: Arguments = {
    "initial_instance_count": Sent("ProductionVariants[].InitialInstanceCount", "CreateEndpointConfig"),
    "instance_type": Sent("ProductionVariants[].InstanceType", "CreateEndpointConfig"),
}
_ENDPOINT_TYPE = Honored("`tensorflow-serving` or `python`")

DISTRIBUTIONS: Arguments = {
    "parameter_server": Sent("HyperParameters.sagemaker_parameter_server_enabled"),
    "mpi": Sent("HyperParameters.sagemaker_mpi_enabled"),
    "smdistributed": Sent("HyperParameters.mp_parameters"),
    "multi_worker_mirrored_strategy": Sent("HyperParameters.sagemaker_multi_worker_mirrored_strategy_enabled"),
    "instance_groups": Sent("HyperParameters.sagemaker_distribution_instance_groups"),
}
"""The kinds of the estimator's ``distribution``."""

_ESTIMATOR: Arguments = {
    **honored("entry_point", "hyperparameters", "base_job_name", "output_path", "code_location"),
    **CODE,
    **GIT,
    **SESSION,
    "framework_version": Honored("a version without an environment runs on the nearest one with a notice in the log"),
    "py_version": Honored(
        "`py2` runs the script on Python 2.7 with TensorFlow 1.15. A Python that the version does not run on is"
        " refused. Default: `py3`, any that it runs on"
    ),
    "script_mode": Honored("the only mode; False is refused if it requests legacy mode"),
    "model_dir": Honored(),
    "distribution": Honored("the kinds have rows below; refused ones are refused at the call"),
    "compiler_config": Sent("HyperParameters.sagemaker_training_compiler_enabled"),
    "container_log_level": Sent("HyperParameters.sagemaker_container_log_level"),
    "disable_profiler": Recorded("there is no profiler"),
    **sent(
        "CreateTrainingJob",
        {
            "role": "RoleArn",
            "instance_count": "ResourceConfig.InstanceCount",
            "instance_type": "ResourceConfig.InstanceType",
            "image_uri": "AlgorithmSpecification.TrainingImage",
            "output_kms_key": "OutputDataConfig.KmsKeyId",
            "input_mode": "AlgorithmSpecification.TrainingInputMode",
            "volume_size": "ResourceConfig.VolumeSizeInGB",
            "volume_kms_key": "ResourceConfig.VolumeKmsKeyId",
            "max_run": "StoppingCondition.MaxRuntimeInSeconds",
            "max_wait": "StoppingCondition.MaxWaitTimeInSeconds",
            "max_retry_attempts": "RetryStrategy",
            "use_spot_instances": "EnableManagedSpotTraining",
            "keep_alive_period_in_seconds": "ResourceConfig.KeepAlivePeriodInSeconds",
            "instance_groups": "ResourceConfig.InstanceGroups",
            "environment": "Environment",
            "tags": "Tags",
            "subnets": "VpcConfig",
            "security_group_ids": "VpcConfig",
            "encrypt_inter_container_traffic": "EnableInterContainerTrafficEncryption",
            "enable_network_isolation": "EnableNetworkIsolation",
            "metric_definitions": "AlgorithmSpecification.MetricDefinitions",
            "enable_sagemaker_metrics": "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
            "checkpoint_s3_uri": "CheckpointConfig",
            "checkpoint_local_path": "CheckpointConfig",
            "model_uri": "InputDataConfig",
            "model_channel_name": "InputDataConfig[].ChannelName",
            "container_entry_point": "AlgorithmSpecification.ContainerEntrypoint",
            "container_arguments": "AlgorithmSpecification.ContainerArguments",
            "disable_output_compression": "OutputDataConfig.CompressionType",
            "tensorboard_output_config": "TensorBoardOutputConfig",
            "debugger_hook_config": "DebugHookConfig",
            "profiler_config": "ProfilerConfig",
            "rules": "DebugRuleConfigurations",
        },
    ),
    "**earlier": Honored("the first SDK's names of these arguments, e.g. train_instance_type"),
    **{
        name: Refused(f"belongs to legacy mode, which ended with TensorFlow 1.12. In script mode {instead}")
        for name, instead in LEGACY_MODE.items()
    },
}

_MODEL: Arguments = {
    **honored("name", "predictor_cls"),
    **SESSION,
    **sent(
        "CreateModel",
        {
            "model_data": "PrimaryContainer.ModelDataUrl",
            "role": "ExecutionRoleArn",
            "image_uri": "PrimaryContainer.Image",
            "env": "PrimaryContainer.Environment",
            "vpc_config": "VpcConfig",
            "enable_network_isolation": "EnableNetworkIsolation",
        },
    ),
}

_OF_ARCHIVES = ("model_data", "image_uri", "enable_network_isolation")
"""Arguments of `Model` that a package has no use for: it has its own archive and image."""

_PREDICTOR: Arguments = {
    **honored("endpoint_name", "serializer", "deserializer", "content_type", "accept"),
    **SESSION,
    "endpoint": Honored("earlier name of endpoint_name"),
}

_PREDICT: Arguments = {
    "data": Honored(),
    "initial_args": Honored("further members of InvokeEndpoint, whose rows decide"),
    **{
        name: Sent(member, "InvokeEndpoint", "sagemaker-runtime")
        for name, member in {
            "target_model": "TargetModel",
            "target_variant": "TargetVariant",
            "inference_id": "InferenceId",
            "custom_attributes": "CustomAttributes",
        }.items()
    },
}

_PREDICT_LATER: Arguments = {
    "data": Honored("uploaded"),
    "initial_args": Honored("further members of InvokeEndpointAsync, whose rows decide"),
    "input_path": Sent("InputLocation", "InvokeEndpointAsync", "sagemaker-runtime"),
    "inference_id": Sent("InferenceId", "InvokeEndpointAsync", "sagemaker-runtime"),
}

_INPUT: Arguments = sent(
    "CreateTrainingJob",
    {
        "s3_data": "InputDataConfig[].DataSource.S3DataSource.S3Uri",
        "distribution": "InputDataConfig[].DataSource.S3DataSource.S3DataDistributionType",
        "compression": "InputDataConfig[].CompressionType",
        "content_type": "InputDataConfig[].ContentType",
        "record_wrapping": "InputDataConfig[].RecordWrapperType",
        "s3_data_type": "InputDataConfig[].DataSource.S3DataSource.S3DataType",
        "input_mode": "InputDataConfig[].InputMode",
        "attribute_names": "InputDataConfig[].DataSource.S3DataSource.AttributeNames",
        "shuffle_config": "InputDataConfig[].ShuffleConfig",
    },
)

_DEPLOY_MODEL: Arguments = {
    **_TYPES,
    **honored("serializer", "deserializer", "endpoint_name", "wait"),
    "update_endpoint": Sent("EndpointConfigName", "UpdateEndpoint"),
    **sent(
        "CreateEndpointConfig",
        {
            "tags": "Tags",
            "kms_key": "KmsKeyId",
            "data_capture_config": "DataCaptureConfig",
            "async_inference_config": "AsyncInferenceConfig",
            "serverless_inference_config": "ProductionVariants[].ServerlessConfig",
            "volume_size": "ProductionVariants[].VolumeSizeInGB",
            "model_data_download_timeout": "ProductionVariants[].ModelDataDownloadTimeoutInSeconds",
            "container_startup_health_check_timeout": (
                "ProductionVariants[].ContainerStartupHealthCheckTimeoutInSeconds"
            ),
        },
    ),
    "accelerator_type": Recorded("AWS no longer offers these accelerators; a warning says so"),
    "explainer_config": Refused("is not supported: there is no explainer"),
    "inference_recommendation_id": Refused("is not supported: there is no Inference Recommender"),
}

_UPDATE_ENDPOINT: Arguments = {
    **_TYPES,
    **sent(
        "CreateEndpointConfig",
        {
            "model_name": "ProductionVariants[].ModelName",
            "tags": "Tags",
            "kms_key": "KmsKeyId",
            "data_capture_config_dict": "DataCaptureConfig",
        },
    ),
    **honored("wait"),
    "accelerator_type": Recorded("AWS no longer offers these accelerators; a warning says so"),
}

_TRANSFORMER: Arguments = sent(
    "CreateTransformJob",
    {
        "instance_count": "TransformResources.InstanceCount",
        "instance_type": "TransformResources.InstanceType",
        "strategy": "BatchStrategy",
        "assemble_with": "TransformOutput.AssembleWith",
        "output_path": "TransformOutput.S3OutputPath",
        "output_kms_key": "TransformOutput.KmsKeyId",
        "accept": "TransformOutput.Accept",
        "env": "Environment",
        "max_concurrent_transforms": "MaxConcurrentTransforms",
        "max_payload": "MaxPayloadInMB",
        "tags": "Tags",
        "volume_kms_key": "TransformResources.VolumeKmsKeyId",
    },
)

_TRANSFORM: Arguments = {
    **honored("job_name", "wait", "logs"),
    **sent(
        "CreateTransformJob",
        {
            "data": "TransformInput.DataSource.S3DataSource.S3Uri",
            "data_type": "TransformInput.DataSource.S3DataSource.S3DataType",
            "content_type": "TransformInput.ContentType",
            "compression_type": "TransformInput.CompressionType",
            "split_type": "TransformInput.SplitType",
            "input_filter": "DataProcessing.InputFilter",
            "output_filter": "DataProcessing.OutputFilter",
            "join_source": "DataProcessing.JoinSource",
            "experiment_config": "ExperimentConfig",
            "model_client_config": "ModelClientConfig",
        },
    ),
    "batch_data_capture_config": Refused("is not supported: transform jobs capture nothing; leave it out"),
}

_ACCELERATOR: Arguments = {"accelerator_type": Recorded("AWS no longer offers these accelerators")}
_CLIENTS: Arguments = honored("boto_session", "sagemaker_client", "sagemaker_runtime_client", "default_bucket")

_SESSION_METHODS: Mapping[str, Arguments] = {
    "adopt": honored("session"),
    "delete_endpoint": honored("endpoint_name"),
    "delete_endpoint_config": honored("endpoint_config_name"),
    "delete_model": honored("model_name"),
    "describe_training_job": honored("job_name"),
    "download_data": honored("path", "bucket", "key_prefix"),
    "ensure_bucket": honored("bucket"),
    "expand_role": honored("role"),
    "read_s3_file": honored("bucket", "key_prefix"),
    "code_prefix": honored("prefix", "content"),
    "create_endpoint": {
        **sent(
            "CreateEndpoint", {"endpoint_name": "EndpointName", "config_name": "EndpointConfigName", "tags": "Tags"}
        ),
        "wait": Honored(),
    },
    "create_endpoint_config": {
        **sent(
            "CreateEndpointConfig",
            {
                "name": "EndpointConfigName",
                "model_name": "ProductionVariants[].ModelName",
                "initial_instance_count": "ProductionVariants[].InitialInstanceCount",
                "instance_type": "ProductionVariants[].InstanceType",
                "tags": "Tags",
                "kms_key": "KmsKeyId",
                "data_capture_config_dict": "DataCaptureConfig",
                "production_variants": "ProductionVariants",
            },
        ),
        **_ACCELERATOR,
    },
    "create_model": sent(
        "CreateModel",
        {
            "name": "ModelName",
            "role": "ExecutionRoleArn",
            "container_defs": "PrimaryContainer",
            "primary_container": "PrimaryContainer",
            "vpc_config": "VpcConfig",
            "enable_network_isolation": "EnableNetworkIsolation",
            "tags": "Tags",
        },
    ),
    "endpoint_from_production_variants": {
        **sent(
            "CreateEndpointConfig",
            {
                "name": "EndpointConfigName",
                "production_variants": "ProductionVariants",
                "tags": "Tags",
                "kms_key": "KmsKeyId",
                "data_capture_config_dict": "DataCaptureConfig",
                "async_inference_config_dict": "AsyncInferenceConfig",
            },
        ),
        "wait": Honored(),
    },
    "job_prefix": honored("job_name"),
    "list_s3_files": honored("bucket", "key_prefix"),
    "logs_for_job": {
        **honored("job_name", "wait", "log_type"),
        "poll": Recorded("new lines are asked for as soon as they can be there"),
        "timeout": Refused("is not possible here; leave it out, or give the estimator max_run"),
    },
    **{
        f"logs_for_{kind}_job": {**honored("job_name", "wait"), "poll": Recorded("as for logs_for_job")}
        for kind in ("processing", "transform")
    },
    **{
        f"wait_for_{kind}_job": {**honored("job"), "poll": Recorded("as for wait_for_job")}
        for kind in ("processing", "transform")
    },
    "output_place": honored("job_name", "*tail"),
    "recording": honored("context"),
    "stop_training_job": honored("job_name"),
    "wait_for_job": {**honored("job"), "poll": Recorded("the end is noticed as soon as it can be")},
    "upload_data": {
        **honored("path", "bucket", "key_prefix", "callback"),
        "extra_args": Honored("further members of PutObject, whose rows decide"),
    },
    "upload_string_as_file_body": {
        **honored("body", "bucket", "key"),
        "kms_key": Sent("SSEKMSKeyId", "PutObject", "s3"),
    },
}

_SERIALIZER_CLASSES = (
    *("CSVSerializer", "IdentitySerializer", "JSONLinesSerializer", "JSONSerializer"),
    *("NumpySerializer", "StringSerializer"),
)
_DESERIALIZER_CLASSES = (
    *("BytesDeserializer", "CSVDeserializer", "JSONDeserializer", "JSONLinesDeserializer"),
    *("NumpyDeserializer", "StreamDeserializer", "StringDeserializer"),
)

_SERIALIZERS: Mapping[str, Arguments] = {
    **{name: honored("content_type") for name in _SERIALIZER_CLASSES},
    **{f"{name}.serialize": honored("data") for name in _SERIALIZER_CLASSES},
    **{name: honored("accept") for name in _DESERIALIZER_CLASSES},
    **{
        f"{name}.deserialize": {
            "stream": Honored(),
            "content_type": Recorded("the deserializer is chosen by the caller; AWS's SDK ignores it as well"),
        }
        for name in _DESERIALIZER_CLASSES
    },
    "BaseSerializer.serialize": honored("data"),
    "SimpleBaseSerializer": honored("content_type"),
    "BaseDeserializer.deserialize": honored("stream", "content_type"),
    "SimpleBaseDeserializer": honored("accept"),
    "NumpySerializer": honored("dtype", "content_type"),
    "NumpyDeserializer": honored("dtype", "accept", "allow_pickle"),
    "NumpyDeserializer.deserialize": honored("stream", "content_type"),
    "StreamDeserializer.deserialize": honored("stream", "content_type"),
    "CSVDeserializer": honored("encoding", "accept"),
    "StringDeserializer": honored("encoding", "accept"),
}

ARGUMENTS: Mapping[str, Arguments] = {
    "TensorFlow": _ESTIMATOR,
    "TensorFlow.fit": {
        **honored("wait", "logs", "job_name", "run_tensorboard_locally"),
        "inputs": Honored("S3 URIs, `file://PATH`, TrainingInput"),
        "experiment_config": Sent("ExperimentConfig"),
    },
    "TensorFlow.set_hyperparameters": honored("**hyperparameters"),
    "TensorFlow.attach": {
        "training_job_name": Honored(),
        **SESSION,
        "model_channel_name": Recorded("the channel is recognized by its content"),
    },
    "TensorFlow.create_model": {
        "role": Sent("ExecutionRoleArn", "CreateModel"),
        "entry_point": Honored(),
        **CODE,
        "endpoint_type": _ENDPOINT_TYPE,
        "vpc_config_override": Sent("VpcConfig", "CreateModel"),
        "**arguments": Honored("as of TensorFlowModel"),
    },
    "TensorFlow.deploy": {
        **_TYPES,
        **honored("model_name", "entry_point"),
        **CODE,
        "env": Sent("PrimaryContainer.Environment", "CreateModel"),
        "endpoint_type": _ENDPOINT_TYPE,
        "**arguments": Honored("as of Model.deploy"),
    },
    "TensorFlow.transformer": {
        **_TRANSFORMER,
        "env": Sent("PrimaryContainer.Environment", "CreateModel"),
        "role": Sent("ExecutionRoleArn", "CreateModel"),
        "vpc_config_override": Sent("VpcConfig", "CreateModel"),
        "enable_network_isolation": Sent("EnableNetworkIsolation", "CreateModel"),
        **honored("entry_point", "model_name"),
    },
    "InstanceGroup": {
        "instance_group_name": Sent("ResourceConfig.InstanceGroups[].InstanceGroupName"),
        "instance_type": Sent("ResourceConfig.InstanceGroups[].InstanceType"),
        "instance_count": Sent("ResourceConfig.InstanceGroups[].InstanceCount"),
    },
    "TrainingCompilerConfig": {
        "enabled": Sent("HyperParameters.sagemaker_training_compiler_enabled"),
        "debug": Sent("HyperParameters.sagemaker_training_compiler_debug_mode"),
        "max_cost": Sent("HyperParameters.sagemaker_training_compiler_max_cost"),
    },
    "TrainingInput": {
        **_INPUT,
        "instance_groups": Sent("InputDataConfig[].DataSource.S3DataSource.InstanceGroupNames"),
        "target_attribute_name": Refused("belongs to AutoML jobs; a training channel has attribute_names"),
    },
    "s3_input": _INPUT,
    "ShuffleConfig": {"seed": Sent("InputDataConfig[].ShuffleConfig.Seed")},
    "TrainingJob": honored("session", "name", "hint"),
    "TrainingJob.wait": honored("logs"),
    "Model": _MODEL,
    "Model.container": honored("instance_type"),
    "TensorFlow.register": {
        "model_name": Sent("ModelName", "CreateModel"),
        "**arguments": Honored("as of Model.register and TensorFlow.create_model"),
    },
    "Model.create": {
        **_ACCELERATOR,
        "serverless_inference_config": Recorded("every image runs on processors; give it to deploy, too"),
        "instance_type": Recorded("selects the image of a model without one; every type is this machine"),
        "tags": Sent("Tags", "CreateModel"),
    },
    "Model.deploy": _DEPLOY_MODEL,
    "Model.register": {
        **sent(
            "CreateModelPackage",
            {
                "content_types": "InferenceSpecification.SupportedContentTypes",
                "response_types": "InferenceSpecification.SupportedResponseMIMETypes",
                "inference_instances": "InferenceSpecification.SupportedRealtimeInferenceInstanceTypes",
                "transform_instances": "InferenceSpecification.SupportedTransformInstanceTypes",
                "model_package_name": "ModelPackageName",
                "model_package_group_name": "ModelPackageGroupName",
                "image_uri": "InferenceSpecification.Containers[].Image",
                "model_metrics": "ModelMetrics",
                "metadata_properties": "MetadataProperties",
                "approval_status": "ModelApprovalStatus",
                "description": "ModelPackageDescription",
                "drift_check_baselines": "DriftCheckBaselines",
                "customer_metadata_properties": "CustomerMetadataProperties",
                "domain": "Domain",
                "task": "Task",
                "sample_payload_url": "SamplePayloadUrl",
                "validation_specification": "ValidationSpecification",
                "framework": "InferenceSpecification.Containers[].Framework",
                "framework_version": "InferenceSpecification.Containers[].FrameworkVersion",
                "nearest_model_name": "InferenceSpecification.Containers[].NearestModelName",
                "data_input_configuration": "InferenceSpecification.Containers[].ModelInput",
                "skip_model_validation": "SkipModelValidation",
                "source_uri": "SourceUri",
                "tags": "Tags",
            },
        ),
        "marketplace_cert": Refused("there is no AWS Marketplace; leave it out"),
    },
    "ModelPackage": {
        **{name: row for name, row in _MODEL.items() if name not in _OF_ARCHIVES},
        "model_package_arn": Sent("PrimaryContainer.ModelPackageName", "CreateModel"),
    },
    "ModelPackage.container": honored("instance_type"),
    "ModelPackage.update_approval_status": sent(
        "UpdateModelPackage",
        {"approval_status": "ModelApprovalStatus", "approval_description": "ApprovalDescription"},
    ),
    "ModelPackage.update_customer_metadata": {
        "customer_metadata_properties": Sent("CustomerMetadataProperties", "UpdateModelPackage")
    },
    "ModelPackage.remove_customer_metadata_properties": {
        "customer_metadata_properties_to_remove": Sent("CustomerMetadataPropertiesToRemove", "UpdateModelPackage")
    },
    "MetadataProperties": honored("commit_id", "repository", "generated_by", "project_id"),
    "MetricsSource": honored("content_type", "s3_uri", "content_digest"),
    "ModelMetrics": honored(
        *("model_statistics", "model_constraints", "model_data_statistics", "model_data_constraints"),
        *("bias", "explainability", "bias_pre_training", "bias_post_training"),
    ),
    "Run": {
        **honored("artifact_bucket", "artifact_prefix"),
        **SESSION,
        "experiment_name": Sent("ExperimentName", "CreateExperiment"),
        "run_name": Sent("TrialComponentName", "CreateTrialComponent"),
        "experiment_display_name": Sent("DisplayName", "CreateExperiment"),
        "run_display_name": Sent("DisplayName", "CreateTrialComponent"),
        "tags": Sent("Tags", "CreateTrialComponent"),
    },
    "Run.log_parameter": honored("name", "value"),
    "Run.log_parameters": honored("parameters"),
    "Run.log_metric": honored("name", "value", "timestamp", "step"),
    "Run.log_artifact": honored("name", "value", "media_type", "is_output"),
    "Run.log_file": honored("file_path", "name", "media_type", "is_output", "extra_args"),
    "load_run": {
        **honored("run_name", "experiment_name", "artifact_bucket", "artifact_prefix", "tags"),
        **SESSION,
    },
    "list_runs": {
        **honored("experiment_name", "created_before", "created_after", "max_results", "sort_by", "sort_order"),
        **SESSION,
    },
    "Model.transformer": _TRANSFORMER,
    "Transformer": {
        **_TRANSFORMER,
        **SESSION,
        "model_name": Sent("ModelName", "CreateTransformJob"),
        "base_transform_job_name": Honored(),
    },
    "Transformer.attach": {"transform_job_name": Honored(), **SESSION},
    "Transformer.transform": _TRANSFORM,
    "Transformer.wait": honored("logs"),
    "Transformer.stop_transform_job": honored("wait"),
    "TransformJob": honored("session", "name"),
    **sdk_processing.ARGUMENTS,
    "TensorFlowModel": {
        **_MODEL,
        **CODE,
        **GIT,
        "entry_point": Honored("handlers; they become `code/inference.py` of the archive"),
        "framework_version": Honored("endpoints run on 2.21, with a notice in the log for any other version"),
        "endpoint_type": _ENDPOINT_TYPE,
        "py_version": Honored("of the kind `python`"),
        "container_log_level": Recorded("it is the log level of nginx, which the server does not use"),
        "code_location": Honored(),
        "image": Honored("earlier name of image_uri"),
        "model_server_workers": Honored("processes that run the handlers"),
    },
    "TensorFlowModel.container": honored("instance_type"),
    "TensorFlowModel.use_code": honored("code"),
    "Predictor": _PREDICTOR,
    "Predictor.predict": _PREDICT,
    "Predictor.delete_endpoint": honored("delete_endpoint_config"),
    "Predictor.update_endpoint": _UPDATE_ENDPOINT,
    "Predictor.deserialize": honored("reply"),
    "AsyncInferenceConfig": sent(
        "CreateEndpointConfig",
        {
            "output_path": "AsyncInferenceConfig.OutputConfig.S3OutputPath",
            "max_concurrent_invocations_per_instance": (
                "AsyncInferenceConfig.ClientConfig.MaxConcurrentInvocationsPerInstance"
            ),
            "kms_key_id": "AsyncInferenceConfig.OutputConfig.KmsKeyId",
            "notification_config": "AsyncInferenceConfig.OutputConfig.NotificationConfig",
            "failure_path": "AsyncInferenceConfig.OutputConfig.S3FailurePath",
        },
    ),
    "WaiterConfig": honored("max_attempts", "delay"),
    "AsyncPredictor": honored("predictor", "name"),
    "AsyncPredictor.predict": {**_PREDICT_LATER, "waiter_config": Honored()},
    "AsyncPredictor.predict_async": _PREDICT_LATER,
    "AsyncPredictor.update_endpoint": _UPDATE_ENDPOINT,
    "AsyncPredictor.delete_endpoint": honored("delete_endpoint_config"),
    "AsyncInferenceResponse": honored("predictor_async", "output_path", "failure_path"),
    "AsyncInferenceResponse.get_result": honored("waiter_config"),
    "ServerlessInferenceConfig": sent(
        "CreateEndpointConfig",
        {
            "memory_size_in_mb": "ProductionVariants[].ServerlessConfig.MemorySizeInMB",
            "max_concurrency": "ProductionVariants[].ServerlessConfig.MaxConcurrency",
            "provisioned_concurrency": "ProductionVariants[].ServerlessConfig.ProvisionedConcurrency",
        },
    ),
    "DataCaptureConfig": {
        **sent(
            "CreateEndpointConfig",
            {
                "enable_capture": "DataCaptureConfig.EnableCapture",
                "sampling_percentage": "DataCaptureConfig.InitialSamplingPercentage",
                "destination_s3_uri": "DataCaptureConfig.DestinationS3Uri",
                "kms_key_id": "DataCaptureConfig.KmsKeyId",
                "capture_options": "DataCaptureConfig.CaptureOptions",
                "csv_content_types": "DataCaptureConfig.CaptureContentTypeHeader.CsvContentTypes",
                "json_content_types": "DataCaptureConfig.CaptureContentTypeHeader.JsonContentTypes",
            },
        ),
        **SESSION,
    },
    "DataCaptureConfig.to_request": honored("session"),
    "TensorFlowPredictor": {
        **_PREDICTOR,
        **honored("model_name", "model_version"),
        "component_name": Refused("is not supported: endpoints have production variants; use target_variant"),
    },
    "TensorFlowPredictor.classify": honored("data"),
    "TensorFlowPredictor.regress": honored("data"),
    "Session": _CLIENTS,
    **{f"Session.{method}": arguments for method, arguments in _SESSION_METHODS.items()},
    "LocalSession": _CLIENTS,
    "get_execution_role": SESSION,
    **sdk_tuning.ARGUMENTS,
    **sdk_modules.ARGUMENTS,
    **_SERIALIZERS,
}


def refuse_arguments(function: str, /, **given: object) -> None:
    """Refuse arguments that the SDK itself refuses. The service may refuse others, which are members of a request.

    Args:
        function: A key of `ARGUMENTS`, e.g. ``TensorFlow``.
        **given: Arguments of the function, by name.

    Raises:
        ValueError: An argument has a value that is refused; the message says why.
    """
    for name, value in given.items():
        row = ARGUMENTS[function].get(name)
        reason = row.refusal(value) if isinstance(row, Refused) else None
        if reason is not None:
            raise ValueError(f"{name}={value!r} {reason}")
