"""TensorFlow: the estimator. Trains a script as a job of the service and serves what it made."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk import attachment, request
from tidemill.sdk.arguments import EARLIER_NAMES, Arguments, check_offered, settle
from tidemill.sdk.console import Console
from tidemill.sdk.follow import TERMINAL, check_end
from tidemill.sdk.inputs import channels
from tidemill.sdk.model import PYTHON_HANDLERS, TensorFlowModel, check_endpoint_type
from tidemill.sdk.naming import check_name, image_base, timestamped
from tidemill.sdk.session import Session
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.training_job import TrainingJob, wants_logs
from tidemill.sdk.upload import LocalData, upload

__all__ = ["TensorFlow"]

_FIELDS = frozenset(each.name for each in fields(Arguments)) - {"hyperparameters"}
_JUDGED_ONCE = ("hyperparameters", "distribution", "compiler_config")


class TensorFlow:
    """Trains and serves a TensorFlow script.

    The names of the arguments are today's. Those of the first SDK (``train_instance_count``, ``train_instance_type``,
    ``train_volume_size``, ``train_max_run``, ``image_name``, ``distributions``, ...) are taken as well; both names of
    one argument with different values are an error. Every argument is an attribute too, under both names.

    Args:
        entry_point: Path of the script; relative to ``source_dir`` where that is given.
        role: Name or ARN.
        instance_count: How many instances train.
        instance_type: Of these instances, as AWS names it; ``local`` is this machine.
        source_dir: Directory with the script and whatever it needs, or the S3 URI of a packed one.
        dependencies: Files and directories put beside the script.
        hyperparameters: Reach the script as command line arguments.
        framework_version: TensorFlow version, e.g. ``2.21``.
        py_version: ``py3`` or for example ``py311``.
        image_uri: Instead of the image made from the versions.
        script_mode: Accepted; script mode is the only one there is.
        model_dir: The script's ``--model_dir``; None makes a place below the output path (``/opt/ml/model`` under MPI),
            False passes none.
        distribution: ``parameter_server``, ``mpi``, ``smdistributed`` or ``multi_worker_mirrored_strategy``, each
            with a dictionary of options. So far jobs run with ``parameter_server`` alone, which has no effect on one
            instance; the others are refused when they are enabled.
        compiler_config: A `TrainingCompilerConfig`. Refused so far, unless it has ``enabled=False``.
        base_job_name: Begins the names of jobs.
        output_path: S3 prefix of models and outputs; the default bucket if None.
        output_kms_key: Encrypts these.
        code_location: S3 prefix of the uploaded code; the bucket of ``output_path`` if None.
        input_mode: ``File``, ``Pipe`` or ``FastFile``.
        volume_size: Size of the data volume in GB.
        volume_kms_key: Encrypts the volume.
        max_run: Longest run in seconds.
        max_wait: Longest wait for spot instances and run, in seconds.
        max_retry_attempts: How often a job that failed for no fault of its own is tried again.
        use_spot_instances: Sent on.
        keep_alive_period_in_seconds: Sent on.
        instance_groups: Sent on instead of ``instance_count`` and ``instance_type``.
        environment: Environment variables of the job.
        tags: A dictionary, or a list in the API's form.
        subnets: With ``security_group_ids``: sent on.
        security_group_ids: With ``subnets``: sent on.
        encrypt_inter_container_traffic: Sent on.
        enable_network_isolation: Sent on.
        metric_definitions: Names and regular expressions of metrics in the log. The last value of each is in the
            description of an ended job, as ``FinalMetricDataList``.
        enable_sagemaker_metrics: Sent on.
        checkpoint_s3_uri: Where checkpoints are kept.
        checkpoint_local_path: Where they lie in the job.
        model_uri: S3 URI of a model to start from.
        model_channel_name: The channel in which the job finds it.
        container_log_level: By Python's ``logging``.
        container_entry_point: Program instead of the script's interpreter.
        container_arguments: Its arguments.
        disable_output_compression: Leave the model as files.
        tensorboard_output_config: Sent on.
        debugger_hook_config: Sent on.
        profiler_config: Sent on.
        disable_profiler: Accepted: there is none.
        sagemaker_session: Way to the service; None finds it, and starts this user's own if need be.
        **earlier: Arguments under their first names.

    Raises:
        ValueError: A value is not allowed, both names of an argument differ, or the argument belongs to legacy mode.
        TypeError: An argument is unknown.

    Example:
        >>> estimator = TensorFlow("train.py", hyperparameters={"epochs": 3})  # doctest: +SKIP
        >>> estimator.fit({"train": "file://data/train"})  # doctest: +SKIP
        >>> predictor = estimator.deploy(1, "local")  # doctest: +SKIP
    """

    # The argument list is the published contract, so it stands here in full instead of in a record.
    def __init__(
        self,
        entry_point: str | os.PathLike[str],
        role: str | None = None,
        *,
        instance_count: int | None = None,
        instance_type: str | None = None,
        source_dir: str | os.PathLike[str] | None = None,
        dependencies: Sequence[str] | None = None,
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
        disable_profiler: bool | None = None,
        sagemaker_session: Any = None,
        **earlier: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _FIELDS | {"hyperparameters"}}
        given = {name: value for name, value in given.items() if value is not None}
        given["entry_point"] = os.fspath(entry_point)
        if source_dir is not None:
            given["source_dir"] = os.fspath(source_dir)
        self._arguments = settle({**given, **earlier}, stacklevel=3)
        check_offered(self._arguments)
        self._code = SourceCode.find(
            self._arguments.entry_point, self._arguments.source_dir, self._arguments.dependencies
        )
        self.sagemaker_session = Session.adopt(sagemaker_session)
        # None before the first job. Typed loosely, because a client that has called fit() knows that there is one.
        self.latest_training_job: Any = None
        self._code_uri: str | None = None
        self._endpoint_name: str | None = None

    def __getattr__(self, name: str) -> Any:
        """The arguments, under today's names and under the first ones."""
        current = EARLIER_NAMES.get(name, name)
        if current in _FIELDS and "_arguments" in self.__dict__:
            return getattr(self._arguments, current)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def hyperparameters(self) -> dict[str, Any]:
        """The user's hyperparameters, not encoded."""
        return dict(self._arguments.hyperparameters)

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add or change hyperparameters of the next `fit`."""
        merged = {**self._arguments.hyperparameters, **hyperparameters}
        self._arguments = replace(self._arguments, hyperparameters=merged)

    def fit(
        self,
        inputs: Any = None,
        wait: bool = True,
        logs: bool | str = True,
        job_name: str | None = None,
        run_tensorboard_locally: bool = False,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Train.

        Args:
            inputs: One S3 URI, ``file://PATH`` or `TrainingInput` for the channel ``training``; or a dictionary of them
                by channel name. Local files are uploaded, once for the same content.
            wait: Return when the job is over, not before.
            logs: Show the job's log lines while waiting; ``"raw"`` leaves escape bytes in on a terminal.
            job_name: Made up if None.
            run_tensorboard_locally: Print the command that shows the job's ``model_dir`` in TensorBoard.
            experiment_config: Sent on.

        Raises:
            JobFailed: The job failed; the message has the whole FailureReason.
            ValueError: An input is not usable.
            KeyboardInterrupt: Ctrl-C while waiting. The job goes on; what is printed says how to attach and to stop.
        """
        wants_logs(logs)  # a wrong word is said before a job is started
        session = self.sagemaker_session
        image = self._arguments.image(session.boto_region_name)
        base = self._arguments.base_job_name or image_base(image)
        name = timestamped(base) if job_name is None else check_name("job_name", job_name)
        output = self._output_path()
        data = channels(inputs, upload=self._upload)
        code_uri = self._stage_code(name, output)
        model_dir = self._model_dir(name, output)
        session.sagemaker_client.create_training_job(
            **request.training_request(
                self._arguments,
                job_name=name,
                role_arn=session.expand_role(self._arguments.role),
                image=image,
                output_path=output,
                hyperparameters=request.job_hyperparameters(
                    self._arguments,
                    job_name=name,
                    entry_point=self._code.entry_point,
                    code_uri=code_uri,
                    region=session.boto_region_name,
                    model_dir=model_dir,
                ),
                channels=data,
                experiment_config=experiment_config,
            )
        )
        self._code_uri = code_uri
        self.latest_training_job = TrainingJob(session, name)
        if run_tensorboard_locally:
            _say_tensorboard(session, model_dir)
        if wait:
            self.latest_training_job.wait(logs)

    @classmethod
    def attach(
        cls, training_job_name: str, sagemaker_session: Any = None, model_channel_name: str = "model"
    ) -> "TensorFlow":
        """The estimator of a job that was started earlier, by whomever.

        A job that still runs is followed to its end, with its log from the beginning.

        Args:
            training_job_name: The job.
            sagemaker_session: Way to the service; None finds it.
            model_channel_name: Accepted; the channel is known by its content.

        Raises:
            JobFailed: The job failed.
            ValueError: The job was not started by an estimator.
        """
        del model_channel_name
        session = Session.adopt(sagemaker_session)
        description = session.describe_training_job(training_job_name)
        arguments = attachment.arguments_of(description, region=session.boto_region_name)
        # Set afterwards: what was worth a warning or a refusal was said when the job was made.
        judged = {name: arguments.pop(name) for name in _JUDGED_ONCE if name in arguments}
        estimator = cls(**arguments, sagemaker_session=session)
        estimator._arguments = replace(estimator._arguments, **judged)
        estimator._code_uri = estimator.source_dir
        estimator.latest_training_job = TrainingJob(session, training_job_name)
        if description["TrainingJobStatus"] in TERMINAL:
            check_end(description)
        else:
            estimator.latest_training_job.wait()
        return estimator

    def logs(self) -> None:
        """Print the log of the latest job from its beginning, and go on until the job is over."""
        job = self._latest()
        if job.describe()["TrainingJobStatus"] in TERMINAL:
            job.show_logs()
        else:
            job.wait()

    @property
    def model_data(self) -> str:
        """S3 URI of the latest job's ``model.tar.gz``.

        Raises:
            ValueError: There is none (yet).
        """
        job = self._latest()
        description = job.describe()
        found = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
        if not found:
            raise ValueError(
                f"training job {job.name} is {description['TrainingJobStatus']} and has no model; wait for its end"
            )
        return found

    def create_model(
        self,
        role: str | None = None,
        *,
        entry_point: str | None = None,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        endpoint_type: str | None = None,
        **arguments: Any,
    ) -> TensorFlowModel:
        """The model that the latest job made, ready to be deployed.

        Args:
            role: Of the model; the estimator's if None.
            entry_point: Script with handlers. The ``python`` kind takes the training script if None.
            source_dir: Its directory.
            dependencies: Further files and directories.
            endpoint_type: ``tensorflow-serving`` or ``python``.
            **arguments: As of `TensorFlowModel`.
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
            "sagemaker_session": self.sagemaker_session,
        }
        model = TensorFlowModel(self.model_data, **{**known, **arguments})
        if kind == PYTHON_HANDLERS and entry_point is None and self._code_uri is not None:
            model.use_code(SourceCode(self._code.entry_point, remote=self._code_uri))
        return model

    def deploy(
        self,
        initial_instance_count: int = 1,
        instance_type: str = "local",
        *,
        endpoint_type: str | None = None,
        endpoint_name: str | None = None,
        model_name: str | None = None,
        entry_point: str | None = None,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        wait: bool = True,
        **arguments: Any,
    ) -> Any:
        """Serve the latest job's model at an endpoint.

        Args:
            initial_instance_count: How many instances serve.
            instance_type: Of these instances; ``local`` is this machine.
            endpoint_type: ``tensorflow-serving`` (default) or ``python``.
            endpoint_name: Made up if None.
            model_name: The same for the model.
            entry_point: Script with handlers.
            source_dir: Its directory.
            dependencies: Further files and directories.
            env: Environment of the server.
            wait: Return when the endpoint serves, not before.
            **arguments: As of `Model.deploy`: serializer, deserializer, tags, update_endpoint, ...

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
        predictor = model.deploy(
            initial_instance_count, instance_type, endpoint_name=endpoint_name, wait=wait, **arguments
        )
        self._endpoint_name = model.endpoint_name
        return predictor

    def delete_endpoint(self) -> None:
        """Delete the endpoint that `deploy` made last.

        Raises:
            ValueError: There is none.
        """
        if self._endpoint_name is None:
            raise ValueError("this estimator has no endpoint; call deploy() first, or delete it by its predictor")
        self.sagemaker_session.delete_endpoint(self._endpoint_name)
        self._endpoint_name = None

    def training_image_uri(self) -> str:
        """The image that names framework and Python of the next job."""
        return self._arguments.image(self.sagemaker_session.boto_region_name)

    def _latest(self) -> TrainingJob:
        if self.latest_training_job is None:
            raise ValueError("this estimator has no training job; call fit() first, or use TensorFlow.attach(NAME)")
        return self.latest_training_job

    def _output_path(self) -> str:
        session = self.sagemaker_session
        if self._arguments.output_path is None:
            return f"s3://{session.default_bucket()}/"
        session.ensure_bucket(S3Uri.parse(self._arguments.output_path).bucket)
        return self._arguments.output_path

    def _upload(self, path: str) -> str:
        data = LocalData.read(path)
        session = self.sagemaker_session
        return upload(session.s3_client, data, bucket=session.default_bucket(), console=Console())

    def _stage_code(self, job_name: str, output_path: str) -> str:
        if self._code.remote is not None:
            return self._code.remote
        location = self._arguments.code_location or f"s3://{S3Uri.parse(output_path).bucket}"
        target = S3Uri.parse(location.rstrip("/")) / job_name / "source" / "sourcedir.tar.gz"
        session = self.sagemaker_session
        session.ensure_bucket(target.bucket)
        session.s3_client.put_object(Bucket=target.bucket, Key=target.key, Body=self._code.pack())
        return str(target)

    def _model_dir(self, job_name: str, output_path: str) -> str | None:
        chosen = self._arguments.model_dir
        if chosen is False:
            return None
        if isinstance(chosen, str):
            return chosen
        if self._arguments.mpi:
            return "/opt/ml/model"
        return str(S3Uri.parse(output_path.rstrip("/")) / job_name / "model")


def _say_tensorboard(session: Session, model_dir: str | None) -> None:
    if model_dir is None:
        raise ValueError("run_tensorboard_locally needs a model_dir, and model_dir=False passes none to the script")
    console = Console()
    console.say("TensorBoard shows what the script writes to its model_dir; run it beside the job:")
    # The keys and the endpoint come from the environment, so that no secret is printed here.
    environment = "" if session.is_aws else 'eval "$(tidemill env)" && '
    console.say(f"  {environment}tensorboard --logdir {model_dir} --host localhost --port 6006")
