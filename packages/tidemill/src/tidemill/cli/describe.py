"""`tidemill describe`: print the description of a job, an endpoint or an execution of a pipeline."""

from typing import Annotated

import typer

from tidemill.cli.completion import names
from tidemill.cli.kinds import LIVE, TRAINING
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_json, print_members

app = typer.Typer(add_completion=False)


@app.command()
def describe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of a job or an endpoint, or PIPELINE/ID; a begin of it, or - for the last job.",
            autocompletion=names,
        ),
    ] = None,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Print the API's description of a job, an endpoint, or an execution of a pipeline with its steps.

    Of a running training job also what earlier runs of its script took, if there are any.
    """
    from tidemill.cli.choice import choose
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose(service, name)
    description = dict(found.description)
    description.pop("ResponseMetadata", None)
    if found.kind is TRAINING and TRAINING.status(description) in LIVE:
        from tidemill.cli.estimate import Estimates

        estimate = Estimates(service.sdk).of(description)
        description |= {"Estimate": estimate.members} if estimate else {}
    (print_json if json else print_members)(description)
