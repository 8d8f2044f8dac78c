"""`tidemill run`: run a client script unchanged, with the local service and imports that AWS's SDK may lack."""

import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import StateDirOption, load_settings
from tidemill.cli.service import endpoint_is_named, ensure_service

if TYPE_CHECKING:
    from tidemill.cli.service import LocalService

__all__ = ["app"]

app = typer.Typer()


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    client: Annotated[
        Path, typer.Argument(metavar="CLIENT.py", exists=True, dir_okay=False, readable=True, help="The script.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    state_dir: StateDirOption = None,
) -> None:
    """Run a client script against the local service, which is started if it is not running.

    `sagemaker.tensorflow` and related modules are provided if AWS's own package lacks them. If the environment already
    names an endpoint, that endpoint is used and nothing is started.
    """
    settings = load_settings(state_dir=state_dir)
    if not endpoint_is_named(settings):
        _enter(ensure_service(settings))
    if state_dir is not None:
        # Processes that the script starts have to find the same service.
        os.environ["TIDEMILL_STATE_DIR"] = str(state_dir.absolute())
    import tidemill.compat  # noqa: F401

    _run_script(client.absolute(), arguments or [])


def _enter(service: "LocalService") -> None:
    """Set the environment variables that `tidemill env` prints in this process."""
    from tidemill.server.exports import REMOVED_VARIABLES, client_environment

    for name in REMOVED_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(client_environment(service.connection, state=service.state))


def _run_script(client: Path, arguments: list[str]) -> None:
    sys.argv = [str(client), *arguments]
    sys.path.insert(0, str(client.parent))
    try:
        runpy.run_path(str(client), run_name="__main__")
    except KeyboardInterrupt:
        raise
    except Exception as error:
        # Print the script's error as Python would, without tidemill's frames.
        traceback.print_exception(type(error), error, _from_script(error.__traceback__, client))
        raise typer.Exit(1) from error


def _from_script(trace: TracebackType | None, client: Path) -> TracebackType | None:
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename != str(client):
        frame = frame.tb_next
    return frame or trace
