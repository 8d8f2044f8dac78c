"""`tidemill tensorboard`: run TensorBoard on the event files of training jobs."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.completion import training_names
from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, StateDirOption
from tidemill.core.images import DEFAULT_TENSORFLOW

if TYPE_CHECKING:
    from tidemill.cli.event_files import EventFiles
    from tidemill.environments.builder import JobEnvironment
    from tidemill.settings import Settings

app = typer.Typer(add_completion=False)

_HAS_TENSORBOARD = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"
_LOOK_EVERY_S = 2.0
_END_TIMEOUT_S = 10.0


@app.command()
def tensorboard(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            help="Training jobs: names, begins of them, or - for the last.",
            autocompletion=training_names,
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1 (default: 6006, or the next free one).")
    ] = None,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Show training jobs in TensorBoard until Ctrl-C. Jobs may be running or ended.

    If a job has a TensorBoardOutputConfig, its files in S3 are shown. For any other job, the event files in
    /opt/ml/model, /opt/ml/output/data, /opt/ml/output/tensorboard and /opt/ml/checkpoints are shown while it runs, and
    those in model.tar.gz and output.tar.gz after it has ended. The files of a running job are on the machine of its
    service.
    """
    from tidemill.cli.choice import LAST, choose_training
    from tidemill.cli.event_files import EventFiles
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    environment = _environment_with_tensorboard(service.choice.settings)
    with tempfile.TemporaryDirectory(prefix="tidemill-tensorboard-") as directory:
        names = [choose_training(service, job, verb="tensorboard").name for job in jobs or [LAST]]
        found = [EventFiles(service, name, Path(directory) / name) for name in dict.fromkeys(names)]
        for each in found:
            is_there = each.look()
            if not is_there and each.has_ended:
                raise CommandFailed(each.nothing)
            if not is_there:
                typer.echo(each.nothing_yet, err=True)
        _serve(environment, Path(directory), found, port=port)


def _environment_with_tensorboard(settings: "Settings") -> "JobEnvironment":
    from tidemill.environments.builder import Environments

    name = f"tf-{DEFAULT_TENSORFLOW}"
    environments = Environments(settings.environments_dir)
    environment = environments.describe(name)
    if not environments.is_built(environment):
        raise CommandFailed(
            f"TensorBoard is in the environment of jobs, and {name} is not built; build it with"
            f" `tidemill environments build {name}`"
        )
    environments.ensure(name, log=typer.echo)  # already built; this only marks it as used, so that gc keeps it
    if subprocess.run([environment.python, "-P", "-c", _HAS_TENSORBOARD], check=False).returncode:
        raise CommandFailed(
            f"the environment {name} ({environment.prefix}) has no TensorBoard; its lock file does not name it"
        )
    return environment


def _end(number: int, frame: FrameType | None) -> None:
    """Exit on a signal, with the usual clean-up."""
    raise SystemExit(128 + number)


def _serve(environment: "JobEnvironment", directory: Path, found: "list[EventFiles]", *, port: int | None) -> None:
    """Run TensorBoard on the directory of the copies until it exits, and keep the copies up to date."""
    command = [environment.python, "-P", "-m", "tensorboard.main", "--logdir", directory, "--host", "127.0.0.1"]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # TensorBoard reads files with TensorFlow, which would print CPU features
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    # In its own process group Ctrl-C does not reach TensorBoard directly: a second signal would cut its exit short.
    process = subprocess.Popen(
        [*command, *(("--port", str(port)) if port is not None else ())], env=os.environ | quiet, process_group=0
    )
    try:
        while process.poll() is None:
            for each in found:
                each.look()
            time.sleep(_LOOK_EVERY_S)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if process.returncode:
        print(f"tidemill: TensorBoard ended with exit code {process.returncode}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1)
