"""Build CreateTrainingJob requests with the same members as AWS's estimators."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.core import hyperparameters as hps
from tidemill.sdk import distribution as distributions
from tidemill.sdk.arguments import Arguments, present, tags_of
from tidemill.sdk.compiler import compiler_hyperparameters
from tidemill.sdk.instance_group import groups_in_request
from tidemill.sdk.run_context import current_config
from tidemill.sdk.variable import is_pipeline_variable


def job_hyperparameters(
    arguments: Arguments, *, job_name: str, entry_point: str, code_uri: str, region: str, model_dir: str | None
) -> dict[str, Any]:
    """Return all hyperparameters of a job, JSON-encoded: the user's and then the platform's ``sagemaker_*``.

    Args:
        arguments: Arguments of the estimator.
        job_name: Name of the job.
        entry_point: Path of the script within the code.
        code_uri: S3 URI of sourcedir.tar.gz.
        region: AWS region of the session.
        model_dir: S3 URI; None to leave it out.

    Returns:
        JSON text by hyperparameter, or the variable of a pipeline.
    """
    values = dict(arguments.hyperparameters)
    values |= {
        "sagemaker_submit_directory": code_uri,
        "sagemaker_program": entry_point,
        "sagemaker_container_log_level": arguments.container_log_level,
        "sagemaker_job_name": job_name,
        "sagemaker_region": region,
    }
    values |= distributions.to_hyperparameters(arguments.distribution, instance_type=arguments.instance_type)
    if model_dir is not None:
        values["model_dir"] = model_dir
    values |= compiler_hyperparameters(arguments.compiler_config)
    encoded = hps.encode({name: value for name, value in values.items() if not is_pipeline_variable(value)})
    return {**encoded, **{name: each.to_string() for name, each in values.items() if is_pipeline_variable(each)}}


def training_request(
    arguments: Arguments,
    *,
    job_name: str,
    role_arn: str,
    image: str,
    output_path: str,
    hyperparameters: Mapping[str, str],
    channels: Sequence[Mapping[str, Any]],
    experiment_config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the request, without the members whose arguments are not set.

    Args:
        arguments: Arguments of the estimator.
        job_name: Name of the job.
        role_arn: ARN of the role.
        image: URI of the training image.
        output_path: S3 URI of the output.
        hyperparameters: As `job_hyperparameters` returns them.
        channels: Members of InputDataConfig.
        experiment_config: Member of that name. Default: that of the enclosing `Run`, if any.

    Returns:
        Members of CreateTrainingJob.
    """
    return present(
        TrainingJobName=job_name,
        AlgorithmSpecification=_algorithm(arguments, image),
        RoleArn=role_arn,
        HyperParameters=dict(hyperparameters),
        InputDataConfig=[*map(dict, channels), *_model_channel(arguments)] or None,
        OutputDataConfig=present(
            S3OutputPath=output_path,
            KmsKeyId=arguments.output_kms_key,
            CompressionType="NONE" if arguments.disable_output_compression else None,
        ),
        ResourceConfig=_resources(arguments),
        StoppingCondition=present(MaxRuntimeInSeconds=arguments.max_run, MaxWaitTimeInSeconds=arguments.max_wait),
        Environment=_texts(arguments.environment),
        Tags=tags_of(arguments.tags),
        VpcConfig=arguments.vpc_config,
        ExperimentConfig=experiment_config or current_config(),
        EnableNetworkIsolation=arguments.enable_network_isolation or None,
        EnableInterContainerTrafficEncryption=arguments.encrypt_inter_container_traffic or None,
        EnableManagedSpotTraining=arguments.use_spot_instances or None,
        CheckpointConfig=_checkpoints(arguments),
        RetryStrategy=None
        if arguments.max_retry_attempts is None
        else {"MaximumRetryAttempts": arguments.max_retry_attempts},
        TensorBoardOutputConfig=_structure(arguments.tensorboard_output_config),
        DebugHookConfig=_structure(arguments.debugger_hook_config),
        ProfilerConfig=_structure(arguments.profiler_config),
        **_rules(arguments.rules or ()),
    )


def _algorithm(arguments: Arguments, image: str) -> dict[str, Any]:
    return present(
        TrainingImage=image,
        TrainingInputMode=arguments.input_mode,
        MetricDefinitions=_list(arguments.metric_definitions),
        EnableSageMakerMetricsTimeSeries=arguments.enable_sagemaker_metrics,
        ContainerEntrypoint=_list(arguments.container_entry_point),
        ContainerArguments=_list(arguments.container_arguments),
    )


def _resources(arguments: Arguments) -> dict[str, Any]:
    common = present(
        VolumeSizeInGB=arguments.volume_size,
        VolumeKmsKeyId=arguments.volume_kms_key,
        KeepAlivePeriodInSeconds=arguments.keep_alive_period_in_seconds,
    )
    if arguments.instance_groups:
        return {"InstanceGroups": groups_in_request(arguments.instance_groups), **common}
    return {"InstanceCount": arguments.instance_count, "InstanceType": arguments.instance_type, **common}


def _model_channel(arguments: Arguments) -> list[dict[str, Any]]:
    """Return the channel of a model to start from, if there is one."""
    if arguments.model_uri is None:
        return []
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": arguments.model_uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    return [
        {
            "DataSource": {"S3DataSource": source},
            "ContentType": "application/x-sagemaker-model",
            "InputMode": "File",
            "ChannelName": arguments.model_channel_name,
        }
    ]


def _checkpoints(arguments: Arguments) -> dict[str, str] | None:
    if arguments.checkpoint_s3_uri is None:
        if arguments.checkpoint_local_path is not None:
            raise ValueError(
                f"checkpoint_local_path={arguments.checkpoint_local_path!r} says where checkpoints lie in the job;"
                " checkpoint_s3_uri, where they are kept, is missing"
            )
        return None
    return present(S3Uri=arguments.checkpoint_s3_uri, LocalPath=arguments.checkpoint_local_path)


def _structure(value: Any) -> Any:
    """Return a member given as a dictionary or as one of AWS's configuration objects; False means none."""
    if value is None or value is False:
        return None
    if isinstance(value, Mapping):
        return dict(value)
    convert = getattr(value, "_to_request_dict", None)
    if convert is None:
        raise ValueError(f"{value!r} ({type(value).__name__}) cannot be sent; expected a dictionary in the API's form")
    return convert()


def _rules(rules: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the members for rules: AWS's objects of both kinds, or dictionaries in the API's form for Debugger."""
    kinds = {
        "to_debugger_rule_config_dict": "DebugRuleConfigurations",
        "to_profiler_rule_config_dict": "ProfilerRuleConfigurations",
    }
    members: dict[str, list[dict[str, Any]]] = {}
    for rule in rules:
        if isinstance(rule, Mapping):
            members.setdefault("DebugRuleConfigurations", []).append(dict(rule))
            continue
        method = next((each for each in kinds if hasattr(rule, each)), None)
        if method is None:
            raise ValueError(
                f"rules: {rule!r} ({type(rule).__name__}) cannot be sent; expected a Rule or ProfilerRule of AWS's SDK,"
                " or a dictionary in the API's form"
            )
        members.setdefault(kinds[method], []).append(getattr(rule, method)())
    return members


def _texts(environment: Mapping[str, str] | None) -> dict[str, str] | None:
    if not environment:
        return None
    for name, value in environment.items():
        if not isinstance(value, str) and not is_pipeline_variable(value):
            raise ValueError(f"environment[{name!r}]={value!r} ({type(value).__name__}); expected a string")
    return dict(environment)


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
