"""Options of the commands that submit a script or serve a model, and how their values are read.

They are written as in the SDK, so that a call of the estimator can be typed: ``--input
train=s3://bucket/train,input_mode=Pipe``, ``--distribution mpi,processes_per_host=2``.
"""

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tidemill.settings import Settings

ScriptArgument = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script (inside --source-dir).")]
SourceDirOption = Annotated[Path | None, typer.Option("--source-dir", metavar="DIR", help="Directory that goes along.")]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=PATH|s3://...[,KEY=VALUE]",
        help="A channel; repeatable. KEY is an argument of TrainingInput, e.g. input_mode, content_type, distribution,"
        " compression, s3_data_type; or shuffle_seed.",
    ),
]
HyperparameterOption = Annotated[
    list[str] | None, typer.Option("--hp", metavar="NAME=VALUE", help="A hyperparameter; repeatable.")
]
InstanceCountOption = Annotated[int, typer.Option(min=1, help="Number of instances.")]
InstanceTypeOption = Annotated[str, typer.Option(help="As AWS names it; 'local' is this machine.")]
FrameworkOption = Annotated[str | None, typer.Option(help="TensorFlow version (default: settings).")]
JobNameOption = Annotated[str | None, typer.Option("--name", help="Name of the job (default: made up).")]
MaxRunOption = Annotated[int | None, typer.Option(min=1, metavar="SECONDS", help="Stop a training after that time.")]
FollowOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Show what the job does until it ends.")]
EndpointTypeOption = Annotated[
    str | None, typer.Option(metavar="[tensorflow-serving|python]", help="Kind of endpoint.")
]

_CHANNEL_KEYS = (
    "distribution",
    "compression",
    "content_type",
    "record_wrapping",
    "s3_data_type",
    "input_mode",
    "attribute_names",
    "shuffle_seed",
)
_CHANNEL_END = re.compile(rf",(?=(?:{'|'.join(_CHANNEL_KEYS)})=)")
_NUMBER = r"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)"


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


def channels(values: list[str] | None) -> dict[str, Any]:
    """Return the inputs of `fit` for ``--input``.

    Args:
        values: As typed.

    Raises:
        BadParameter: A value has another form, or there is no such file.
    """
    return {name: _channel(text) for name, text in pairs("--input", values)}


def _channel(text: str) -> Any:
    from tidemill.sdk.inputs import ShuffleConfig, TrainingInput

    place, *rest = _CHANNEL_END.split(text)
    options: dict[str, Any] = dict(pairs("--input", rest))
    if "attribute_names" in options:
        options["attribute_names"] = options["attribute_names"].split(":")
    if "shuffle_seed" in options:
        seed = options.pop("shuffle_seed")
        if not re.fullmatch(r"\d+", seed):
            raise typer.BadParameter(f"shuffle_seed={seed!r} is no whole number", param_hint="--input")
        options["shuffle_config"] = ShuffleConfig(int(seed))
    try:
        return TrainingInput(uri(place), **options) if options else uri(place)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--input") from error


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


def distribution(text: str | None) -> dict[str, Any] | None:
    """Return the argument ``distribution`` of the estimator.

    Args:
        text: A kind with options, e.g. ``mpi,processes_per_host=2``, or the whole argument as JSON.

    Raises:
        BadParameter: The text is neither.
    """
    if text is None:
        return None
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is not JSON: {error}", param_hint="--distribution") from error
    kind, *rest = text.split(",")
    options = {name: _literal(value) for name, value in pairs("--distribution", rest)}
    return {kind: {"enabled": True, **options}}


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def metric_definition(text: str) -> dict[str, str]:
    """Return an entry of ``metric_definitions``.

    Args:
        text: ``NAME=REGEX``, or ``NAME`` for what Keras writes: the last ``val_NAME`` of a line, else its first
            ``NAME``.
    """
    name, _, regex = text.partition("=")
    return {"Name": name, "Regex": regex or rf"(?:.*\bval_|\b){re.escape(name)}\W{{1,3}}{_NUMBER}"}


def script_arguments(
    settings: "Settings", *, version: str | None, source_dir: Path | None, hp: list[str] | None, max_run: int | None
) -> dict[str, Any]:
    """Return the arguments of the estimator that all commands have which train with a script.

    Args:
        settings: Have the default version.
        version: ``--framework-version``.
        source_dir: ``--source-dir``.
        hp: ``--hp``, as typed.
        max_run: ``--max-run``, in seconds.

    Raises:
        BadParameter: A hyperparameter has another form than NAME=VALUE.
    """
    return given(
        framework_version=version or settings.default_framework,
        source_dir=str(source_dir) if source_dir else None,
        hyperparameters={name: hyperparameter(value) for name, value in pairs("--hp", hp)} or None,
        max_run=max_run,
    )


def given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None.

    Args:
        **arguments: Arguments of the SDK.
    """
    return {name: value for name, value in arguments.items() if value is not None}
