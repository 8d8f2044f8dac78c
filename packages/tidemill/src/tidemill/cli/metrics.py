"""`tidemill metrics`: tokens with which monitors, e.g. Prometheus, read the metrics of the service."""

from typing import Annotated

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, print_json, print_list, print_result

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Let monitors such as Prometheus read the metrics of the service."
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Who uses it, e.g. prometheus.")]


@app.command()
def add(
    name: _Name, json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None
) -> None:
    """Make a token and print it. It cannot be shown again."""
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    token = service.tidemill.create_metrics_token(Name=name)["Token"]
    public_url = service.own.connection.service.public_url if service.own else ""
    url = f"{(public_url or service.url).rstrip('/')}/_tidemill/metrics"
    if json:
        print_json({"name": name, "token": token, "url": url})
        return
    typer.echo(token)
    typer.echo(f"It reads {url}, as Authorization: Bearer", err=True)


@app.command("list")
def list_tokens(
    json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None
) -> None:
    """List the tokens, without their secrets."""
    from tidemill.cli.service import require_service

    tokens = require_service(state_dir=state_dir, endpoint_url=endpoint_url).tidemill.list_metrics_tokens()["Tokens"]
    print_list(
        [{"name": each["Name"], "created": each["CreationTime"]} for each in tokens],
        ("NAME", "CREATED"),
        [(each["Name"], f"{age(each['CreationTime'])} ago") for each in tokens],
        nothing="nobody may read the metrics; `tidemill metrics add NAME` makes a token",
        json=json,
    )


@app.command()
def revoke(
    name: _Name, json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None
) -> None:
    """Delete a token. Whoever has it reads nothing from now on."""
    from tidemill.cli.service import require_service

    require_service(state_dir=state_dir, endpoint_url=endpoint_url).tidemill.delete_metrics_token(Name=name)
    print_result({"name": name, "revoked": True}, f"{name} may no longer read the metrics", json=json)
