"""`tidemill env`: exports that point AWS clients to the service."""

import shlex
from typing import Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json
from tidemill.server.discovery import connect
from tidemill.server.exports import REMOVED_VARIABLES, client_environment, proxy_environment
from tidemill.server.state import StateDirectory

app = typer.Typer(add_completion=False)


@app.command()
def env(
    json: JsonOption = False,
    state_dir: StateDirOption = None,
    sts: Annotated[
        bool,
        typer.Option("--sts", help="Also for clients that name AWS's own hosts, by a proxy for this shell's HTTPS."),
    ] = False,
) -> None:
    """Print shell exports for boto3, the AWS CLI and AWS's SDKs: eval "$(tidemill env)".

    With --sts, calls that name AWS's address themselves, e.g. get_execution_role() and default_bucket() of AWS's SDKs,
    reach the service, too.
    """
    settings = load_settings(state_dir=state_dir)
    named = None if state_dir is not None else settings.named_endpoint
    # AWS_ENDPOINT_URL is what this command sets: its old value selects nothing.
    if named is not None and not named.is_botocores:
        raise CommandFailed(
            f"the selected service is {named.url} (named by {named.named_by}), and its keys are not on this machine:"
            f" export AWS_ENDPOINT_URL={shlex.quote(named.url)} and the keys that its owner gave you"
            " (`tidemill keys add` there), or name a state directory of this machine with --state-dir"
        )
    state = StateDirectory(settings.state_dir.absolute())
    connection = connect(state)
    if connection is None:
        raise CommandFailed(
            f'no service runs on {state.root}: nothing is exported; `tidemill up`, then eval "$(tidemill env)" again'
        )
    variables = client_environment(connection, state=state)
    if sts:
        variables |= proxy_environment(connection.service, state=state)
    if json:
        print_json(variables)
        return
    typer.echo(f"unset {' '.join(REMOVED_VARIABLES)}")
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
