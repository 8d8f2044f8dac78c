"""Processors of a framework: they run code and its packages in an environment of TensorFlow or scikit-learn."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Unpack

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.images import DEFAULT_TENSORFLOW, scikit_learn_image, training_image
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import in_order
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.processing import CODE_DIRECTORY, OPTIONS, ProcessorOptions, RunArgs, ScriptProcessor
from tidemill.sdk.processing_job import ProcessingInput, ProcessingOutput
from tidemill.sdk.session import put_bytes
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.variable import deferrable, device_for

_RUNNER = "runproc.sh"
_RUNNER_DIRECTORY = CODE_DIRECTORY.with_name("entrypoint")
_ARCHIVE = "sourcedir.tar.gz"
_ORDER = (
    *("framework_version", "role", "instance_count", "instance_type", "py_version", "image_uri", "command"),
    *(*OPTIONS[:3], "code_location", *OPTIONS[3:]),
)
"""Arguments of processors of a framework, in the order of AWS's SDK."""

_SCRIPT = """#!/bin/bash
# Unpacks the submitted code, installs its packages and runs it.
set -e
submitted="$(cd "$(dirname "$0")/../{directory}" && pwd)"
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
        command: As for `ScriptProcessor`.
        code_location: S3 prefix for uploaded code. Default: the default bucket.
        **options: `ProcessorOptions`.

    Raises:
        ValueError: The class is no estimator of TensorFlow, and there is no image.
    """

    @in_order("estimator_cls", *_ORDER)
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
        code_location: str | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        if image_uri is None and not (isinstance(estimator_cls, type) and issubclass(estimator_cls, TensorFlow)):
            raise ValueError(
                f"estimator_cls={estimator_cls!r} is no estimator of TensorFlow; expected tidemill.sdk.TensorFlow, or"
                " an image_uri"
            )
        device = device_for(instance_type)
        version = framework_version or DEFAULT_TENSORFLOW
        image_uri = image_uri or training_image(version, py_version, device=device)
        super().__init__(role, image_uri, command, instance_count, instance_type, **options)
        self.estimator_cls = estimator_cls
        self.framework_version = framework_version
        self.py_version = py_version
        self.code_location = code_location

    @deferrable("create_processing_job")
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
        refuse_arguments("FrameworkProcessor.run", codeartifact_repo_arn=codeartifact_repo_arn)
        name = self._name(job_name)
        staged = [*(inputs or ())]
        if code.startswith("s3://"):
            staged.append(ProcessingInput(code, str(CODE_DIRECTORY), input_name="code"))
            runner = CODE_DIRECTORY / S3Uri.parse(code).key.rpartition("/")[2]
        else:
            found = SourceCode.find(code, source_dir, dependencies or (), git_config)
            staged += self._code_inputs(found, name, kms_key, CODE_DIRECTORY)
            runner = _RUNNER_DIRECTORY / _RUNNER
        self.entrypoint = ["/bin/bash", str(runner)]
        self._start(name, staged, outputs, arguments, experiment_config=experiment_config, kms_key=kms_key)
        if wait:
            self.latest_job.wait(logs=logs)

    def get_run_args(  # type: ignore[override] - arguments in the order of AWS's SDK
        self,
        code: str,
        source_dir: str | None = None,
        dependencies: Sequence[str] | None = None,
        git_config: Mapping[str, Any] | None = None,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        job_name: str | None = None,
    ) -> RunArgs:
        """Upload the code, and return the arguments for a `ProcessingStep` that is given the processor.

        `run` with a `PipelineSession` is newer, and uploads the code only if it has changed.

        Args:
            code: As for `run`.
            source_dir: As for `run`.
            dependencies: As for `run`.
            git_config: As for `run`.
            inputs: As for `run`.
            outputs: As for `run`.
            arguments: As for `run`.
            job_name: Begins the key of the code. Default: a generated name.

        Returns:
            The arguments by name: a script that runs the code, and the code as a further input.

        Raises:
            ValueError: A path does not exist.
        """
        if code.startswith("s3://"):
            return RunArgs(code, inputs, outputs, arguments)
        found = SourceCode.find(code, source_dir, dependencies or (), git_config)
        # The step gives the script a place of its own, beside that of the code.
        packed, runner = self._code_inputs(found, self._name(job_name), None, CODE_DIRECTORY.with_name("source"))
        return RunArgs(str(runner.source), [*(inputs or ()), packed], outputs, arguments)

    def _code_inputs(
        self, code: SourceCode, job_name: str, kms_key: str | None, directory: PurePosixPath
    ) -> list[ProcessingInput]:
        """Upload the code and the script that runs it; return them as inputs, the code below a directory of the job."""
        archive = S3Uri.parse(code.remote).key.rpartition("/")[2] if code.remote else _ARCHIVE
        text = _SCRIPT.format(
            archive=archive,
            command=shlex.join(self.command),
            directory=directory.name,
            entry_point=shlex.quote(code.entry_point),
        )
        packed = code.remote or self._put_code(job_name, _ARCHIVE, code.pack(), kms_key)
        runner = self._put_code(job_name, _RUNNER, text.encode(), kms_key)
        return [
            ProcessingInput(packed, str(directory), input_name=directory.name),
            ProcessingInput(runner, str(_RUNNER_DIRECTORY), input_name="entrypoint"),
        ]

    def _put_code(self, job_name: str, name: str, body: bytes, kms_key: str | None) -> str:
        session = self.sagemaker_session
        base = S3Uri.parse((self.code_location or f"s3://{session.default_bucket()}").rstrip("/"))
        place = base / session.code_prefix(f"{job_name}/source", body) / name
        session.ensure_bucket(place.bucket)
        put_bytes(session, body, place, kms_key)
        return str(place)


class TensorFlowProcessor(FrameworkProcessor):
    """Runs a script with the code beside it in an environment of TensorFlow.

    Args:
        framework_version: As for `FrameworkProcessor`.
        role: As for `Processor`.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        py_version: As for `FrameworkProcessor`.
        image_uri: As for `FrameworkProcessor`.
        command: As for `ScriptProcessor`.
        code_location: As for `FrameworkProcessor`.
        **options: `ProcessorOptions`.
    """

    @in_order(*_ORDER)
    def __init__(
        self,
        framework_version: str | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        py_version: str = "py3",
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        code_location: str | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        super().__init__(
            TensorFlow,
            framework_version,
            role,
            instance_count,
            instance_type,
            py_version,
            image_uri,
            command,
            code_location=code_location,
            **options,
        )


class SKLearnProcessor(ScriptProcessor):
    """Runs a script with scikit-learn and pandas, in their newest releases.

    Args:
        framework_version: Version of scikit-learn. The log of a job names it; the newest runs.
        role: As for `Processor`.
        instance_count: As for `Processor`.
        instance_type: As for `Processor`.
        command: As for `ScriptProcessor`.
        **options: `ProcessorOptions`.
    """

    @in_order("framework_version", "role", "instance_count", "instance_type", "command", *OPTIONS)
    def __init__(
        self,
        framework_version: str,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        command: Sequence[str] | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        super().__init__(role, scikit_learn_image(framework_version), command, instance_count, instance_type, **options)
