"""`tidemill delete`: delete an endpoint."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.completion import endpoint_names
from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import ENDPOINT
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)

_GONE_WITHIN_S = 60.0  # a server that drains has 30 s for the requests it has begun
_LOOK_EVERY_S = 0.1


@app.command()
def delete(
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT",
            help="Name of the endpoint, or a begin that no other endpoint has.",
            autocompletion=endpoint_names,
        ),
    ],
    model: Annotated[bool, typer.Option("--model", help="Delete its models too; their archives in S3 stay.")] = False,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Delete an endpoint and its configuration, and wait until it is gone. Training jobs stay as history."""
    from tidemill.cli.choice import choose_to_end
    from tidemill.cli.service import require_service
    from tidemill.sdk.predictor import Predictor

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose_to_end(service, endpoint, (ENDPOINT,), verb="delete")
    if found.kind is not ENDPOINT:
        raise CommandFailed(
            f"{found.name} is a {found.kind.noun}: jobs stay, as on SageMaker; `tidemill stop` stops one"
        )
    endpoint = found.name
    predictor = Predictor(endpoint, service.sdk)
    if model:
        predictor.delete_model()
    predictor.delete_endpoint()
    is_gone = _is_gone(service, endpoint)
    waits = f"{endpoint} is being deleted: its servers still answer requests that they had begun"
    text = f"{endpoint} is deleted" if is_gone else waits
    print_result({"name": endpoint, "kind": found.kind.noun, "deleted": is_gone}, text, json=json)


def _is_gone(service: "NamedService", endpoint: str) -> bool:
    """Wait until no endpoint that is being deleted has the name; another one may have taken it by then."""
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while any(
        summary["EndpointName"] == endpoint and summary["EndpointStatus"] == "Deleting"
        for summary in service.endpoints()
    ):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True
