"""`tidemill logs`: what a job or an endpoint wrote."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import StateDirOption, load_settings
from tidemill.cli.text import printable

if TYPE_CHECKING:
    from tidemill.cli.service import LocalService

__all__ = ["app"]

app = typer.Typer()

_JOBS_GROUP = "/aws/sagemaker/TrainingJobs"
_ENDPOINTS_GROUP = "/aws/sagemaker/Endpoints/"
_LOOK_EVERY_S = 0.5


@app.command()
def logs(
    name: Annotated[str, typer.Argument(metavar="JOB", help="Name of a training job or an endpoint.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Leave escape sequences and control characters in.")] = False,
    state_dir: StateDirOption = None,
) -> None:
    """Print the log of a job or an endpoint; with several instances each line says whose it is."""
    from tidemill.cli.service import require_service

    log = _find(require_service(load_settings(state_dir=state_dir)), name)
    for instance, message in log.follow() if follow else log.read():
        text = message if raw else printable(message)
        # Not typer.echo: it takes escape sequences out on its own in a pipe.
        print(f"[{instance}] {text}" if log.several else text, flush=follow)  # noqa: T201


class _Log:
    """The streams of one job or endpoint, each read on from where it was left."""

    def __init__(self, service: "LocalService", *, group: str, prefix: str, ended: Any) -> None:
        self._service = service
        self._group = group
        self._prefix = prefix
        self._ended = ended
        self._tokens: dict[str, str] = {}
        self.several = False

    def read(self) -> Iterator[tuple[str, str]]:
        """Instance and message of every line that is new since the last call."""
        streams = self._streams()
        self.several = len(streams) > 1
        for stream in streams:
            instance = stream.removeprefix(self._prefix).rpartition("-")[0] or stream
            for message in self._events(stream):
                yield instance, message

    def follow(self) -> Iterator[tuple[str, str]]:
        """Like `read`, until the job has ended and everything it wrote was read."""
        while True:
            # Asked before reading: what is written before the end is then surely read.
            ended = self._ended()
            yield from self.read()
            if ended:
                return
            time.sleep(_LOOK_EVERY_S)

    def _streams(self) -> list[str]:
        missing = self._service.logs.exceptions.ResourceNotFoundException
        try:
            answer = self._service.logs.describe_log_streams(
                logGroupName=self._group, **({"logStreamNamePrefix": self._prefix} if self._prefix else {})
            )
        except missing:
            # Nothing has been written yet.
            return []
        return sorted(stream["logStreamName"] for stream in answer["logStreams"])

    def _events(self, stream: str) -> Iterator[str]:
        missing = self._service.logs.exceptions.ResourceNotFoundException
        while True:
            token = self._tokens.get(stream)
            position = {"nextToken": token} if token else {}
            try:
                page = self._service.logs.get_log_events(
                    logGroupName=self._group, logStreamName=stream, startFromHead=True, **position
                )
            except missing:
                return
            for event in page["events"]:
                yield event["message"]
            self._tokens[stream] = page["nextForwardToken"]
            if page["nextForwardToken"] == token or not page["events"]:
                return


def _find(service: "LocalService", name: str) -> _Log:
    from botocore.exceptions import ClientError

    sagemaker = service.sagemaker

    def job_ended() -> bool:
        answer = sagemaker.describe_training_job(TrainingJobName=name)
        return answer["TrainingJobStatus"] in ("Completed", "Failed", "Stopped")

    def endpoint_ended() -> bool:
        return sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "Failed"

    try:
        job_ended()
    except ClientError as job_error:
        try:
            endpoint_ended()
        except ClientError:
            reason = job_error.response.get("Error", {}).get("Message", str(job_error))
            raise CommandFailed(
                f"no job or endpoint named {name!r} ({reason}); `tidemill ps --all` lists them"
            ) from job_error
        return _Log(service, group=f"{_ENDPOINTS_GROUP}{name}", prefix="", ended=endpoint_ended)
    return _Log(service, group=_JOBS_GROUP, prefix=f"{name}/", ended=job_ended)
