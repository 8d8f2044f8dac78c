"""`tidemill describe`: print the description of a job or an endpoint."""

from typing import Annotated

import typer

from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json, print_members

__all__ = ["app"]

app = typer.Typer()


@app.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a job or an endpoint.")],
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Print the API's description of a job or an endpoint."""
    from tidemill.cli.service import require_service

    _, description = require_service(load_settings(state_dir=state_dir)).find(name)
    description.pop("ResponseMetadata", None)
    if json:
        print_json(description)
    else:
        print_members(description)
