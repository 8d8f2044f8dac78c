"""`tidemill stop`: stop a job, or an execution of a pipeline."""

from typing import Annotated

import typer

from tidemill.cli.completion import job_names
from tidemill.cli.kinds import EXECUTION, JOBS, TUNING
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result

app = typer.Typer(add_completion=False)


@app.command()
def stop(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Name of a job, or PIPELINE/ID; or a begin that no other name has.",
            autocompletion=job_names,
        ),
    ],
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Stop a job. Training and processing jobs get SIGTERM and time to save; a transform job keeps stored results.

    A tuning job stops its training jobs, and the execution of a pipeline the jobs of its steps.
    """
    from tidemill.cli.choice import choose_to_end
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose_to_end(service, job, (*JOBS, EXECUTION), verb="stop")
    service.stop(found)
    shown = "describe" if found.kind in (TUNING, EXECUTION) else "logs -f"
    text = f"{found.name} is stopping; follow it with `tidemill {shown} {found.name}`"
    print_result({"name": found.name, "kind": found.kind.noun}, text, json=json)
