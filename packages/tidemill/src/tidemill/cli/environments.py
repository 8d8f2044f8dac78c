"""`tidemill environments`: the environments that jobs and endpoints run in."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import load_settings
from tidemill.cli.text import print_table

if TYPE_CHECKING:
    from tidemill.executors.environments import Environments

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="List, build and remove the environments of jobs and endpoints.")


@app.command("list")
def list_environments() -> None:
    """List what is built."""
    found = _environments().built()
    if found:
        print_table(("NAME", "KEY", "PLACE"), [(each.name, each.key, str(each.prefix)) for each in found])
    else:
        typer.echo("no environment is built; the first job builds its own, or `tidemill environments build tf-2.21`")


@app.command()
def build(name: Annotated[str, typer.Argument(help="E.g. tf-2.21.")]) -> None:
    """Build an environment now, so that the first job need not."""
    environment = _environments().ensure(name, log=typer.echo)
    typer.echo(f"{environment.name} (key {environment.key}) is in {environment.prefix}")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME|KEY", help="A name removes each environment of that name.")],
) -> None:
    """Remove an environment; the next job that needs it builds it again. A job that runs in it will fail."""
    environments = _environments()
    keys = [each.key for each in environments.built() if name in (each.name, each.key)]
    for key in keys or [name]:
        environments.remove(key)
        typer.echo(f"environment {key} was removed")


def _environments() -> "Environments":
    from tidemill.executors.environments import Environments

    return Environments(load_settings().environments_dir)
