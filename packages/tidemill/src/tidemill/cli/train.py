"""`tidemill train`: submit a training script."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.job_options import (
    FollowOption,
    FrameworkOption,
    HyperparameterOption,
    InputOption,
    InstanceCountOption,
    InstanceTypeOption,
    JobNameOption,
    MaxRunOption,
    ScriptArgument,
    SourceDirOption,
    channels,
    distribution,
    given,
    metric_definition,
    pairs,
    script_arguments,
)
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_json

if TYPE_CHECKING:
    from tidemill.cli.service import ServiceChoice

app = typer.Typer(add_completion=False)


class _InputMode(StrEnum):
    FILE = "File"
    PIPE = "Pipe"
    FAST_FILE = "FastFile"


_InputModeOption = Annotated[_InputMode | None, typer.Option(help="How channels arrive (default: File).")]
_EnvOption = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="An environment variable; repeatable.")
]
_VolumeOption = Annotated[int | None, typer.Option(min=1, metavar="GB", help="Size of the data volume.")]
_DistributionOption = Annotated[
    str | None,
    typer.Option(
        "--distribution",
        metavar="KIND[,KEY=VALUE]|JSON",
        help="parameter_server, multi_worker_mirrored_strategy, or e.g. mpi,processes_per_host=2; or the SDK's"
        " argument as JSON.",
    ),
]
_MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME[=REGEX]",
        help="A metric to read from the log; repeatable. Without REGEX as Keras writes it.",
    ),
]
_PythonOption = Annotated[str, typer.Option(help="Python, e.g. py310 (default: any that the version runs on).")]
_RoleOption = Annotated[str, typer.Option(help="Name or ARN of the job's role.")]
_OutputOption = Annotated[str | None, typer.Option(metavar="s3://...", help="S3 prefix of the model.")]
_CheckpointOption = Annotated[
    str | None, typer.Option(metavar="s3://...", help="S3 prefix of checkpoints, restored at the start.")
]
_CheckpointPathOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="Their directory in the job (default: /opt/ml/checkpoints).")
]
_SpotOption = Annotated[
    bool, typer.Option("--spot", "--use-spot-instances", help="A spot job, which `tidemill interrupt` interrupts.")
]
_MaxWaitOption = Annotated[
    int | None, typer.Option(min=1, metavar="SECONDS", help="Of a spot job: longest time with its restarts.")
]
_RetriesOption = Annotated[
    int | None, typer.Option(min=1, max=30, help="Restarts from checkpoints after internal errors.")
]
_TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; repeatable.")]
_CompileOption = Annotated[bool, typer.Option("--compile", help="Enable the training compiler: XLA if it is faster.")]
_DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only print the CreateTrainingJob request; upload and send nothing.")
]


@app.command()
def train(
    script: ScriptArgument,
    source_dir: SourceDirOption = None,
    inputs: InputOption = None,
    input_mode: _InputModeOption = None,
    hp: HyperparameterOption = None,
    variables: _EnvOption = None,
    instance_count: InstanceCountOption = 1,
    instance_type: InstanceTypeOption = "local",
    volume_size: _VolumeOption = None,
    strategy: _DistributionOption = None,
    metrics: _MetricOption = None,
    framework_version: FrameworkOption = None,
    py_version: _PythonOption = "py3",
    job_name: JobNameOption = None,
    role: _RoleOption = "tidemill",
    output_path: _OutputOption = None,
    checkpoint_s3_uri: _CheckpointOption = None,
    checkpoint_local_path: _CheckpointPathOption = None,
    max_run: MaxRunOption = None,
    use_spot: _SpotOption = False,
    max_wait: _MaxWaitOption = None,
    max_retry_attempts: _RetriesOption = None,
    tags: _TagOption = None,
    compile_steps: _CompileOption = False,
    wait: FollowOption = True,
    dry_run: _DryRunOption = False,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Train with SCRIPT; exit code 1 if the job fails. Starts your own service if that is selected and not running."""
    from tidemill.cli.service import ServiceChoice

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    data = channels(inputs)
    common = script_arguments(choice.settings, version=framework_version, source_dir=source_dir, hp=hp, max_run=max_run)
    arguments = common | given(
        environment=dict(pairs("--env", variables)) or None,
        distribution=distribution(strategy),
        metric_definitions=[metric_definition(each) for each in metrics or ()] or None,
        tags=dict(pairs("--tag", tags)) or None,
        input_mode=input_mode and input_mode.value,
        volume_size=volume_size,
        output_path=output_path,
        checkpoint_s3_uri=checkpoint_s3_uri,
        checkpoint_local_path=checkpoint_local_path,
        use_spot_instances=use_spot or None,
        max_wait=max_wait,
        max_retry_attempts=max_retry_attempts,
    )
    arguments |= {"role": role, "instance_count": instance_count, "instance_type": instance_type}
    try:
        estimator = _estimator(choice, script, arguments | {"py_version": py_version}, compile_steps, sends=not dry_run)
        if dry_run:
            print_json(_request(estimator, data, job_name))
            return
        estimator.fit(data or None, wait=False, job_name=job_name)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    _follow(estimator.latest_training_job, wait=wait, json=json)


def _estimator(
    choice: "ServiceChoice", script: Path, arguments: dict[str, Any], compile_steps: bool, *, sends: bool
) -> Any:
    from tidemill.cli.service import ensure_service
    from tidemill.sdk import Session, TensorFlow, TrainingCompilerConfig

    if compile_steps:
        arguments["compiler_config"] = TrainingCompilerConfig()
    session = Session(ensure_service(choice).session if sends else choice.session())
    session.sends = sends
    return TensorFlow(str(script), sagemaker_session=session, **arguments)


def _follow(job: Any, *, wait: bool, json: bool) -> None:
    _say_estimate(job)
    if wait:
        job.wait()
    if json:
        description = job.describe()
        model = description.get("ModelArtifacts", {}).get("S3ModelArtifacts") or None
        print_json({"name": job.name, "status": description["TrainingJobStatus"], "model": model})
    elif not wait:
        typer.echo(f"{job.name} was submitted; `tidemill logs -f {job.name}` follows it")


def _say_estimate(job: Any) -> None:
    from tidemill.cli.estimate import Estimates

    estimate = Estimates(job.session).of(job.describe())
    if estimate is not None:
        typer.echo(f"tidemill: {job.name} takes {estimate.text}", err=True)


def _request(estimator: Any, data: dict[str, Any], job_name: str | None) -> dict[str, Any]:
    from tidemill.sdk.naming import image_base, timestamped

    name = job_name or timestamped(image_base(estimator.training_image_uri()))
    return estimator.training_request(name, data or None)
