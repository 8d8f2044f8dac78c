"""`tidemill webhooks`: the receivers of state changes that the settings of the service name."""

from typing import Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_list, print_result
from tidemill.errors import printable

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List and test the receivers of state changes.")


@app.command("list")
def list_webhooks(
    json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None
) -> None:
    """List the webhooks, and how many state changes each has not accepted yet."""
    from tidemill.cli.service import require_service

    webhooks = require_service(state_dir=state_dir, endpoint_url=endpoint_url).tidemill.list_webhooks()["Webhooks"]
    rows = [
        (each["Name"], each["Url"], " ".join(each["Events"]), str(each["Pending"]), printable(each.get("Failure", "-")))
        for each in webhooks
    ]
    columns = ("NAME", "URL", "EVENTS", "PENDING", "LAST FAILURE")
    print_list(webhooks, columns, rows, nothing="the settings of the service name no webhook", wraps=True, json=json)


@app.command()
def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in the settings.")],
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Let the service send a signed test event to a webhook, and print the answer."""
    from tidemill.cli.service import require_service

    answer = require_service(state_dir=state_dir, endpoint_url=endpoint_url).tidemill.test_webhook(Name=name)
    if "Failure" in answer:
        raise CommandFailed(f"{name} did not receive the event: {answer['Failure']}")
    if not 200 <= answer["Status"] < 300:
        raise CommandFailed(f"{name} answered with status {answer['Status']}; it must answer with 200 to 299")
    text = f"{name} has accepted the event (status {answer['Status']})"
    print_result({"name": name, "status": answer["Status"]}, text, json=json)
