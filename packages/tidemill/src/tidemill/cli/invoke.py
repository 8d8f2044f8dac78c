"""`tidemill invoke`: send a request to an endpoint."""

import base64
import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.completion import endpoint_names
from tidemill.cli.kinds import ENDPOINT
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_json

app = typer.Typer(add_completion=False)


@app.command()
def invoke(
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="[ENDPOINT]",
            help="Name of the endpoint, or a begin of it; - or nothing is the newest endpoint.",
            autocompletion=endpoint_names,
        ),
    ],
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY|@FILE|-", help="The request body, a file with it, or - for standard input."),
    ] = None,
    content_type: Annotated[str, typer.Option(help="MIME type of the body.")] = "application/json",
    accept: Annotated[str, typer.Option(help="MIME type of the answer.")] = "application/json",
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Send a request to an endpoint and print the answer. Exit code 1 if the model fails."""
    from tidemill.cli.choice import LAST, check_kind, choose
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    if body is None:
        if any(ENDPOINT.name(each) == endpoint for each in service.endpoints()):
            raise typer.BadParameter(f"the request for {endpoint} is missing", param_hint="BODY")
        endpoint, body = LAST, endpoint
    content = _content(body)
    found = choose(service, endpoint, (ENDPOINT,))
    check_kind(found, (ENDPOINT,), verb="invoke")
    reply = service.sdk.sagemaker_runtime_client.invoke_endpoint(
        EndpointName=found.name, Body=content, ContentType=content_type, Accept=accept
    )
    answer = reply["Body"].read()
    if json:
        print_json({"endpoint": found.name, "content_type": reply["ContentType"], "body": _decoded(answer)})
        return
    sys.stdout.buffer.write(answer)
    if sys.stdout.isatty() and not answer.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _decoded(answer: bytes) -> object:
    """Return the value of an answer in JSON, or its text; bytes that are no text are in base64."""
    try:
        text = answer.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(answer).decode()}
    try:
        return jsonlib.loads(text)
    except ValueError:
        return text


def _content(body: str) -> bytes:
    if body == "-":
        return sys.stdin.buffer.read()
    return Path(body[1:]).read_bytes() if body.startswith("@") else body.encode()
