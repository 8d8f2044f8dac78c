"""`tidemill service`: the service as a user's unit of systemd, and its log."""

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json, print_json_line, print_result

if TYPE_CHECKING:
    from tidemill.server.state import StateDirectory
    from tidemill.server.systemd import UserUnit

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run the service by systemd, as your user, and read its log."
)

_LOOK_EVERY_S = 0.5
_NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the unit.")]


@app.command()
def install(
    name: _NameOption = "tidemill",
    now: Annotated[bool, typer.Option("--now", help="Start it, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit, and change nothing.")] = False,
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Write a unit that starts the service when you log in, and again if it fails; jobs outlive each restart.

    The unit has no settings but the state directory and the settings file: host, port and the like belong into that
    file. Repeat this after an update of Python or of tidemill's environment: the unit names its interpreter.
    """
    from tidemill.server.systemd import unit_of_settings

    unit = unit_of_settings(load_settings(state_dir=state_dir), name=name)
    if dry_run:
        print_result({"unit": str(unit.file), "text": unit.text}, unit.text.removesuffix("\n"), json=json)
        return
    typer.echo(f"{unit.file} {unit.write()}", err=json)
    for variable in unit.left_out(os.environ):
        typer.echo(f"{variable} is set in this shell, but the unit does not have it: use the settings file", err=True)
    steps = [("daemon-reload",), ("enable", *(("--now",) if now else ()), unit.file.name)]
    if not _systemctl(*steps):
        typer.echo("systemd of your user does not answer here. Where it does:", err=json)
        typer.echo("\n".join(f"  systemctl --user {' '.join(step)}" for step in steps), err=json)
    elif not now:
        typer.echo(f"Start it:  systemctl --user start {unit.name}", err=json)
    if not unit.lingers:
        stays = f"loginctl enable-linger {unit.user}"
        typer.echo(f"It ends when you log out, unless you allow it to stay:  {stays}", err=json)
    _warn_of_other_service(unit, load_settings(state_dir=state_dir).state_dir)
    if json:
        print_json({"unit": str(unit.file), "text": unit.text})


@app.command()
def uninstall(name: _NameOption = "tidemill", json: JsonOption = False) -> None:
    """Stop the unit and remove its file. Jobs, endpoints and everything stored stay."""
    from tidemill.server.systemd import unit_file, written_by_tidemill

    file = unit_file(name)
    if not file.exists():
        print_result({"unit": str(file), "removed": False}, f"{file} does not exist", json=json)
        return
    if not written_by_tidemill(file):
        raise CommandFailed(f"{file} was not written by `tidemill service install`, so it stays; remove it yourself")
    _systemctl(("disable", "--now", file.name))
    file.unlink()
    _systemctl(("daemon-reload",))
    print_result({"unit": str(file), "removed": True}, f"{file} is removed", json=json)


@app.command()
def status(name: _NameOption = "tidemill", json: JsonOption = False, state_dir: StateDirOption = None) -> None:
    """Print whether the unit is installed, as it would be written now, and running."""
    from tidemill.server.systemd import unit_of_settings

    unit = unit_of_settings(load_settings(state_dir=state_dir), name=name)
    answers = {question[3:]: _asked(question, unit.file.name) for question in ("is-enabled", "is-active")}
    unknown = "unknown: systemd of your user does not answer here"
    print_result(
        {"unit": str(unit.file), "state": unit.state(), **answers, "lingers": unit.lingers},
        f"unit      {unit.file} {unit.state()}",
        *(f"{question:9} {answer or unknown}" for question, answer in answers.items()),
        f"lingers   {'yes' if unit.lingers else f'no: loginctl enable-linger {unit.user}'}",
        json=json,
    )


@app.command()
def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until Ctrl-C.")] = False,
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Print the log of a service in the background, the oldest line first. That of a unit is in the journal."""
    from tidemill.errors import printable
    from tidemill.server.service_log import ServiceLogReader

    state = _state(state_dir)
    if not state.service_log.exists():
        raise CommandFailed(
            f"{state.service_log} does not exist: no service ran in the background on this directory; the log of a unit"
            " is in the journal: `journalctl --user -u tidemill`"
        )
    reader = ServiceLogReader(state.service_log)
    while True:
        for line in reader.lines():
            if json:
                print_json_line({"message": line})
            else:
                typer.echo(printable(line))
        if not follow:
            return
        time.sleep(_LOOK_EVERY_S)


def _warn_of_other_service(unit: "UserUnit", state_dir: Path) -> None:
    from tidemill.server.discovery import find_service
    from tidemill.server.state import StateDirectory

    running = find_service(StateDirectory(state_dir.absolute()))
    if running is not None and _asked("is-active", unit.file.name) != "active":
        typer.echo(
            f"A service runs already (pid {running.pid}), not by systemd: `tidemill down` ends it, jobs continue",
            err=True,
        )


def _state(state_dir: Path | None) -> "StateDirectory":
    from tidemill.server.state import StateDirectory

    return StateDirectory(load_settings(state_dir=state_dir).state_dir.absolute())


def _systemctl(*steps: tuple[str, ...]) -> bool:
    """Run `systemctl --user` for each step; return False if it is missing or does not reach the user's systemd.

    Raises:
        CommandFailed: A step failed, although the user's systemd answers.
    """
    if not _asked("is-system-running"):
        return False
    for step in steps:
        done = subprocess.run(["systemctl", "--user", *step], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandFailed(f"`systemctl --user {' '.join(step)}` failed: {done.stderr.strip()}")
    return True


def _asked(*question: str) -> str:
    """Return the word with which systemctl answers; empty if it is missing or does not reach the user's systemd."""
    try:
        asked = subprocess.run(["systemctl", "--user", *question], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    word = asked.stdout.strip()
    return "" if word == "offline" or "Failed to connect" in asked.stderr else word
