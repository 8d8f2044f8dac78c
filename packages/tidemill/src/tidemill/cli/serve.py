"""`tidemill serve`: serve a local model in the terminal, as an endpoint would, without a service."""

import hashlib
import io
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill._shared.trees import remove_tree
from tidemill.cli.failures import CommandFailed
from tidemill.cli.job_options import EndpointTypeOption, FrameworkOption
from tidemill.cli.model_path import ModelKind, ModelPath
from tidemill.cli.options import JsonOption, load_settings
from tidemill.cli.text import print_json_line

if TYPE_CHECKING:
    from tidemill.environments.builder import JobEnvironment
    from tidemill.sdk.console import Console
    from tidemill.sdk.sourcedir import SourceCode
    from tidemill.shim.session import InstanceSession

app = typer.Typer(add_completion=False)

_PORT = 8080
_HOST = "127.0.0.1"
_INTERRUPTED = 130
_INFERENCE = "inference.py"


@app.command()
def serve(
    path: Annotated[Path, typer.Argument(help="SavedModel directory, .keras, .h5 or .tflite file, or model.tar.gz.")],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (default: 8080 or the next free one); 0: a free one.")
    ] = None,
    endpoint_type: EndpointTypeOption = None,
    entry_point: Annotated[str | None, typer.Option(metavar="SCRIPT", help="Script with handlers.")] = None,
    source_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the script.")] = None,
    framework_version: FrameworkOption = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable of the server; repeatable.")
    ] = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="[auto|mount|plain]", help="How the server is separated from the machine.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Serve a model until Ctrl-C, with the server, environment and sandbox of endpoints. No service is needed.

    Exit code 1 if the model cannot be served.
    """
    from tidemill.cli.terminal_instance import TerminalLog, terminal_session
    from tidemill.sdk.console import Console
    from tidemill.shim.failures import InstanceFailure
    from tidemill.shim.stopping import Stopped

    model = ModelPath.find(path)
    settings = load_settings(isolation=isolation)
    kind, code = _handlers(endpoint_type, entry_point, source_dir)
    variables = _variables(env or [])
    if kind == "python" and code is not None:
        variables["SAGEMAKER_PROGRAM"] = code.entry_point
    console = Console()
    introduce = _print_ready if json else _introduce
    log = TerminalLog(console, ready=lambda url, models: introduce(console, model, url, models, kind=kind))
    port = _free_port(port, console)
    try:
        with terminal_session(
            settings,
            framework_version=framework_version or settings.default_framework,
            serves=kind,
            variables=variables,
            log=log,
            visible=(model.path,),
        ) as session:
            _serve(session, model, code, port=port)
    except Stopped:
        raise typer.Exit(_INTERRUPTED) from None
    except InstanceFailure as failure:
        raise CommandFailed(str(failure).partition(": ")[2]) from failure


def _handlers(
    endpoint_type: str | None, entry_point: str | None, source_dir: str | None
) -> "tuple[str, SourceCode | None]":
    from tidemill.sdk.sourcedir import SourceCode
    from tidemill.sdk.tensorflow_model import check_endpoint_type

    try:
        kind = check_endpoint_type(endpoint_type)
        if source_dir is not None and entry_point is None:
            raise ValueError(f"source_dir={source_dir!r} needs entry_point, the script in it that has the handlers")
        code = None if entry_point is None else SourceCode.find(entry_point, source_dir)
        if code is not None and code.remote is not None:
            raise ValueError(f"source_dir={source_dir!r} is on S3, which needs a service; give a directory")
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    return kind, code


def _variables(given: list[str]) -> dict[str, str]:
    variables = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{each!r} is not of the form NAME=VALUE", param_hint="--env")
        if name == "SAGEMAKER_MULTI_MODEL":
            raise CommandFailed(f"{each}: one model is served here; deploy many models as a multi-model endpoint")
        variables[name] = value
    return variables


def _free_port(port: int | None, console: "Console") -> int:
    """Return the port for the server. A requested port that is in use is an error."""
    from tidemill.server.listener import listening

    with listening(host=_HOST, port=_PORT if port is None else port, or_next=port is None) as sock:
        found = sock.getsockname()[1]
    if port is None and found != _PORT:
        console.say(f"tidemill: port {_PORT} is in use; taking {found} (--port chooses another)")
    return 0 if port == 0 else found


def _print_ready(console: "Console", model: ModelPath, url: str, models: list[str], *, kind: str) -> None:
    del console
    print_json_line({"url": url, "path": str(model.path), "endpoint_type": kind, "models": models})


def _introduce(console: "Console", model: ModelPath, url: str, models: list[str], *, kind: str) -> None:
    console.say(f"tidemill: serving {model.path} at {url} (Ctrl-C ends it)")
    console.say(f"tidemill:   POST {url}/invocations")
    if kind == "tensorflow-serving":
        for name in models:
            console.say(f"tidemill:   POST {url}/v1/models/{name}:predict, GET {url}/v1/models/{name}/metadata")


def _serve(session: "InstanceSession", model: ModelPath, code: "SourceCode | None", *, port: int) -> None:
    from tidemill.shim.endpoint import ModelServing, keep_serving

    environment = session.prepare()
    _lay_out(session, environment, model)
    _add_code(session, code)
    keep_serving(session, environment, ModelServing(port=port, most_ends=1))


def _lay_out(session: "InstanceSession", environment: "JobEnvironment", model: ModelPath) -> None:
    """Provide the model in the directory of an endpoint's unpacked archive, without copying large files."""
    directory = session.directory.ml / "model"
    if model.kind is ModelKind.ARCHIVE:
        _unpack(session, environment, model.path)
    elif model.kind is ModelKind.KERAS:
        session.log.note(f"tidemill: exporting {model.path} to a SavedModel")
        _export(session, environment, model.path)
    elif model.kind is ModelKind.TFLITE:
        version = directory / "1"
        version.mkdir()
        (version / "model.tflite").symlink_to(model.path)
    elif model.kind is ModelKind.VERSION:
        (directory / model.version).symlink_to(model.path)
    else:
        for entry in model.path.iterdir():
            if entry.name == "code" and entry.is_dir():
                shutil.copytree(entry, directory / "code", ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (directory / entry.name).symlink_to(entry)


def _unpack(session: "InstanceSession", environment: "JobEnvironment", archive: Path) -> None:
    from tidemill.instance.spec import ObjectFile
    from tidemill.shim.archives import extract

    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    source = ObjectFile(
        uri=str(archive), name=archive.name, file=str(archive), size_bytes=archive.stat().st_size, sha256=digest
    )
    extract(session, environment, source, "model")


def _export(session: "InstanceSession", environment: "JobEnvironment", file: Path) -> None:
    from tidemill.shim.archives import run_once

    argv = [str(environment.python), "-m", "tidemill_serving.keras_export"]
    view = session.view(environment)
    variables = session.variables(environment, view)
    launch = session.wrap([*argv, str(file), f"{session.base_dir}/model/1"], view=view, variables=variables)
    run_once(session, launch, what=str(file))


def _add_code(session: "InstanceSession", code: "SourceCode | None") -> None:
    """Copy the handlers to the server's code directory."""
    python = session.spec.serves == "python"
    directory = session.directory.ml / ("code" if python else "model/code")
    if code is None:
        return
    remove_tree(directory)
    with tarfile.open(fileobj=io.BytesIO(code.pack(dependencies_below="" if python else "lib/"))) as packed:
        packed.extractall(directory, filter="data")
    if not python and code.entry_point != _INFERENCE:
        if (directory / _INFERENCE).exists():
            raise CommandFailed(
                f"--entry-point {code.entry_point} would become {_INFERENCE}, but --source-dir has another file of"
                " that name; rename one of them"
            )
        (directory / code.entry_point).rename(directory / _INFERENCE)
