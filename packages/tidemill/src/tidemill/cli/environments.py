"""`tidemill environments`: the environments that jobs and endpoints run in."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completion import environment_names
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption, load_settings
from tidemill.cli.text import age, print_json, print_list, print_result
from tidemill.core.sizes import size

if TYPE_CHECKING:
    from tidemill.environments.builder import Environments

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, build and remove the environments of jobs and endpoints."
)


@app.command("list")
def list_environments(
    available: Annotated[
        bool, typer.Option("--available", help="List what can be built, and whether its Python is installed.")
    ] = False,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """List the built environments of the service's machine with size and last use.

    Environments with the same base share most of their files.
    """
    if available:
        _list_available(json=json)
        return
    found = _built(state_dir=state_dir, endpoint_url=endpoint_url)
    rows = [
        (
            *(each["Name"], each["Python"], each["Key"], size(each["SizeBytes"])),
            f"{age(each['LastUse'])} ago",
            each["Path"],
        )
        for each in found
    ]
    nothing = "no environment is built; the first job builds its own, or `tidemill environments build tf-2.21`"
    print_list(found, ("NAME", "PYTHON", "KEY", "SIZE", "LAST USE", "PLACE"), rows, nothing=nothing, json=json)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="E.g. tf-2.21.", autocompletion=environment_names)],
    python: Annotated[
        str | None, typer.Option(help="Its Python, e.g. 3.10 (default: one that is on this machine).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build an environment now, so that the first job does not have to wait for it."""
    from tidemill.sdk.console import Console

    environment = _environments().ensure(name, python=python, log=Console().log)
    print_result(
        {"name": environment.name, "key": environment.key, "path": str(environment.prefix)},
        f"{environment.name} (key {environment.key}) is in {environment.prefix}",
        json=json,
    )


@app.command()
def remove(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|KEY", help="A name removes each environment of that name.", autocompletion=environment_names
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Remove an environment; the next job that needs it builds it again. Jobs that run in it will fail."""
    environments = _environments()
    keys = [each.key for each in environments.built() if name in (each.name, each.key)]
    for key in keys or [name]:
        environments.remove(key)
        if not json:
            typer.echo(f"environment {key} was removed")
    if json:
        print_json({"removed": keys or [name]})


def _built(*, state_dir: Path | None, endpoint_url: str | None) -> list[dict[str, Any]]:
    """Return the environments as ListEnvironments shows them: by a service on another machine, or from this disk."""
    from tidemill.cli.service import ServiceChoice, find_service
    from tidemill.environments.disk_use import LayerSizes
    from tidemill.services.page.environments import listed

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    service = find_service(choice) if choice.endpoint is not None else None
    if service is not None and service.own is None:
        return service.tidemill.list_environments()["Environments"]
    return listed(_environments(), LayerSizes())


def _list_available(*, json: bool) -> None:
    from tidemill.core.frameworks import ENVIRONMENTS
    from tidemill.environments.interpreters import available, preferred

    entries: list[dict[str, Any]] = []
    for name, framework in ENVIRONMENTS.items():
        here = available(preferred(framework.pythons))
        entries.append(
            {"name": name, "tensorflow": framework.release, "pythons": framework.pythons, "pythons_here": here}
        )
    rows = [
        (each["name"], each["tensorflow"], ", ".join(each["pythons"]), ", ".join(each["pythons_here"]) or "none")
        for each in entries
    ]
    columns = ("NAME", "TENSORFLOW", "PYTHON", "ON THIS MACHINE")
    print_list(entries, columns, rows, nothing="there are no environments", json=json)


def _environments() -> "Environments":
    from tidemill.environments.builder import Environments

    return Environments(load_settings().environments_dir)
