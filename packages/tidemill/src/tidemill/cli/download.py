"""`tidemill download`: download the model and the output of a training job."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.completion import training_names
from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result
from tidemill.errors import printable

app = typer.Typer(add_completion=False)


@app.command()
def download(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="A training job that has ended: its name, a begin of it, or - for the last.",
            autocompletion=training_names,
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to (default: a directory named JOB).")
    ] = None,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Download model.tar.gz, and output.tar.gz if the job has one. Existing files are replaced."""
    from tidemill.cli.choice import choose_training
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose_training(service, job, verb="download")
    description = found.description
    target = directory or Path(found.name)
    archives = _archives(service.sdk.s3_client, description)
    written = [file for uri in archives for file in _fetch(service.sdk, uri, target)]
    if not written:
        raise CommandFailed(
            f"training job {found.name} is {description['TrainingJobStatus']} and has stored nothing to download;"
            f" `tidemill logs {found.name}` shows its log"
        )
    print_result({"name": found.name, "files": written}, *map(printable, written), json=json)


def _archives(s3: Any, description: dict[str, Any]) -> list[str]:
    """Return the S3 URIs of the archives that the job has stored."""
    from tidemill.core.names import S3Uri

    model = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    prefix = S3Uri.parse(description["OutputDataConfig"]["S3OutputPath"]) / description["TrainingJobName"] / "output"
    output = prefix / "output.tar.gz"
    present = s3.list_objects_v2(Bucket=output.bucket, Prefix=output.key, MaxKeys=1).get("KeyCount", 0)
    return [uri for uri in (model, str(output) if present else None) if uri]


def _fetch(session: Any, uri: str, target: Path) -> list[str]:
    from tidemill.core.names import S3Uri

    place = S3Uri.parse(uri)
    target.mkdir(parents=True, exist_ok=True)
    return session.download_data(target, place.bucket, place.key)
