"""Processors: run a command or a script as a processing job, in the form of SageMaker's SDK."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict, Unpack

from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import check_options, in_order, present, tags_of
from tidemill.sdk.naming import check_name, image_base, timestamped
from tidemill.sdk.network import NetworkConfig
from tidemill.sdk.processing_job import ProcessingInput, ProcessingJob, ProcessingOutput
from tidemill.sdk.run_context import current_config
from tidemill.sdk.session import Session, encrypted_with, warn_of_instance_types
from tidemill.sdk.variable import deferrable, is_pipeline_variable

CODE_DIRECTORY = PurePosixPath("/opt/ml/processing/input/code")
"""Directory of the submitted code inside a job."""


class ProcessorOptions(TypedDict, total=False):
    """What all processors have in common.

    Attributes:
        volume_size_in_gb: Size of the data volume in GB, sent as ``VolumeSizeInGB``. Default: 30.
        volume_kms_key: Sent as ``VolumeKmsKeyId``. Recorded: nothing is encrypted.
        output_kms_key: Sent as ``ProcessingOutputConfig.KmsKeyId``. Recorded: nothing is encrypted.
        max_runtime_in_seconds: Maximum duration of a job in seconds. Default: 86,400 (24 hours).
        base_job_name: Prefix of generated job names. Default: derived from the image.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's local
            service.
        env: Environment variables of the command.
        tags: Tags of the jobs: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
        network_config: A `NetworkConfig`.
    """

    volume_size_in_gb: int
    volume_kms_key: str | None
    output_kms_key: str | None
    max_runtime_in_seconds: int | None
    base_job_name: str | None
    sagemaker_session: Any
    env: Mapping[str, str] | None
    tags: Any
    network_config: NetworkConfig | None


OPTIONS = tuple(ProcessorOptions.__annotations__)
"""Names of the options, in the order of AWS's SDK."""


class Processor:
    """Runs a command as a processing job.

    Args:
        role: Name or ARN of the role whose policy limits the job's keys. Default: ``SageMakerRole``.
        image_uri: Image that selects the environment: one of TensorFlow or scikit-learn.
        instance_count: Number of instances. Default: 1.
        instance_type: Type of the instances, or ``local``. Default: ``local``.
        entrypoint: The command, with its first arguments.
        **options: `ProcessorOptions`.

    Raises:
        TypeError: An argument is unknown.
        ValueError: There is no image.

    Example:
        >>> image = "tensorflow-training:2.21.0-cpu-py311"
        >>> processor = Processor(image_uri=image, entrypoint=["python3", "-c", "print(1)"])  # doctest: +SKIP
        >>> processor.run()  # doctest: +SKIP
    """

    @in_order("role", "image_uri", "instance_count", "instance_type", "entrypoint", *OPTIONS)
    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        entrypoint: Sequence[str] | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        check_options(type(self).__name__, options, ProcessorOptions)
        if not image_uri:
            raise ValueError(
                "image_uri is missing: it selects the environment, e.g. 'tensorflow-training:2.21.0-cpu-py311' or"
                " 'sagemaker-scikit-learn:1.2-1-cpu-py3'"
            )
        self.role = role or "SageMakerRole"
        self.image_uri = image_uri
        self.instance_count = 1 if instance_count is None else instance_count
        self.instance_type = instance_type or "local"
        self.entrypoint = list(entrypoint) if entrypoint else None
        self.volume_size_in_gb = options.get("volume_size_in_gb", 30)
        self.volume_kms_key = options.get("volume_kms_key")
        self.output_kms_key = options.get("output_kms_key")
        self.max_runtime_in_seconds = options.get("max_runtime_in_seconds")
        self.base_job_name = options.get("base_job_name")
        self.sagemaker_session = Session.adopt(options.get("sagemaker_session"))
        self.env = dict(options.get("env") or {}) or None
        self.tags = tags_of(options.get("tags"))
        self.network_config = options.get("network_config")
        self.arguments: list[str] | None = None
        self.jobs: list[ProcessingJob] = []
        # None before the first job. Any instead of a union: a client that has called run() knows that there is a job.
        self.latest_job: Any = None

    @deferrable("create_processing_job")
    def run(
        self,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start a job and, by default, wait for its end.

        Args:
            inputs: What is brought to the job. Local sources are uploaded to ``JOB/input/NAME`` in the default bucket.
            outputs: What is uploaded.
            arguments: Arguments of the command.
            wait: Return only when the job has ended. Default: True.
            logs: Print log lines while waiting. Default: True.
            job_name: Name of the job. Default: a generated name.
            experiment_config: Sent as ``ExperimentConfig``. Default: that of the enclosing `Run`, if any.
            kms_key: KMS key of the uploaded inputs. Recorded: nothing is encrypted.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
            ValueError: A local source does not exist, or ``job_name`` is invalid.
        """
        name = self._name(job_name)
        self._start(name, inputs, outputs, arguments, experiment_config=experiment_config, kms_key=kms_key)
        if wait:
            self.latest_job.wait(logs=logs)

    def _name(self, job_name: str | None) -> str:
        if job_name is not None:
            return check_name("job_name", job_name)
        return timestamped(self.base_job_name or image_base(self.image_uri))

    def _start(
        self,
        name: str,
        inputs: Sequence[ProcessingInput] | None,
        outputs: Sequence[ProcessingOutput] | None,
        arguments: Sequence[str] | None,
        *,
        experiment_config: Mapping[str, str] | None,
        kms_key: str | None,
    ) -> None:
        session = self.sagemaker_session
        self.arguments = list(arguments) if arguments else None
        staged = tuple(self._staged(each, i, name, kms_key) for i, each in enumerate(inputs or (), start=1))
        targets = tuple(self._placed(each, i, name) for i, each in enumerate(outputs or (), start=1))
        warn_of_instance_types(session, self.instance_type, stacklevel=4)
        session.sagemaker_client.create_processing_job(
            ProcessingJobName=name,
            RoleArn=session.expand_role(self.role),
            ProcessingResources={
                "ClusterConfig": present(
                    InstanceCount=self.instance_count,
                    InstanceType=self.instance_type,
                    VolumeSizeInGB=self.volume_size_in_gb,
                    VolumeKmsKeyId=self.volume_kms_key,
                )
            },
            AppSpecification=present(
                ImageUri=self.image_uri, ContainerEntrypoint=self.entrypoint, ContainerArguments=self.arguments
            ),
            **present(
                ProcessingInputs=[each.to_request() for each in staged] or None,
                ProcessingOutputConfig=(
                    present(Outputs=[each.to_request() for each in targets], KmsKeyId=self.output_kms_key)
                    if targets
                    else None
                ),
                StoppingCondition=(
                    {"MaxRuntimeInSeconds": self.max_runtime_in_seconds} if self.max_runtime_in_seconds else None
                ),
                Environment=self.env,
                NetworkConfig=self.network_config.to_request() if self.network_config else None,
                ExperimentConfig=experiment_config or current_config(),
                Tags=self.tags,
            ),
        )
        self.latest_job = ProcessingJob(session, name, staged, targets, self.output_kms_key)
        self.jobs.append(self.latest_job)

    def _staged(self, given: ProcessingInput, number: int, job_name: str, kms_key: str | None) -> ProcessingInput:
        """Return an input with its name and an S3 URI; a local source is uploaded."""
        name = given.input_name or f"input-{number}"
        source: Any = given.source or ""
        if isinstance(source, str) and not source.startswith("s3://"):
            path = Path(source.removeprefix("file://")).expanduser()
            if not path.exists():
                raise ValueError(f"source={source!r}: no file or directory {path.absolute()}, and no S3 URI")
            prefix = self.sagemaker_session.job_prefix(job_name)
            source = self._upload(path, f"{prefix}/input/{name}", kms_key)
        return replace(given, input_name=name, source=source, s3_input=None)

    def _placed(self, given: ProcessingOutput, number: int, job_name: str) -> ProcessingOutput:
        """Return an output with its name and an S3 URI whose bucket exists."""
        name, session = given.output_name or f"output-{number}", self.sagemaker_session
        destination = given.destination or session.output_place(job_name, "output", name)
        if session.keeps_places:
            given.destination = destination
        if not is_pipeline_variable(destination):
            session.ensure_bucket(S3Uri.parse(destination).bucket)
        return replace(given, output_name=name, destination=destination)

    def _upload(self, path: Path, prefix: str, kms_key: str | None) -> str:
        return self.sagemaker_session.upload_data(path, key_prefix=prefix, extra_args=encrypted_with(kms_key))


class ScriptProcessor(Processor):
    """Runs a script as a processing job.

    Args:
        role: As for `Processor`.
        image_uri: As for `Processor`.
        command: The interpreter of the script, with its options. Default: ``["python3"]``.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        **options: `ProcessorOptions`.

    Example:
        >>> processor = ScriptProcessor(image_uri="tensorflow-training:2.21.0-cpu-py311")  # doctest: +SKIP
        >>> processor.run("prepare.py", outputs=[ProcessingOutput("/opt/ml/processing/train")])  # doctest: +SKIP
    """

    @in_order("role", "image_uri", "command", "instance_count", "instance_type", *OPTIONS)
    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        super().__init__(role, image_uri, instance_count, instance_type, None, **options)
        self.command = list(command) if command else ["python3"]

    @deferrable("create_processing_job")
    def run(  # type: ignore[override] - a script comes first, as in AWS's SDK
        self,
        code: str,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start a job that runs a script and, by default, wait for its end.

        Args:
            code: The script: a local file, which is uploaded, or an S3 URI.
            inputs: As for `Processor.run`.
            outputs: As for `Processor.run`.
            arguments: Arguments of the script.
            wait: As for `Processor.run`.
            logs: As for `Processor.run`.
            job_name: As for `Processor.run`.
            experiment_config: As for `Processor.run`.
            kms_key: As for `Processor.run`, also for the script.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
            ValueError: ``code`` is no file, or as for `Processor.run`.
        """
        name = self._name(job_name)
        uri = code if code.startswith("s3://") else self._upload_code(local_file(code), name, kms_key)
        source = ProcessingInput(uri, str(CODE_DIRECTORY), input_name="code")
        self.entrypoint = [*self.command, str(CODE_DIRECTORY / S3Uri.parse(uri).key.rpartition("/")[2])]
        given = [*(inputs or ()), source]
        self._start(name, given, outputs, arguments, experiment_config=experiment_config, kms_key=kms_key)
        if wait:
            self.latest_job.wait(logs=logs)

    def get_run_args(
        self,
        code: str,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
    ) -> "RunArgs":
        """Return the arguments, for a `ProcessingStep` that is given the processor: its older form.

        Args:
            code: As for `run`.
            inputs: As for `run`.
            outputs: As for `run`.
            arguments: As for `run`.

        Returns:
            The arguments by name.
        """
        return RunArgs(code, inputs, outputs, arguments)

    def _upload_code(self, path: Path, job_name: str, kms_key: str | None) -> str:
        prefix = self.sagemaker_session.code_prefix(f"{job_name}/input/code", path.read_bytes())
        return self._upload(path, prefix, kms_key)


@dataclass(frozen=True)
class RunArgs:
    """Arguments of a step that is given a processor, in its older form.

    Attributes:
        code: The script.
        inputs: As for `Processor.run`.
        outputs: As for `Processor.run`.
        arguments: As for `Processor.run`.
    """

    code: str
    inputs: Sequence[ProcessingInput] | None = None
    outputs: Sequence[ProcessingOutput] | None = None
    arguments: Sequence[str] | None = None


def local_file(code: str) -> Path:
    """Return the path of a script.

    Raises:
        ValueError: There is no such file.
    """
    path = Path(code.removeprefix("file://")).expanduser()
    if not path.is_file():
        raise ValueError(f"code={code!r}: no file {path.absolute()}; expected a local file or an S3 URI")
    return path
