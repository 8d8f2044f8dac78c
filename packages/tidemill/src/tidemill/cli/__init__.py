"""The command line: one verb, one file.

A verb's module is imported when the verb is used, and imports what it needs when it runs, so that `tidemill env` in a
shell's start file costs little. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the state directory is in use, 130
interrupted. An expected error is one line on standard error; a traceback is a bug, or the user's own code.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from tidemill import __version__
from tidemill.cli.failures import explain

__all__ = ["VERBS", "main"]

VERBS = (
    "up",
    "down",
    "status",
    "env",
    "run",
    "train",
    "ps",
    "logs",
    "stop",
    "environments",
    "doctor",
    "gc",
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Without the program's name; by default those of this process.
    """
    try:
        typer.main.get_command(_app).main(args=arguments, prog_name="tidemill")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        print(f"tidemill: {failure.text}", file=sys.stderr)  # noqa: T201
        sys.exit(failure.exit_code)
    sys.exit(0)


class _Verbs(TyperGroup):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(import_module(f"tidemill.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # For its "did you mean", the group looks at the commands it holds.
        if args and args[0] not in VERBS:
            self.commands = {name: self.get_command(ctx, name) for name in VERBS}
        return super().resolve_command(ctx, args)


_app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"tidemill {__version__}")
        raise typer.Exit


@_app.callback()
def _tidemill(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
) -> None:
    """SageMaker TensorFlow on your own machines: no AWS account, no Docker."""
