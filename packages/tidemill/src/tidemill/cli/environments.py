"""`tidemill environments`: the environments that jobs and endpoints run in."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import load_settings
from tidemill.cli.text import age, print_table
from tidemill.core.sizes import size

if TYPE_CHECKING:
    from tidemill.environments.builder import Environments

app = typer.Typer(no_args_is_help=True, help="List, build and remove the environments of jobs and endpoints.")


@app.command("list")
def list_environments(
    available: Annotated[
        bool, typer.Option("--available", help="List what can be built, and whether its Python is installed.")
    ] = False,
) -> None:
    """List the built environments with size and last use. Environments with the same base share most of their files."""
    if available:
        _list_available()
        return
    found = sorted(_environments().built(), key=lambda each: each.last_use_s, reverse=True)
    if not found:
        typer.echo("no environment is built; the first job builds its own, or `tidemill environments build tf-2.21`")
        return
    rows = [
        (
            each.name,
            each.python,
            each.key,
            size(sum(map(_size_bytes, (each.prefix, *each.shared_layers)))),
            f"{age(datetime.fromtimestamp(each.last_use_s, UTC))} ago",
            str(each.prefix),
        )
        for each in found
    ]
    print_table(("NAME", "PYTHON", "KEY", "SIZE", "LAST USE", "PLACE"), rows)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="E.g. tf-2.21.")],
    python: Annotated[
        str | None, typer.Option(help="Its Python, e.g. 3.10 (default: one that is on this machine).")
    ] = None,
) -> None:
    """Build an environment now, so that the first job does not have to wait for it."""
    from tidemill.sdk.console import Console

    environment = _environments().ensure(name, python=python, log=Console().log)
    typer.echo(f"{environment.name} (key {environment.key}) is in {environment.prefix}")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME|KEY", help="A name removes each environment of that name.")],
) -> None:
    """Remove an environment; the next job that needs it builds it again. Jobs that run in it will fail."""
    environments = _environments()
    keys = [each.key for each in environments.built() if name in (each.name, each.key)]
    for key in keys or [name]:
        environments.remove(key)
        typer.echo(f"environment {key} was removed")


def _list_available() -> None:
    from tidemill.core.frameworks import ENVIRONMENTS
    from tidemill.environments.interpreters import available, preferred

    rows = []
    for name, framework in ENVIRONMENTS.items():
        here = available(preferred(framework.pythons))
        rows.append((name, framework.release, ", ".join(framework.pythons), ", ".join(here) or "none"))
    print_table(("NAME", "TENSORFLOW", "PYTHON", "ON THIS MACHINE"), rows)


def _environments() -> "Environments":
    from tidemill.environments.builder import Environments

    return Environments(load_settings().environments_dir)


def _size_bytes(directory: Path) -> int:
    """Return the size on disk. Files shared with the package cache count, since it is unknown who else uses them."""
    total = 0
    for parent, _, names in os.walk(directory):
        total += sum(os.lstat(os.path.join(parent, name)).st_blocks for name in names) * 512  # noqa: PTH118
    return total
