"""`tidemill deploy`: serve the model of a training job, or one in S3."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completion import training_names
from tidemill.cli.failures import CommandFailed
from tidemill.cli.job_options import EndpointTypeOption, InstanceCountOption, InstanceTypeOption
from tidemill.cli.kinds import ENDPOINT
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)


@app.command()
def deploy(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|s3://...]",
            help="A training job: its name, a begin of it, or - for the last; or a model.tar.gz in S3.",
            autocompletion=training_names,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the endpoint (default: made up).")] = None,
    instance_count: InstanceCountOption = 1,
    instance_type: InstanceTypeOption = "local",
    endpoint_type: EndpointTypeOption = None,
    framework_version: Annotated[
        str | None, typer.Option(help="TensorFlow version of a model in S3 (default: settings).")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the endpoint is in service.")] = True,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Serve a model at an endpoint. Exit code 1 when the endpoint does not come into service."""
    from tidemill.cli.choice import choose_training
    from tidemill.cli.service import require_service
    from tidemill.errors import EndpointFailed

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    if model is None or not model.startswith("s3://"):
        model = choose_training(service, model, verb="deploy").name
    if framework_version and not model.startswith("s3://"):
        raise typer.BadParameter(f"{model} is served by the version that trained it", param_hint="--framework-version")
    version = framework_version or service.choice.settings.default_framework
    try:
        predictor = _model(service, model, endpoint_type=endpoint_type, version=version).deploy(
            instance_count, instance_type, endpoint_name=name, wait=wait
        )
    except (ValueError, EndpointFailed) as error:
        raise CommandFailed(str(error)) from error
    endpoint = predictor.endpoint_name
    status = ENDPOINT.status(service.find(endpoint, first=(ENDPOINT,)).description)
    text = f"ask it: tidemill invoke {endpoint} BODY; delete it: tidemill delete {endpoint}"
    print_result({"name": endpoint, "kind": ENDPOINT.noun, "status": status}, text, json=json)


def _model(service: "NamedService", model: str, *, endpoint_type: str | None, version: str) -> Any:
    if not model.startswith("s3://"):
        from tidemill.sdk import TensorFlow

        return TensorFlow.attach(model, sagemaker_session=service.sdk).create_model(endpoint_type=endpoint_type)
    from tidemill.sdk.tensorflow_model import TensorFlowModel

    return TensorFlowModel(
        model, role="tidemill", framework_version=version, endpoint_type=endpoint_type, sagemaker_session=service.sdk
    )
