"""`tidemill stop`: stop a training job."""

from typing import Annotated

import typer

from tidemill.cli.options import StateDirOption, load_settings

__all__ = ["app"]

app = typer.Typer()


@app.command()
def stop(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the training job.")],
    state_dir: StateDirOption = None,
) -> None:
    """Ask a training job to stop: SIGTERM, time to save, then the end. Its model so far is kept."""
    from tidemill.cli.service import require_service

    service = require_service(load_settings(state_dir=state_dir))
    service.sagemaker.stop_training_job(TrainingJobName=job)
    typer.echo(f"{job} is stopping; follow it with `tidemill logs -f {job}`")
