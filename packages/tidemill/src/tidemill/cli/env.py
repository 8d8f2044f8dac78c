"""`tidemill env`: exports that point AWS clients to the service."""

import shlex

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json
from tidemill.server.discovery import connect
from tidemill.server.exports import REMOVED_VARIABLES, client_environment
from tidemill.server.state import StateDirectory

__all__ = ["app"]

app = typer.Typer()


@app.command()
def env(json: JsonOption = False, state_dir: StateDirOption = None) -> None:
    """Print shell exports for boto3, the AWS CLI and AWS's SDKs: eval "$(tidemill env)"."""
    state = StateDirectory(load_settings(state_dir=state_dir).state_dir.absolute())
    connection = connect(state)
    if connection is None:
        raise CommandFailed(
            f'no service runs on {state.root}: nothing is exported; `tidemill up`, then eval "$(tidemill env)" again'
        )
    variables = client_environment(connection, state=state)
    if json:
        print_json(variables)
        return
    typer.echo(f"unset {' '.join(REMOVED_VARIABLES)}")
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
