"""`tidemill run`: run a client script unchanged, with the local service and imports that AWS's SDK may lack."""

import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import EndpointOption, StateDirOption

if TYPE_CHECKING:
    from tidemill.cli.service import OwnService

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    client: Annotated[
        Path, typer.Argument(metavar="CLIENT.py", exists=True, dir_okay=False, readable=True, help="The script.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Run a client script. Your own service is started if it is selected and not running.

    `sagemaker.tensorflow` and related modules are provided if AWS's own package lacks them.
    """
    from tidemill.cli.service import ServiceChoice, ensure_service

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    if choice.endpoint is None:
        own = ensure_service(choice).own
        if own is not None:
            _enter(own)
    else:
        os.environ.setdefault("AWS_REGION", choice.settings.region)
        if not choice.endpoint.is_botocores:
            os.environ["AWS_ENDPOINT_URL"] = choice.endpoint.url
    if state_dir is not None:
        # Processes that the script starts have to find the same service.
        os.environ["TIDEMILL_STATE_DIR"] = str(state_dir.absolute())
    import tidemill.compat  # noqa: F401

    _run_script(client.absolute(), arguments or [])


def _enter(service: "OwnService") -> None:
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
