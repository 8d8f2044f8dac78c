"""`tidemill up`: start the service."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import StateDirOption, load_settings

if TYPE_CHECKING:
    from tidemill.server.discovery import ServiceRecord

__all__ = ["app"]

app = typer.Typer()


@app.command()
def up(
    foreground: Annotated[bool, typer.Option("--foreground", help="Serve in this terminal until Ctrl-C.")] = False,
    host: Annotated[str | None, typer.Option(help="Loopback address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = None,
    state_dir: StateDirOption = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="[auto|mount|plain]", help="How jobs are separated from the machine.")
    ] = None,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the service; it goes on in the background until `tidemill down`.

    Where it runs already, say so. Exit code 3 with --foreground: the state directory is in use.
    """
    settings = load_settings(host=host, port=port, state_dir=state_dir, isolation=isolation)
    if foreground:
        from tidemill.server.run import serve

        serve(settings, ready_fd=ready_fd)
        return
    from tidemill.server.background import start_in_background
    from tidemill.server.discovery import find_service
    from tidemill.server.state import StateDirectory

    running = find_service(StateDirectory(settings.state_dir.absolute()))
    if running is not None:
        typer.echo(f"tidemill runs already at {running.url} (pid {running.pid})")
    else:
        running = start_in_background(settings)
        typer.echo(f"tidemill runs at {running.url} (pid {running.pid})")
    _hint(running, state_dir=state_dir)


def _hint(running: "ServiceRecord", *, state_dir: Path | None) -> None:
    where = f" --state-dir {shlex.quote(str(state_dir.absolute()))}" if state_dir else ""
    typer.echo(f'Point AWS clients of this shell to it:  eval "$(tidemill env{where})"')
    typer.echo(f"End it:  tidemill down{where}")
