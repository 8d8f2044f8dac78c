"""`tidemill up`: start the service."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tidemill.cli import run_and_exit
from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.server.discovery import ServiceRecord
    from tidemill.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def up(
    foreground: Annotated[bool, typer.Option("--foreground", help="Serve in this terminal until Ctrl-C.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (default: 8780 or the next free one); 0: a free one.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM certificate, for an address that other machines reach.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM key of the certificate.")] = None,
    state_dir: StateDirOption = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby", help="Follow the service that leads on the same database_url, when it ends or dies."),
    ] = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="[auto|full|mount|plain]", help="How jobs are separated from the machine.")
    ] = None,
    warm: Annotated[
        bool | None, typer.Option("--warm", help="Fork scripts from a process that has imported TensorFlow.")
    ] = None,
    json: JsonOption = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the service in the background; it runs until `tidemill down`.

    If it already runs, its address is printed. Exit code 3 with --foreground: the state directory is in use.
    """
    flags = {
        "host": host,
        "port": port,
        "tls_certificate": tls_certificate and tls_certificate.absolute(),
        "tls_key": tls_key and tls_key.absolute(),
        "standby": standby,
        "isolation": isolation,
        "warm": warm,
    }
    settings = load_settings(state_dir=state_dir, **flags)
    if settings.standby and not foreground:
        raise ConfigurationError(
            "a service that stands by is one of two with the same state directory, so it does not run in the"
            " background: start it with `tidemill up --foreground --standby`, e.g. by systemd"
        )
    if foreground:
        from tidemill.server.run import serve

        serve(settings, ready_fd=ready_fd)
        return
    given = [f"--{name.replace('_', '-')}" for name, value in flags.items() if value is not None]
    _start(settings, given=given, state_dir=state_dir, json=json)


def _start(settings: "Settings", *, given: list[str], state_dir: Path | None, json: bool) -> None:
    """Start the service in the background unless it runs; print its address, and which options were without effect."""
    from tidemill.server.background import start_in_background
    from tidemill.server.discovery import find_service
    from tidemill.server.listener import moved_port
    from tidemill.server.state import StateDirectory

    running = find_service(StateDirectory(settings.state_dir.absolute()))
    was_running = running is not None
    if running is not None:
        typer.echo(f"tidemill runs already at {running.url} (pid {running.pid})")
        if given:
            typer.echo(f"{', '.join(given)} has no effect on it: end it by `tidemill down`, then repeat this", err=True)
    else:
        running = start_in_background(settings, fork=_serve)
        wished = not settings.port_is_chosen and not running.public_url
        moved = moved_port(running.url, wanted=settings.port) if wished else None
        if moved:
            typer.echo(moved, err=True)
        typer.echo(f"tidemill runs at {running.url} (pid {running.pid})")
    if json:
        public = {"public_url": running.public_url} if running.public_url else {}
        print_json({"url": running.url, **public, "pid": running.pid, "started": not was_running})
        return
    if running.public_url:
        typer.echo(f"Other machines reach it at {running.public_url}; `tidemill keys add USER` makes a key for a user")
    _hint(running, state_dir=state_dir)
    named = None if state_dir is not None else settings.named_endpoint
    if named is not None and named.url.rstrip("/") != running.url:
        typer.echo(f"The other commands and the SDK use {named.url}, which {named.named_by} names.", err=True)


def _serve(settings: "Settings", ready_fd: int) -> NoReturn:
    from tidemill.server.run import serve

    run_and_exit(lambda: serve(settings, ready_fd=ready_fd))


def _hint(running: "ServiceRecord", *, state_dir: Path | None) -> None:
    where = f" --state-dir {shlex.quote(str(state_dir.absolute()))}" if state_dir else ""
    typer.echo(f'Point AWS clients of this shell to it:  eval "$(tidemill env{where})"')
    typer.echo(f"Look at it:  tidemill open{where}")
    typer.echo(f"End it:  tidemill down{where}")
