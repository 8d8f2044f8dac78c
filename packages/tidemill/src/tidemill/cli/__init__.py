"""The command line: one module per command.

A command's module is imported when the command is used, and imports its dependencies when it runs, so that `tidemill
env` is fast enough for a shell's start file. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the state directory is in
use, 130 interrupted. Expected errors are one line on standard error, or an object on standard output with ``--json``. A
traceback is a bug, or an error of the user's code.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any, NoReturn

import typer
from typer.core import CompletionItem, TyperGroup

from tidemill import __version__
from tidemill.cli.failures import explain
from tidemill.cli.text import only_results, print_json
from tidemill.errors import printable

__all__ = ["VERBS", "main", "run_and_exit"]

VERBS = (
    "up",
    "down",
    "status",
    "open",
    "env",
    "run",
    "train",
    "tune",
    "ps",
    "top",
    "logs",
    "describe",
    "tensorboard",
    "stop",
    "interrupt",
    "download",
    "deploy",
    "serve",
    "invoke",
    "delete",
    "environments",
    "examples",
    "keys",
    "config",
    "metrics",
    "webhooks",
    "service",
    "doctor",
    "gc",
)
_MODULES = {"service": "service_unit"}
"""Modules of commands whose names others have."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Arguments without the program's name. Default: those of this process.
    """
    if "_TIDEMILL_COMPLETE" in os.environ:
        # Typer would format the help beside each word with rich, whose import takes a third of the time of a TAB.
        sys.modules["rich"] = None  # type: ignore[assignment]
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = typer.main.get_command(_app)
    if not _wants_json(given):
        run_and_exit(lambda: command.main(args=given, prog_name="tidemill"))
    with only_results():
        try:
            ended = command.main(args=given, prog_name="tidemill", standalone_mode=False)
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            print_json({"error": {"code": failure.code, "message": printable(failure.text)}})
            sys.exit(failure.exit_code)
    sys.exit(ended if isinstance(ended, int) else 0)


def run_and_exit(run: Callable[[], object]) -> NoReturn:
    """Call ``run`` and exit; turn an expected error into one line and an exit code.

    Args:
        run: The command.
    """
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        print(f"tidemill: {printable(failure.text)}", file=sys.stderr)  # noqa: T201
        sys.exit(failure.exit_code)
    sys.exit(0)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether the result is to be JSON. What follows `run` or ``--`` are arguments of a script."""
    own = list(takewhile(lambda each: each not in ("run", "--"), arguments))
    return "--json" in own


class _Verbs(TyperGroup):
    """A group whose commands are imported on first use."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        # The base class imports all commands, for their help, which takes longer than a TAB may take.
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name) for name in VERBS if name.startswith(incomplete)]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(import_module(f"tidemill.cli.{_MODULES.get(cmd_name, cmd_name)}").app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # The "did you mean" of the base class only considers commands that are already imported.
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
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """SageMaker TensorFlow on your own machines: no AWS account, no Docker."""
