"""Processors of a framework: they run code and its packages in an environment of TensorFlow or scikit-learn."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.core.compatibility import argument_refusal
from tidemill.core.images import DEFAULT_TENSORFLOW, device_of, scikit_learn_image, training_image
from tidemill.core.names import S3Uri
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.network import NetworkConfig
from tidemill.sdk.processing import CODE_DIRECTORY, ScriptProcessor
from tidemill.sdk.processing_job import ProcessingInput, ProcessingOutput
from tidemill.sdk.sourcedir import SourceCode

__all__ = ["FrameworkProcessor", "SKLearnProcessor", "TensorFlowProcessor"]

_RUNNER = "runproc.sh"
_RUNNER_DIRECTORY = CODE_DIRECTORY.with_name("entrypoint")
_ARCHIVE = "sourcedir.tar.gz"
_SCRIPT = """#!/bin/bash
# Unpacks the submitted code, installs its packages and runs it.
set -e
submitted="$(cd "$(dirname "$0")/../code" && pwd)"
mkdir -p "${{TMPDIR:-/tmp}}/code" && cd "${{TMPDIR:-/tmp}}/code"
tar -xzf "$submitted/{archive}"
[ ! -f requirements.txt ] || python3 -m pip install -r requirements.txt
exec {command} {entry_point} "$@"
"""


class FrameworkProcessor(ScriptProcessor):
    """Runs a script with the code beside it as a processing job.

    Args:
        estimator_cls: Class of the framework's estimator: `TensorFlow`.
        framework_version: Version of the framework, e.g. ``2.21``.
        role: As for `Processor`.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        py_version: ``py3``, or a version such as ``py311``. Default: ``py3``.
        image_uri: Image in place of the one derived from the versions.
        command: The interpreter of the script, with its options. Default: ``["python3"]``.
        volume_size_in_gb: As for `Processor`.
        volume_kms_key: As for `Processor`.
        output_kms_key: As for `Processor`.
        code_location: S3 prefix for uploaded code. Default: the default bucket.
        max_runtime_in_seconds: As for `Processor`.
        base_job_name: As for `Processor`.
        sagemaker_session: As for `Processor`.
        env: As for `Processor`.
        tags: As for `Processor`.
        network_config: As for `Processor`.

    Raises:
        ValueError: The class is no estimator of TensorFlow, and there is no image.
    """

    def __init__(
        self,
        estimator_cls: type,
        framework_version: str | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        py_version: str = "py3",
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        code_location: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Any = None,
        env: Mapping[str, str] | None = None,
        tags: Any = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
        if image_uri is None and not (isinstance(estimator_cls, type) and issubclass(estimator_cls, TensorFlow)):
            raise ValueError(
                f"estimator_cls={estimator_cls!r} is no estimator of TensorFlow; expected tidemill.sdk.TensorFlow, or"
                " an image_uri"
            )
        device = device_of(instance_type or "local")
        version = framework_version or DEFAULT_TENSORFLOW
        super().__init__(
            role=role,
            image_uri=image_uri or training_image(version, py_version, device=device),
            command=command,
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
        self.estimator_cls = estimator_cls
        self.framework_version = framework_version
        self.py_version = py_version
        self.code_location = code_location

    def run(  # type: ignore[override] - arguments in the order of AWS's SDK
        self,
        code: str,
        source_dir: str | None = None,
        dependencies: Sequence[str] | None = None,
        git_config: Mapping[str, Any] | None = None,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
        codeartifact_repo_arn: str | None = None,
    ) -> None:
        """Start a job that runs a script with the code beside it and, by default, wait for its end.

        Packages of a ``requirements.txt`` at the root of the code are installed first.

        Args:
            code: The script: a path relative to ``source_dir``, any local file without ``source_dir``, or the S3 URI of
                a script that is run by ``/bin/bash``.
            source_dir: Directory with further code, or S3 URI of a packed one.
            dependencies: Further files and directories.
            git_config: A Git repository, to whose root the other paths are relative.
            inputs: As for `Processor.run`.
            outputs: As for `Processor.run`.
            arguments: Arguments of the script.
            wait: As for `Processor.run`.
            logs: As for `Processor.run`.
            job_name: As for `Processor.run`.
            experiment_config: As for `Processor.run`.
            kms_key: As for `Processor.run`, also for the code.
            codeartifact_repo_arn: Refused: there is no CodeArtifact.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
            ValueError: A path does not exist, or as for `Processor.run`.
        """
        refusal = argument_refusal("FrameworkProcessor.run", "codeartifact_repo_arn", codeartifact_repo_arn)
        if refusal is not None:
            raise ValueError(refusal)
        name = self._name(job_name)
        staged = [*(inputs or ())]
        if code.startswith("s3://"):
            staged.append(ProcessingInput(code, str(CODE_DIRECTORY), input_name="code"))
            runner = CODE_DIRECTORY / S3Uri.parse(code).key.rpartition("/")[2]
        else:
            found = SourceCode.find(code, source_dir, dependencies or (), git_config)
            staged += self._code_inputs(found, name, kms_key)
            runner = _RUNNER_DIRECTORY / _RUNNER
        self.entrypoint = ["/bin/bash", str(runner)]
        self._start(name, staged, outputs, arguments, experiment_config=experiment_config, kms_key=kms_key)
        if wait:
            self.latest_job.wait(logs=logs)

    def _code_inputs(self, code: SourceCode, job_name: str, kms_key: str | None) -> list[ProcessingInput]:
        """Upload the code and the script that runs it; return them as inputs."""
        session = self.sagemaker_session
        place = (
            S3Uri.parse((self.code_location or f"s3://{session.default_bucket()}").rstrip("/")) / job_name / "source"
        )
        session.ensure_bucket(place.bucket)
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
        archive = S3Uri.parse(code.remote).key.rpartition("/")[2] if code.remote else _ARCHIVE
        text = _SCRIPT.format(
            archive=archive, command=shlex.join(self.command), entry_point=shlex.quote(code.entry_point)
        )
        bodies = {_RUNNER: text.encode(), **({} if code.remote else {_ARCHIVE: code.pack()})}
        for name, body in bodies.items():
            session.s3_client.put_object(Bucket=place.bucket, Key=(place / name).key, Body=body, **encryption)
        return [
            ProcessingInput(code.remote or str(place / _ARCHIVE), str(CODE_DIRECTORY), input_name="code"),
            ProcessingInput(str(place / _RUNNER), str(_RUNNER_DIRECTORY), input_name="entrypoint"),
        ]


class TensorFlowProcessor(FrameworkProcessor):
    """Runs a script with the code beside it in an environment of TensorFlow. Arguments: see `FrameworkProcessor`.

    Args:
        framework_version: As for `FrameworkProcessor`.
        role: As for `Processor`.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        py_version: As for `FrameworkProcessor`.
        image_uri: As for `FrameworkProcessor`.
        command: As for `FrameworkProcessor`.
        volume_size_in_gb: As for `Processor`.
        volume_kms_key: As for `Processor`.
        output_kms_key: As for `Processor`.
        code_location: As for `FrameworkProcessor`.
        max_runtime_in_seconds: As for `Processor`.
        base_job_name: As for `Processor`.
        sagemaker_session: As for `Processor`.
        env: As for `Processor`.
        tags: As for `Processor`.
        network_config: As for `Processor`.
    """

    def __init__(
        self,
        framework_version: str | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        py_version: str = "py3",
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        code_location: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Any = None,
        env: Mapping[str, str] | None = None,
        tags: Any = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
        super().__init__(
            TensorFlow,
            framework_version,
            role=role,
            instance_count=instance_count,
            instance_type=instance_type,
            py_version=py_version,
            image_uri=image_uri,
            command=command,
            volume_size_in_gb=volume_size_in_gb,
            volume_kms_key=volume_kms_key,
            output_kms_key=output_kms_key,
            code_location=code_location,
            max_runtime_in_seconds=max_runtime_in_seconds,
            base_job_name=base_job_name,
            sagemaker_session=sagemaker_session,
            env=env,
            tags=tags,
            network_config=network_config,
        )


class SKLearnProcessor(ScriptProcessor):
    """Runs a script with scikit-learn and pandas, in their newest releases.

    Args:
        framework_version: Version of scikit-learn. The log of a job names it; the newest runs.
        role: As for `Processor`.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        command: As for `ScriptProcessor`.
        volume_size_in_gb: As for `Processor`.
        volume_kms_key: As for `Processor`.
        output_kms_key: As for `Processor`.
        max_runtime_in_seconds: As for `Processor`.
        base_job_name: As for `Processor`.
        sagemaker_session: As for `Processor`.
        env: As for `Processor`.
        tags: As for `Processor`.
        network_config: As for `Processor`.
    """

    def __init__(
        self,
        framework_version: str,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        command: Sequence[str] | None = None,
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
            image_uri=scikit_learn_image(framework_version),
            command=command,
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
