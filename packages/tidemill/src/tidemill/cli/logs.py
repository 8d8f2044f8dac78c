"""`tidemill logs`: print the log of a job or an endpoint."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, StateDirOption
from tidemill.errors import printable

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService
    from tidemill.sdk.logs import LogLine, StreamReader

app = typer.Typer()

_GROUPS = {"job": "TrainingJobs", "processing job": "ProcessingJobs", "transform job": "TransformJobs"}
_ENDPOINTS_GROUP = "/aws/sagemaker/Endpoints/"
_LOOK_EVERY_S = 0.5


@app.command()
def logs(
    name: Annotated[
        str, typer.Argument(metavar="JOB", help="Name of a training, processing or transform job, or of an endpoint.")
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Keep control characters.")] = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Print the log of a job or an endpoint. With several instances, lines are ordered by time and begin with the
    instance's name."""
    from tidemill.cli.service import require_service
    from tidemill.sdk.console import Console

    console = Console(keep_escapes=raw)
    log = _find(require_service(state_dir=state_dir, endpoint_url=endpoint_url), name)
    for lines in log.follow() if follow else log.read():
        shown = (
            (message if raw else _shown(message), instance if log.several else None) for _, message, instance in lines
        )
        console.log_all(shown, named=True)


class _Log:
    """Reads the log streams of one job or endpoint, each from the position of the last read."""

    def __init__(self, service: "NamedService", *, group: str, prefix: str, ended: Any) -> None:
        self._service = service
        self._group = group
        self._prefix = prefix
        self._ended = ended
        self._readers: dict[str, StreamReader] = {}
        self.several = False

    def read(self) -> Iterator[list["LogLine"]]:
        """Yield the lines of all instances that are new since the last call, by time."""
        from tidemill.sdk.logs import instance_of, merged

        streams = self._streams()
        self.several = len(streams) > 1
        return merged({instance_of(stream): self._pages(stream) for stream in streams})

    def follow(self) -> Iterator[list["LogLine"]]:
        """Like `read`, but continue until the job has ended and all its lines were read."""
        while True:
            # Checked before reading, so that lines written just before the end are not missed.
            ended = self._ended()
            yield from self.read()
            if ended:
                return
            time.sleep(_LOOK_EVERY_S)

    def _streams(self) -> list[str]:
        from tidemill.sdk.logs import instance_order

        missing = self._service.logs.exceptions.ResourceNotFoundException
        try:
            answer = self._service.logs.describe_log_streams(
                logGroupName=self._group, **({"logStreamNamePrefix": self._prefix} if self._prefix else {})
            )
        except missing:
            # Nothing has been written yet.
            return []
        return sorted((stream["logStreamName"] for stream in answer["logStreams"]), key=instance_order)

    def _pages(self, stream: str) -> Iterator[list[dict[str, Any]]]:
        from tidemill.sdk.logs import StreamReader

        if stream not in self._readers:
            self._readers[stream] = StreamReader(self._service.logs, group=self._group, stream=stream)
        try:
            yield from self._readers[stream].pages()
        except self._service.logs.exceptions.ResourceNotFoundException:
            return


def _shown(message: str) -> str:
    return printable(message) + ("\r" if message.endswith("\r") else "")  # marks the state of a progress bar


def _find(service: "NamedService", name: str) -> _Log:
    sagemaker = service.sagemaker

    def job_ended() -> bool:
        described = service.find(name)[1]
        status = next(value for member, value in described.items() if member.endswith("JobStatus"))
        return status in ("Completed", "Failed", "Stopped")

    def endpoint_ended() -> bool:
        return sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "Failed"

    kind, _ = service.find(name)
    if kind == "tuning job":
        raise CommandFailed(
            f"{name} is a tuning job, whose training jobs have the logs: `tidemill ps --all` lists them, e.g."
            f" {name}-001-..."
        )
    if kind == "endpoint":
        return _Log(service, group=f"{_ENDPOINTS_GROUP}{name}", prefix="", ended=endpoint_ended)
    return _Log(service, group=f"/aws/sagemaker/{_GROUPS[kind]}", prefix=f"{name}/", ended=job_ended)
