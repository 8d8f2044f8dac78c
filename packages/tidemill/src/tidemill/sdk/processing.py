"""Processors: run a command or a script as a processing job, in the form of SageMaker's SDK."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.naming import check_name, image_base, timestamped
from tidemill.sdk.network import NetworkConfig
from tidemill.sdk.processing_job import ProcessingInput, ProcessingJob, ProcessingOutput
from tidemill.sdk.run_context import current_config
from tidemill.sdk.session import Session, warn_of_instance_types

__all__ = ["CODE_DIRECTORY", "Processor", "ScriptProcessor", "local_file"]

CODE_DIRECTORY = PurePosixPath("/opt/ml/processing/input/code")
"""Directory of the submitted code inside a job."""


class Processor:
    """Runs a command as a processing job.

    Args:
        role: Name or ARN of the role whose policy limits the job's keys. Default: ``SageMakerRole``.
        image_uri: Image that selects the environment: one of TensorFlow or scikit-learn.
        instance_count: Number of instances. Default: 1.
        instance_type: Type of the instances, or ``local``. Default: ``local``.
        entrypoint: The command, with its first arguments.
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

    Raises:
        ValueError: There is no image.

    Example:
        >>> image = "tensorflow-training:2.21.0-cpu-py311"
        >>> processor = Processor(image_uri=image, entrypoint=["python3", "-c", "print(1)"])  # doctest: +SKIP
        >>> processor.run()  # doctest: +SKIP
    """

    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        entrypoint: Sequence[str] | None = None,
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Any = None,
        env: Mapping[str, str] | None = None,
        tags: Any = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
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
        self.volume_size_in_gb = volume_size_in_gb
        self.volume_kms_key = volume_kms_key
        self.output_kms_key = output_kms_key
        self.max_runtime_in_seconds = max_runtime_in_seconds
        self.base_job_name = base_job_name
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self.env = dict(env) if env else None
        self.tags = tags_of(tags)
        self.network_config = network_config
        self.arguments: list[str] | None = None
        self.jobs: list[ProcessingJob] = []
        # None before the first job. Any instead of a union: a client that has called run() knows that there is a job.
        self.latest_job: Any = None

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
        warn_of_instance_types(session, self.instance_type, stacklevel=3)
        session.sagemaker_client.create_processing_job(
            ProcessingJobName=name,
            RoleArn=session.expand_role(self.role),
            ProcessingInputs=[each.to_request() for each in staged],
            ProcessingOutputConfig=present(
                Outputs=[each.to_request() for each in targets], KmsKeyId=self.output_kms_key
            ),
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
        name, source = given.input_name or f"input-{number}", given.source or ""
        if not source.startswith("s3://"):
            path = Path(source.removeprefix("file://")).expanduser()
            if not path.exists():
                raise ValueError(f"source={source!r}: no file or directory {path.absolute()}, and no S3 URI")
            source = self._upload(path, f"{job_name}/input/{name}", kms_key)
        return replace(given, input_name=name, source=source, s3_input=None)

    def _placed(self, given: ProcessingOutput, number: int, job_name: str) -> ProcessingOutput:
        """Return an output with its name and an S3 URI whose bucket exists."""
        name, session = given.output_name or f"output-{number}", self.sagemaker_session
        destination = given.destination or f"s3://{session.default_bucket()}/{job_name}/output/{name}"
        session.ensure_bucket(S3Uri.parse(destination).bucket)
        return replace(given, output_name=name, destination=destination)

    def _upload(self, path: Path, prefix: str, kms_key: str | None) -> str:
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else None
        return self.sagemaker_session.upload_data(path, key_prefix=prefix, extra_args=encryption)


class ScriptProcessor(Processor):
    """Runs a script as a processing job.

    Args:
        role: As for `Processor`.
        image_uri: As for `Processor`.
        command: The interpreter of the script, with its options. Default: ``["python3"]``.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        volume_size_in_gb: As for `Processor`.
        volume_kms_key: As for `Processor`.
        output_kms_key: As for `Processor`.
        max_runtime_in_seconds: As for `Processor`.
        base_job_name: As for `Processor`.
        sagemaker_session: As for `Processor`.
        env: As for `Processor`.
        tags: As for `Processor`.
        network_config: As for `Processor`.

    Example:
        >>> processor = ScriptProcessor(image_uri="tensorflow-training:2.21.0-cpu-py311")  # doctest: +SKIP
        >>> processor.run("prepare.py", outputs=[ProcessingOutput("/opt/ml/processing/train")])  # doctest: +SKIP
    """

    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Any = None,
        env: Mapping[str, str] | None = None,
        tags: Any = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
        super().__init__(
            role=role,
            image_uri=image_uri,
            instance_count=instance_count,
            instance_type=instance_type,
            volume_size_in_gb=volume_size_in_gb,
            volume_kms_key=volume_kms_key,
            output_kms_key=output_kms_key,
            max_runtime_in_seconds=max_runtime_in_seconds,
            base_job_name=base_job_name,
            sagemaker_session=sagemaker_session,
            env=env,
            tags=tags,
            network_config=network_config,
        )
        self.command = list(command) if command else ["python3"]

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
        uri = code if code.startswith("s3://") else self._upload(local_file(code), f"{name}/input/code", kms_key)
        source = ProcessingInput(uri, str(CODE_DIRECTORY), input_name="code")
        self.entrypoint = [*self.command, str(CODE_DIRECTORY / S3Uri.parse(uri).key.rpartition("/")[2])]
        given = [*(inputs or ()), source]
        self._start(name, given, outputs, arguments, experiment_config=experiment_config, kms_key=kms_key)
        if wait:
            self.latest_job.wait(logs=logs)


def local_file(code: str) -> Path:
    """Return the path of a script.

    Raises:
        ValueError: There is no such file.
    """
    path = Path(code.removeprefix("file://")).expanduser()
    if not path.is_file():
        raise ValueError(f"code={code!r}: no file {path.absolute()}; expected a local file or an S3 URI")
    return path
