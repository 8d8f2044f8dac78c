"""`tidemill interrupt`: interrupt a job as if its spot instances were reclaimed."""

from typing import Annotated

import typer

from tidemill.cli.completion import training_names
from tidemill.cli.kinds import TRAINING
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result

app = typer.Typer(add_completion=False)


@app.command()
def interrupt(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Name of a training job with EnableManagedSpotTraining, or a begin that no other name has.",
            autocompletion=training_names,
        ),
    ],
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Interrupt a training job as if its spot instances were reclaimed, to test whether it resumes from its checkpoint.

    The script gets SIGTERM and two minutes to save, then the job starts again from its checkpoints as its next attempt.
    A job without EnableManagedSpotTraining (use_spot_instances=True) is refused: its instances are never taken away.
    """
    from tidemill.cli.choice import check_kind, choose_to_end
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose_to_end(service, job, (TRAINING,), verb="interrupt")
    check_kind(found, (TRAINING,), verb="interrupt")
    service.interrupt_job(found.name)
    again = f"starts again from its checkpoints; follow it with `tidemill logs -f {found.name}`"
    print_result({"name": found.name, "kind": found.kind.noun}, f"{found.name} is interrupted, and {again}", json=json)
