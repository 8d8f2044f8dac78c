"""TensorFlow: the estimator. Trains a script as a job of the service, and serves the job's model."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Unpack

from tidemill.sdk import attachment, request
from tidemill.sdk.analytics import TrainingJobAnalytics
from tidemill.sdk.arguments import (
    DEPRECATED_ALIASES,
    Arguments,
    check_offered,
    check_script_mode,
    in_order,
    merge_arguments,
    present,
)
from tidemill.sdk.follow import TERMINAL, check_end
from tidemill.sdk.inputs import channels
from tidemill.sdk.markup import table
from tidemill.sdk.model import REGISTERED, ModelPackage
from tidemill.sdk.naming import check_name, image_base, timestamped
from tidemill.sdk.session import Session, warn_of_instance_types
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.staging import Staging
from tidemill.sdk.tensorflow_model import PYTHON_HANDLERS, TensorFlowModel, check_endpoint_type
from tidemill.sdk.training_job import TrainingJob, say_tensorboard, wants_logs
from tidemill.sdk.transformer import ORDER, Transformer, TransformerOptions
from tidemill.sdk.variable import deferrable

_FIELDS = frozenset(each.name for each in fields(Arguments)) - {"hyperparameters"}
_JUDGED_ONCE = ("hyperparameters", "distribution", "compiler_config")


class TensorFlow:
    """Trains and serves a TensorFlow script.

    Every argument is also an attribute. Names of version 1 of the SageMaker Python SDK (``train_instance_count``,
    ``train_instance_type``, ``train_volume_size``, ``train_max_run``, ``image_name``, ``distributions``, ...) are
    accepted too, as arguments and as attributes.

    "Recorded" below means that the value is stored and shown by DescribeTrainingJob, but has no effect on a job. The
    service refuses values that it cannot honor when the job is created; docs/compatibility.md lists each member.

    Args:
        entry_point: Path of the script, relative to ``source_dir`` if that is given.
        role: Name or ARN of the job's role. Default: ``SageMakerRole``.
        instance_count: Number of instances, at least 1. Default: 1.
        instance_type: Instance type by AWS's name, or ``local``. Default: ``local``. The job gets the GPUs of the type,
            as far as the machine has them; the setting ``limit_to_instance_type`` applies its memory and processors.
        source_dir: Directory with the script and its modules, or the S3 URI of a ``tar.gz`` archive of one.
        dependencies: Files and directories to copy next to the script.
        git_config: A Git repository, which is cloned when the estimator is created: ``repo``, and optionally
            ``branch``, ``commit``, ``username`` and ``password``, or ``token``, for https. ``entry_point``,
            ``source_dir`` and ``dependencies`` are then relative to its root. By ssh, your own agent is used.
        hyperparameters: Passed to the script as command line arguments.
        framework_version: TensorFlow version, e.g. ``2.21``.
        py_version: ``py3``, or a version such as ``py311``.
        image_uri: Training image, in place of the one derived from ``framework_version`` and ``py_version``.
        script_mode: True or None. False raises ValueError, because legacy mode ended with TensorFlow 1.12.
        model_dir: Value of the script's ``--model_dir``. None means a location below the output path, or
            ``/opt/ml/model`` under MPI; False passes no ``--model_dir``.
        distribution: Maps ``parameter_server``, ``mpi``, ``smdistributed`` or ``multi_worker_mirrored_strategy`` to a
            dictionary of options, e.g. ``{"parameter_server": {"enabled": True}}``, which has no effect with one
            instance. SageMaker's data parallelism library raises ValueError: use Horovod. Default: none.
        compiler_config: A `TrainingCompilerConfig`: compiles training steps with XLA if measurements show a gain.
            Default: no compilation.
        base_job_name: Prefix of generated job names.
        output_path: S3 prefix of models and outputs. Default: the default bucket.
        output_kms_key: Sent as ``OutputDataConfig.KmsKeyId``. Recorded: nothing is encrypted.
        code_location: S3 prefix for uploaded code. Default: the bucket of ``output_path``.
        input_mode: ``File``, ``Pipe`` or ``FastFile``. Default: ``File``.
        volume_size: Size of the data volume in GB, sent as ``ResourceConfig.VolumeSizeInGB``. Limits the files of an
            instance if the setting ``limit_to_instance_type`` is on. Default: 30.
        volume_kms_key: Sent as ``ResourceConfig.VolumeKmsKeyId``. Recorded: nothing is encrypted.
        max_run: Maximum duration of the job in seconds. Default: 86,400 (24 hours).
        max_wait: Maximum time in seconds from the creation of a spot job to its end, waiting and restarts included; at
            least ``max_run``. Requires ``use_spot_instances``.
        max_retry_attempts: Maximum number of restarts from checkpoints after internal errors, such as a lost instance,
            sent as ``RetryStrategy.MaximumRetryAttempts``. Default: 2, for lost instances only.
        use_spot_instances: Make it a spot job, which ``tidemill interrupt`` can interrupt and which then starts again,
            sent as ``EnableManagedSpotTraining``. Default: False.
        keep_alive_period_in_seconds: Sent as ``ResourceConfig.KeepAlivePeriodInSeconds``. Recorded: instances need no
            time to start.
        instance_groups: `InstanceGroup` objects, in place of ``instance_count`` and ``instance_type``, for a job whose
            instances differ in type or data. Instances are numbered across the groups: ``algo-1`` is in the first one.
        environment: Environment variables of the job.
        tags: A dictionary, or a list of ``{"Key": ..., "Value": ...}``.
        subnets: VPC subnet IDs, sent as ``VpcConfig.Subnets`` with ``security_group_ids``. Recorded.
        security_group_ids: VPC security group IDs, sent as ``VpcConfig.SecurityGroupIds`` with ``subnets``. Recorded.
        encrypt_inter_container_traffic: Sent as ``EnableInterContainerTrafficEncryption``. Instances exchange data in
            memory, in a network of the job's own, without encryption; refused for several instances on a machine
            without isolation mode ``full``. On a cluster, jobs with model parallelism encrypt the data between machines
            with TLS; other jobs of several instances are refused. Default: False.
        enable_network_isolation: Whether the script can reach only the job's own instances, and not even S3. Refused on
            a machine without isolation mode ``full``. Default: False.
        metric_definitions: List of ``{"Name": ..., "Regex": ...}``: metrics to read from the log. CloudWatch shows
            their points while the job runs; after its end ``FinalMetricDataList`` contains the last value of each.
        enable_sagemaker_metrics: Sent as ``AlgorithmSpecification.EnableSageMakerMetricsTimeSeries``. Recorded.
        checkpoint_s3_uri: S3 prefix of checkpoints, sent as ``CheckpointConfig.S3Uri``. Objects below it are restored
            before the script starts, and new files are copied to it while the script runs. Default: none.
        checkpoint_local_path: Directory of checkpoints inside the job, sent as ``CheckpointConfig.LocalPath``. Default:
            ``/opt/ml/checkpoints``.
        model_uri: S3 URI of a model to start from, as an additional channel.
        model_channel_name: Name of that channel. Default: ``model``.
        container_log_level: A level of Python's ``logging``. Default: 20 (INFO).
        container_entry_point: Command to run instead of the script, in the same environment.
        container_arguments: Arguments of that command.
        disable_output_compression: Request an uncompressed model: True sends ``OutputDataConfig.CompressionType`` as
            ``NONE``, which the service refuses. Default: False.
        tensorboard_output_config: Object with ``S3OutputPath`` and optionally ``LocalPath`` (default
            ``/opt/ml/output/tensorboard``): files below LocalPath are copied to S3OutputPath while the job runs.
        debugger_hook_config: Sent as ``DebugHookConfig``. tidemill has no debugger; a library in the script can read it
            from ``/opt/ml/input/config/debughookconfig.json``.
        rules: Rules of AWS's SDK or dictionaries in the API's form, sent as ``DebugRuleConfigurations`` and
            ``ProfilerRuleConfigurations``. Recorded: none is evaluated.
        profiler_config: Sent as ``ProfilerConfig``. tidemill has no profiler; a library in the script can read it from
            ``/opt/ml/input/config/profilerconfig.json``.
        disable_profiler: Accepted without effect, since there is no profiler.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's local
            service.
        **earlier: Arguments by their names in version 1 of the SageMaker Python SDK.

    Raises:
        ValueError: A value is not allowed, two names of one argument have different values, or the argument belongs to
            legacy mode.
        TypeError: An argument is unknown.

    Example:
        >>> estimator = TensorFlow("train.py", hyperparameters={"epochs": 3})  # doctest: +SKIP
        >>> estimator.fit({"train": "file://data/train"})  # doctest: +SKIP
        >>> predictor = estimator.deploy(1, "local")  # doctest: +SKIP
    """

    _is_named_by_image: ClassVar[bool] = False

    # Every argument is spelled out instead of grouped in a record, because the signature is a published contract.
    def __init__(
        self,
        entry_point: str | os.PathLike[str],
        role: str | None = None,
        *,
        instance_count: int | None = None,
        instance_type: str | None = None,
        source_dir: str | os.PathLike[str] | None = None,
        dependencies: Sequence[str] | None = None,
        git_config: Mapping[str, Any] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        image_uri: str | None = None,
        script_mode: bool | None = None,
        model_dir: str | bool | None = None,
        distribution: Mapping[str, Any] | None = None,
        compiler_config: Any = None,
        base_job_name: str | None = None,
        output_path: str | None = None,
        output_kms_key: str | None = None,
        code_location: str | None = None,
        input_mode: str | None = None,
        volume_size: int | None = None,
        volume_kms_key: str | None = None,
        max_run: int | None = None,
        max_wait: int | None = None,
        max_retry_attempts: int | None = None,
        use_spot_instances: bool | None = None,
        keep_alive_period_in_seconds: int | None = None,
        instance_groups: Sequence[Any] | None = None,
        environment: Mapping[str, str] | None = None,
        tags: Any = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        encrypt_inter_container_traffic: bool | None = None,
        enable_network_isolation: bool | None = None,
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        enable_sagemaker_metrics: bool | None = None,
        checkpoint_s3_uri: str | None = None,
        checkpoint_local_path: str | None = None,
        model_uri: str | None = None,
        model_channel_name: str | None = None,
        container_log_level: int | None = None,
        container_entry_point: Sequence[str] | None = None,
        container_arguments: Sequence[str] | None = None,
        disable_output_compression: bool | None = None,
        tensorboard_output_config: Any = None,
        debugger_hook_config: Any = None,
        profiler_config: Any = None,
        rules: Sequence[Any] | None = None,
        disable_profiler: bool | None = None,
        sagemaker_session: Any = None,
        **earlier: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _FIELDS | {"hyperparameters"}}
        given = {name: value for name, value in given.items() if value is not None}
        given["entry_point"] = os.fspath(entry_point)
        if source_dir is not None:
            given["source_dir"] = os.fspath(source_dir)
        self._arguments = merge_arguments({**given, **earlier}, stacklevel=3)
        check_offered(self._arguments)
        self._code = SourceCode.find(
            self._arguments.entry_point,
            self._arguments.source_dir,
            self._arguments.dependencies,
            self._arguments.git_config,
        )
        check_script_mode(self._arguments, self._code)
        self.sagemaker_session = Session.adopt(sagemaker_session)
        # None before the first job. Any instead of a union: a client that has called fit() knows that there is a job.
        self.latest_training_job: Any = None
        self._code_uri: str | None = None
        self._endpoint_name: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Return an argument by its current name or by its name in version 1 of the SDK."""
        current = DEPRECATED_ALIASES.get(name, name)
        if current in _FIELDS and "_arguments" in self.__dict__:
            return getattr(self._arguments, current)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the arguments and the latest job, without a request to the service.

        Only the names of hyperparameters are shown: a value may be a secret.
        """
        arguments, job = self._arguments, self.latest_training_job
        return table(type(self).__name__, arguments.shown | {"latest training job": job.name if job else None})

    def hyperparameters(self) -> dict[str, Any]:
        """Return the user's hyperparameters.

        Returns:
            Python values by name, not JSON-encoded.
        """
        return dict(self._arguments.hyperparameters)

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add or change hyperparameters of the next `fit`.

        Args:
            **hyperparameters: Values by name; each is passed to the script as an argument.
        """
        merged = {**self._arguments.hyperparameters, **hyperparameters}
        self._arguments = replace(self._arguments, hyperparameters=merged)

    @deferrable("create_training_job")
    def fit(
        self,
        inputs: Any = None,
        wait: bool = True,
        logs: bool | str = True,
        job_name: str | None = None,
        run_tensorboard_locally: bool = False,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Train: create a training job and, by default, wait for its end.

        Args:
            inputs: One S3 URI, ``file://PATH`` or `TrainingInput` for the channel ``training``; or a dictionary of them
                by channel name. Local files are uploaded, once for the same content.
            wait: Whether to return only when the job has ended. Default: True.
            logs: Whether to print the job's log lines while waiting; ``"raw"`` keeps escape bytes on a terminal.
                Default: True.
            job_name: Name of the job. Default: a generated name.
            run_tensorboard_locally: Whether to print the command that shows the job in TensorBoard. Default: False.
            experiment_config: Names of an experiment, trial and trial component, sent as ``ExperimentConfig``. The
                service records and shows it, without effect. Default: none.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
            ValueError: An input is not usable.
            KeyboardInterrupt: Ctrl-C while waiting. On a terminal the user is asked whether to detach from the job or
                to stop it; otherwise the job continues. The printed lines explain how to attach and to stop. No
                traceback is shown.
        """
        wants_logs(logs)  # refuses an invalid value before the job is created
        session = self.sagemaker_session
        base = self._arguments.base_job_name or image_base(self.training_image_uri())
        name = timestamped(base) if job_name is None else check_name("job_name", job_name)
        made = self.training_request(name, inputs, experiment_config=experiment_config)
        session.sagemaker_client.create_training_job(**made)
        self.latest_training_job = TrainingJob(session, name, self._code.missing_module_hint)
        if run_tensorboard_locally:
            say_tensorboard(self.latest_training_job, self._staging.model_dir(name))
        if wait:
            self.latest_training_job.wait(logs)

    def training_request(
        self, job_name: str, inputs: Any = None, *, experiment_config: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Upload the code and local inputs, and return the CreateTrainingJob request of a job.

        Args:
            job_name: Name of the job.
            inputs: As for `fit`.
            experiment_config: As for `fit`.

        Returns:
            Members of CreateTrainingJob.

        Raises:
            ValueError: An input is not usable.
        """
        session = self.sagemaker_session
        warn_of_instance_types(session, *self._arguments.instance_types, stacklevel=4)
        staging = self._staging
        data = channels(inputs, upload=staging.upload)
        self._code_uri = staging.stage_code(job_name)
        return request.training_request(
            self._arguments,
            job_name=job_name,
            role_arn=session.expand_role(self._arguments.role),
            image=self.training_image_uri(),
            output_path=staging.output_path,
            hyperparameters=request.job_hyperparameters(
                self._arguments,
                job_name=job_name,
                entry_point=self._code.entry_point,
                code_uri=self._code_uri,
                region=session.boto_region_name,
                model_dir=staging.model_dir(job_name),
            ),
            channels=data,
            experiment_config=experiment_config,
        )

    @classmethod
    def attach(
        cls, training_job_name: str, sagemaker_session: Any = None, model_channel_name: str = "model"
    ) -> "TensorFlow":
        """Return the estimator of an existing training job.

        If the job is still running, print its log from the beginning and wait until it ends.

        Args:
            training_job_name: Name of the job.
            sagemaker_session: A `Session` of this SDK or of AWS's SDK. Default: a new one for the service.
            model_channel_name: Ignored: the model channel is recognized by its content.

        Returns:
            An estimator with the arguments of the job.

        Raises:
            JobFailed: The job failed.
            ValueError: The job was not started by an estimator.
        """
        del model_channel_name
        session = Session.adopt(sagemaker_session)
        description = session.describe_training_job(training_job_name)
        estimator = cls.of_description(description, session=session)
        estimator.latest_training_job = TrainingJob(session, training_job_name)
        if description["TrainingJobStatus"] in TERMINAL:
            check_end(description)
        else:
            estimator.latest_training_job.wait()
        return estimator

    @classmethod
    def of_description(cls, description: Mapping[str, Any], *, session: Session) -> "TensorFlow":
        """Return an estimator with the arguments of a described job, but without the job.

        Args:
            description: What DescribeTrainingJob answers.
            session: The session of the estimator.

        Returns:
            The estimator, without a latest job.

        Raises:
            ValueError: The job was not started by an estimator.
        """
        arguments = attachment.arguments_of(
            description, region=session.boto_region_name, with_image=cls._is_named_by_image
        )
        # Set afterwards: warnings about them were issued when the job was created.
        judged = {name: arguments.pop(name) for name in _JUDGED_ONCE if name in arguments}
        estimator = cls(**arguments, sagemaker_session=session)
        estimator._arguments = replace(estimator._arguments, **judged)
        estimator._code_uri = estimator.source_dir
        return estimator

    def logs(self) -> None:
        """Print the log of the latest job from its beginning, and follow it until the job ends."""
        job = self._latest()
        if job.describe()["TrainingJobStatus"] in TERMINAL:
            job.show_logs()
        else:
            job.wait()

    @property
    def model_data(self) -> str:
        """S3 URI of the latest job's ``model.tar.gz``.

        Raises:
            ValueError: The job has no model, or has not ended.
        """
        return self._latest().model_data

    @property
    def training_job_analytics(self) -> TrainingJobAnalytics:
        """Metrics of the latest job.

        Raises:
            ValueError: There is no job.
        """
        return TrainingJobAnalytics(self._latest().name, sagemaker_session=self.sagemaker_session)

    def create_model(
        self,
        role: str | None = None,
        *,
        entry_point: str | None = None,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        endpoint_type: str | None = None,
        vpc_config_override: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> TensorFlowModel:
        """Return the model of the latest job, ready to be deployed.

        Args:
            role: Role of the model. Default: the estimator's.
            entry_point: Script with handlers. Default: none; the training script for ``endpoint_type="python"``.
            source_dir: Directory of ``entry_point``.
            dependencies: Files and directories to copy next to ``entry_point``.
            endpoint_type: ``tensorflow-serving`` or ``python``.
            vpc_config_override: As for `transformer`.
            **arguments: Further arguments of `TensorFlowModel`.

        Returns:
            The model, which is not created at the service yet.
        """
        kind = check_endpoint_type(endpoint_type)
        known: dict[str, Any] = {
            "role": role or self._arguments.role,
            "entry_point": entry_point,
            "source_dir": source_dir,
            "dependencies": dependencies,
            "endpoint_type": kind,
            "framework_version": self._arguments.served_version,
            "py_version": self._arguments.py_version,
            "code_location": self._arguments.code_location,
            "vpc_config": vpc_config_override or self._arguments.vpc_config,
            "sagemaker_session": self.sagemaker_session,
        }
        model_data = arguments.pop("model_data", None)
        if model_data is None:
            model_data = self.model_data
        model = TensorFlowModel(model_data, **{**known, **arguments})
        if kind == PYTHON_HANDLERS and entry_point is None and self._code_uri is not None:
            model.use_code(SourceCode(self._code.entry_point, remote=self._code_uri))
        return model

    @in_order(
        *("content_types", "response_types", "inference_instances", "transform_instances", "image_uri"),
        *("model_package_name", "model_package_group_name", "model_metrics", "metadata_properties"),
        *("marketplace_cert", "approval_status", "description"),
    )
    def register(self, *, model_name: str | None = None, **arguments: Any) -> ModelPackage:
        """Register the latest job's model as a package.

        Args:
            model_name: Name of the model. Default: a generated name.
            **arguments: As for `Model.register`, and further ones of `create_model`.

        Returns:
            The package, which can be deployed.

        Raises:
            TypeError: An argument is unknown.
        """
        given = present(**arguments)
        registered = {each: given.pop(each) for each in REGISTERED if each in given}
        return self.create_model(name=model_name, **given).register(**registered)

    def deploy(
        self,
        initial_instance_count: int = 1,
        instance_type: str = "local",
        *,
        endpoint_type: str | None = None,
        model_name: str | None = None,
        entry_point: str | None = None,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Any:
        """Serve the latest job's model at an endpoint.

        Args:
            initial_instance_count: Number of instances. Default: 1.
            instance_type: Type of these instances; ``local`` is this machine. Default: ``local``.
            endpoint_type: ``tensorflow-serving`` or ``python``. Default: ``tensorflow-serving``.
            model_name: Name of the model. Default: a generated name.
            entry_point: Script with handlers.
            source_dir: Directory of ``entry_point``.
            dependencies: Files and directories to copy next to ``entry_point``.
            env: Environment variables of the server.
            **arguments: Arguments of `Model.deploy`: endpoint_name, wait, serializer, tags, update_endpoint, ...

        Returns:
            A `TensorFlowPredictor`.

        Raises:
            EndpointFailed: The endpoint does not come into service.
        """
        model = self.create_model(
            entry_point=entry_point,
            source_dir=source_dir,
            dependencies=dependencies,
            endpoint_type=endpoint_type,
            env=env,
            name=model_name,
        )
        predictor = model.deploy(initial_instance_count, instance_type, **arguments)
        self._endpoint_name = model.endpoint_name
        return predictor

    @in_order(
        *(*ORDER, "role", "volume_kms_key", "entry_point"),
        *("vpc_config_override", "enable_network_isolation", "model_name"),
    )
    def transformer(
        self,
        instance_count: int = 1,
        instance_type: str = "local",
        *,
        role: str | None = None,
        entry_point: str | None = None,
        vpc_config_override: Any = None,
        enable_network_isolation: bool | None = None,
        model_name: str | None = None,
        **options: Unpack[TransformerOptions],
    ) -> Transformer:
        """Create a model of the latest job at the service, and return a `Transformer` for batch transform jobs of it.

        Args:
            instance_count: As for `Transformer`.
            instance_type: As for `Transformer`.
            role: Role of the model. Default: the estimator's.
            entry_point: Script with handlers; it becomes ``code/inference.py`` of the archive.
            vpc_config_override: ``{"Subnets": [...], "SecurityGroupIds": [...]}`` of the model. Default: the
                estimator's.
            enable_network_isolation: Network isolation of the model. Default: the estimator's.
            model_name: Name of the model. Default: a generated name.
            **options: `TransformerOptions`; ``env`` is that of the model, and ``tags`` are also those of the model.
                Default of ``tags``: the estimator's.

        Returns:
            The transformer.
        """
        if enable_network_isolation is None:
            enable_network_isolation = self._arguments.enable_network_isolation or False
        model = self.create_model(
            role,
            entry_point=entry_point,
            env=options.pop("env", None),
            name=model_name,
            vpc_config_override=vpc_config_override,
            enable_network_isolation=enable_network_isolation,
        )
        if options.get("tags") is None:
            options["tags"] = self._arguments.tags
        return model.transformer(instance_count, instance_type, **options)

    def delete_endpoint(self) -> None:
        """Delete the endpoint that the last `deploy` created.

        Raises:
            ValueError: `deploy` was not called, or the endpoint was already deleted.
        """
        if self._endpoint_name is None:
            raise ValueError("this estimator has no endpoint; call deploy() first, or delete it by its predictor")
        self.sagemaker_session.delete_endpoint(self._endpoint_name)
        self._endpoint_name = None

    def training_image_uri(self) -> str:
        """Return the URI of the training image of the next job, which selects its framework and Python version.

        Returns:
            The value of `image_uri`, or the image that AWS would use in the session's region.
        """
        return self._arguments.image(self.sagemaker_session.boto_region_name)

    @property
    def _staging(self) -> Staging:
        return Staging(self.sagemaker_session, self._arguments, self._code)

    def _latest(self) -> TrainingJob:
        if self.latest_training_job is None:
            raise ValueError("this estimator has no training job; call fit() first, or use TensorFlow.attach(NAME)")
        return self.latest_training_job
