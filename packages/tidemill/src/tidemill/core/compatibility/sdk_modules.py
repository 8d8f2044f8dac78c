"""Rows of the arguments of what `tidemill.compat` provides besides estimators, by callable: pipelines, S3, names."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Sent, honored
from tidemill.core.compatibility.sdk_rows import SESSION, Arguments, sent

_CREATION: Arguments = {
    **honored("name", "display_name", "description", "depends_on", "retry_policies"),
}
_STEP: Arguments = {**_CREATION, "cache_config": Honored("refused by the service for steps that create no job")}
_STEP_ARGS: Arguments = {"step_args": Honored("what a call with a PipelineSession returned")}
_RULE: Arguments = {
    name: Recorded("no rule is evaluated")
    for name in ("name", "parameters", "s3_output_path", "container_local_output_path")
}
_POLICY = honored("exception_types", "backoff_rate", "interval_seconds", "max_attempts", "expire_after_mins")
_CLIENTS = honored("boto_session", "sagemaker_client", "sagemaker_runtime_client", "default_bucket")
_PIPELINE: Arguments = {
    **sent("CreatePipeline", {"role_arn": "RoleArn", "description": "PipelineDescription"}),
    "parallelism_config": Sent("ParallelismConfiguration", "CreatePipeline"),
}
_TAGS: Arguments = {"tags": Sent("Tags", "CreatePipeline")}
_NAME = honored("base", "max_length")
_KMS: Arguments = {"kms_key": Sent("SSEKMSKeyId", "PutObject", "s3")}

_WORKFLOW: Mapping[str, Arguments] = {
    **{name: honored("name", "default_value") for name in ("Parameter", "ParameterBoolean", "ParameterFloat")},
    "ParameterInteger": honored("name", "default_value"),
    "ParameterString": honored("name", "default_value", "enum_values"),
    "ExecutionVariable": honored("name"),
    "Join": honored("on", "values"),
    "JsonGet": honored("step_name", "property_file", "json_path", "s3_uri", "step"),
    "Properties": honored("step", "path", "shapes"),
    "PropertyFile": honored("name", "output_name", "path"),
    **{
        f"Condition{name}": honored("left", "right")
        for name in ("Equals", "GreaterThan", "GreaterThanOrEqualTo", "LessThan", "LessThanOrEqualTo")
    },
    "ConditionIn": honored("value", "in_values"),
    "ConditionNot": honored("expression"),
    "ConditionOr": honored("conditions"),
    "CacheConfig": honored("enable_caching", "expire_after"),
    "RetryPolicy": _POLICY,
    "StepRetryPolicy": _POLICY,
    "SageMakerJobStepRetryPolicy": {**_POLICY, "failure_reason_types": Honored()},
    "ParallelismConfiguration": honored("max_parallel_execution_steps"),
    "SelectiveExecutionConfig": honored(
        "selected_steps", "reference_latest_execution", "source_pipeline_execution_arn"
    ),
    "PipelineExperimentConfig": honored("experiment_name", "trial_name"),
    "PipelineDefinitionConfig": honored("use_custom_job_prefix"),
    "Step": _STEP,
    "Step.add_depends_on": honored("step_names"),
    "Step.add_retry_policy": honored("retry_policy"),
    "Step.definition": honored("pipeline", "keeps_prefix"),
    "StepCollection": honored("name", "steps"),
    "TrainingStep": {**_STEP, **_STEP_ARGS, **honored("estimator", "inputs")},
    "ProcessingStep": {
        **_STEP,
        **_STEP_ARGS,
        **honored("processor", "inputs", "outputs", "job_arguments", "code", "property_files"),
        **_KMS,
    },
    "ProcessingStep.definition": honored("pipeline", "keeps_prefix"),
    "TuningStep": {**_STEP, **_STEP_ARGS, **honored("tuner", "inputs")},
    "TuningStep.get_top_model_s3_uri": honored("top_k", "s3_bucket", "prefix"),
    "TransformStep": {**_STEP, **_STEP_ARGS, **honored("transformer", "inputs")},
    "EndpointConfigStep": {**_STEP, **_STEP_ARGS},
    "EndpointStep": {**_STEP, **_STEP_ARGS},
    "FailStep": {**_STEP, "error_message": Honored()},
    "ConditionStep": {**_STEP, **honored("conditions", "if_steps", "else_steps")},
    "CreateModelStep": {**_CREATION, **_STEP_ARGS, **honored("model", "inputs")},
    "ModelStep": {**_CREATION, **_STEP_ARGS, "repack_model_step_settings": Honored("arguments of TensorFlow")},
    "RegisterModel": {
        **honored("name", "estimator", "model_data", "model", "depends_on", "display_name", "description"),
        **honored("repack_model_step_retry_policies", "register_model_step_retry_policies"),
        **sent(
            "CreateModelPackage",
            {
                "content_types": "InferenceSpecification.SupportedContentTypes",
                "response_types": "InferenceSpecification.SupportedResponseMIMETypes",
                "inference_instances": "InferenceSpecification.SupportedRealtimeInferenceInstanceTypes",
                "transform_instances": "InferenceSpecification.SupportedTransformInstanceTypes",
            },
        ),
        "**arguments": Honored("as of Model.register and TensorFlow.create_model"),
    },
    "Pipeline": {
        **honored("name", "parameters", "pipeline_experiment_config", "steps", "pipeline_definition_config"),
        **SESSION,
    },
    "Pipeline.create": {**_PIPELINE, **_TAGS},
    "Pipeline.update": _PIPELINE,
    "Pipeline.upsert": {**_PIPELINE, **_TAGS},
    "Pipeline.describe": {"pipeline_version_id": Sent("PipelineVersionId", "DescribePipeline")},
    "Pipeline.start": sent(
        "StartPipelineExecution",
        {
            "parameters": "PipelineParameters",
            "execution_display_name": "PipelineExecutionDisplayName",
            "execution_description": "PipelineExecutionDescription",
            "parallelism_config": "ParallelismConfiguration",
            "selective_execution_config": "SelectiveExecutionConfig",
            "pipeline_version_id": "PipelineVersionId",
        },
    ),
    "Pipeline.list_executions": honored("sort_by", "sort_order", "max_results", "next_token"),
    "Pipeline.list_pipeline_versions": honored("sort_order", "max_results", "next_token"),
    "Pipeline.build_parameters_from_execution": honored("pipeline_execution_arn", "parameter_value_overrides"),
    "PipelineSession": _CLIENTS,
    "LocalPipelineSession": _CLIENTS,
    "is_pipeline_variable": honored("var"),
}

ARGUMENTS: Mapping[str, Arguments] = {
    **_WORKFLOW,
    "S3Uploader.upload": {**honored("local_path", "desired_s3_uri", "callback"), **SESSION, **_KMS},
    "S3Uploader.upload_string_as_file_body": {**honored("body", "desired_s3_uri"), **SESSION, **_KMS},
    "S3Uploader.upload_bytes": {**honored("b", "s3_uri"), **SESSION, **_KMS},
    "S3Downloader.download": {
        **honored("s3_uri", "local_path"),
        **SESSION,
        "kms_key": Recorded("an object knows its key"),
    },
    "S3Downloader.read_file": {**honored("s3_uri"), **SESSION},
    "S3Downloader.read_bytes": {**honored("s3_uri"), **SESSION},
    "S3Downloader.list": {**honored("s3_uri"), **SESSION},
    "parse_s3_url": honored("url"),
    "s3_path_join": honored("*args", "with_end_slash"),
    "determine_bucket_and_prefix": {**honored("bucket", "key_prefix"), **SESSION},
    "base_from_name": honored("name"),
    "base_name_from_image": honored("image", "default_base_name"),
    "get_short_version": honored("framework_version"),
    "name_from_base": {**_NAME, "short": Honored()},
    "name_from_image": honored("image", "max_length"),
    "to_string": honored("obj"),
    "unique_name_from_base": _NAME,
    "retrieve": {
        "framework": Honored("`tensorflow` or `sklearn`; others are refused"),
        **honored("region", "version", "py_version", "instance_type", "image_scope"),
        "accelerator_type": Recorded("AWS no longer offers these accelerators"),
        "**others": Recorded("they belong to other images"),
    },
    "TrainingJobAnalytics": {
        **honored("training_job_name", "metric_names", "start_time", "end_time", "period"),
        **SESSION,
    },
    "ExperimentAnalytics": {
        **honored("experiment_name", "search_expression", "sort_by", "sort_order", "metric_names", "parameter_names"),
        **honored("input_artifact_names", "output_artifact_names"),
        **SESSION,
    },
    "MultiDataModel": {
        **honored("name", "model", "image_uri", "role"),
        **SESSION,
        "model_data_prefix": Sent("PrimaryContainer.ModelDataUrl", "CreateModel"),
        "**arguments": Honored("as of Model"),
    },
    "MultiDataModel.container": honored("instance_type"),
    "MultiDataModel.add_model": honored("model_data_source", "model_data_path"),
    "Estimator": {
        **honored("image_uri", "role", "instance_count", "instance_type"),
        "entry_point": Honored("required: the program of an image is not run"),
        "**arguments": Honored("as of TensorFlow"),
    },
    "production_variant": {
        **sent(
            "CreateEndpointConfig",
            {
                "model_name": "ProductionVariants[].ModelName",
                "instance_type": "ProductionVariants[].InstanceType",
                "initial_instance_count": "ProductionVariants[].InitialInstanceCount",
                "variant_name": "ProductionVariants[].VariantName",
                "initial_weight": "ProductionVariants[].InitialVariantWeight",
                "serverless_inference_config": "ProductionVariants[].ServerlessConfig",
                "volume_size": "ProductionVariants[].VolumeSizeInGB",
                "model_data_download_timeout": "ProductionVariants[].ModelDataDownloadTimeoutInSeconds",
                "container_startup_health_check_timeout": (
                    "ProductionVariants[].ContainerStartupHealthCheckTimeoutInSeconds"
                ),
            },
        ),
        "accelerator_type": Recorded("AWS no longer offers these accelerators"),
    },
    "CreateModelInput": {
        "instance_type": Honored("selects the image"),
        "accelerator_type": Recorded("AWS no longer offers these accelerators"),
    },
    "TransformInput": honored(
        *("data", "data_type", "content_type", "compression_type", "split_type", "input_filter", "output_filter"),
        *("join_source", "model_client_config", "batch_data_capture_config"),
    ),
    "CollectionConfig": {name: Recorded("there is no debugger") for name in ("name", "parameters")},
    "DebuggerHookConfig": {
        name: Recorded("there is no debugger")
        for name in ("s3_output_path", "container_local_output_path", "hook_parameters", "collection_configs")
    },
    "TensorBoardOutputConfig": sent(
        "CreateTrainingJob",
        {
            "s3_output_path": "TensorBoardOutputConfig.S3OutputPath",
            "container_local_output_path": "TensorBoardOutputConfig.LocalPath",
        },
    ),
    "ProfilerConfig": {
        **{
            name: Recorded("there is no profiler")
            for name in ("s3_output_path", "system_monitor_interval_millis", "disable_profiler")
        },
        "framework_profile_params": Refused(
            "is not supported: there is no profiler of SageMaker here; profile the script by tf.profiler, and write to"
            " a directory that tensorboard_output_config copies"
        ),
    },
    "Rule": _RULE,
    "ProfilerRule": _RULE,
}
