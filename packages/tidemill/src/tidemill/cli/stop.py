"""`tidemill stop`: stop a training, batch transform or tuning job."""

from typing import Annotated

import typer

from tidemill.cli.options import EndpointOption, StateDirOption

__all__ = ["app"]

app = typer.Typer()


@app.command()
def stop(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of a training, transform or tuning job.")],
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Stop a job. A training job gets SIGTERM and time to save; a transform job keeps the results stored so far.

    A tuning job stops its training jobs.
    """
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    kind = service.stop_job(job)
    follow = f"tidemill describe {job}" if kind == "tuning job" else f"tidemill logs -f {job}"
    typer.echo(f"{job} is stopping; follow it with `{follow}`")
