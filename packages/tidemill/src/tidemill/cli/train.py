"""`tidemill train`: submit a training script."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, StateDirOption
from tidemill.cli.service import ServiceChoice, ensure_service

app = typer.Typer()


@app.command()
def train(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script (inside --source-dir).")],
    source_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory that goes along.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="NAME=PATH|s3://...", help="A channel; repeatable.")
    ] = None,
    hp: Annotated[
        list[str] | None, typer.Option("--hp", metavar="NAME=VALUE", help="A hyperparameter; repeatable.")
    ] = None,
    variables: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="An environment variable; repeatable.")
    ] = None,
    instance_count: Annotated[int, typer.Option(min=1, help="Number of instances.")] = 1,
    instance_type: Annotated[str, typer.Option(help="As AWS names it; 'local' is this machine.")] = "local",
    framework_version: Annotated[str | None, typer.Option(help="TensorFlow version (default: settings).")] = None,
    py_version: Annotated[
        str, typer.Option(help="Python, e.g. py310 (default: any that the version runs on).")
    ] = "py3",
    job_name: Annotated[str | None, typer.Option("--name", help="Name of the job (default: made up).")] = None,
    output_path: Annotated[str | None, typer.Option(metavar="s3://...", help="S3 prefix of the model.")] = None,
    max_run: Annotated[int | None, typer.Option(min=1, metavar="SECONDS", help="Stop the job after that time.")] = None,
    compile_steps: Annotated[
        bool, typer.Option("--compile", help="Enable the training compiler: XLA if it is faster.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show the log until the job ends.")] = True,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Train with SCRIPT; exit code 1 if the job fails. Starts your own service if that is selected and not running."""
    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    channels = {name: uri(value) for name, value in pairs("--input", inputs)}
    arguments = given(
        source_dir=str(source_dir) if source_dir else None,
        hyperparameters={name: hyperparameter(value) for name, value in pairs("--hp", hp)} or None,
        environment=dict(pairs("--env", variables)) or None,
        output_path=output_path,
        max_run=max_run,
    )
    from tidemill.sdk import Session, TensorFlow, TrainingCompilerConfig

    if compile_steps:
        arguments["compiler_config"] = TrainingCompilerConfig()

    try:
        estimator = TensorFlow(
            str(script),
            role="tidemill",
            instance_count=instance_count,
            instance_type=instance_type,
            framework_version=framework_version or choice.settings.default_framework,
            py_version=py_version,
            sagemaker_session=Session(ensure_service(choice).session),
            **arguments,
        )
        estimator.fit(channels or None, wait=wait, job_name=job_name)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    job = estimator.latest_training_job
    if not wait and job is not None:
        typer.echo(f"{job.name} was submitted; `tidemill logs -f {job.name}` follows it")


def hyperparameter(text: str) -> int | float | str:
    """Return a number if ``text`` is a JSON number, otherwise the text: ``true`` reaches the script as written.

    Args:
        text: Value of the command line.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if number else text


def pairs(option: str, values: list[str] | None) -> list[tuple[str, str]]:
    """Return the names and values of an option that can be repeated.

    Args:
        option: The option, for errors.

    Raises:
        BadParameter: A value has another form, or a name is given twice.
    """
    found = [value.partition("=") for value in values or ()]
    for (name, sign, _), value in zip(found, values or (), strict=True):
        if not sign or not name:
            raise typer.BadParameter(f"{value!r} has not the form NAME=VALUE", param_hint=option)
    names = [name for name, _, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise typer.BadParameter(f"{', '.join(twice)} given more than once", param_hint=option)
    return [(name, value) for name, _, value in found]


def uri(value: str) -> str:
    """Return the URI of a channel's data.

    Args:
        value: A URI, or a path of this machine.

    Raises:
        BadParameter: It is neither.
    """
    if value.startswith(("s3://", "file://")):
        return value
    path = Path(value)
    if not path.exists():
        raise typer.BadParameter(f"{value!r} is neither an s3:// URI nor an existing path", param_hint="--input")
    # Not asuri(), which would percent-encode: the SDK uses the rest of the URI as a path.
    return f"file://{path.absolute()}"


def given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None.

    Args:
        **arguments: Arguments of the SDK.
    """
    return {name: value for name, value in arguments.items() if value is not None}
