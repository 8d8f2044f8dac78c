"""`tidemill logs`: print the log of a job or an endpoint."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completion import logged_names
from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import ENDPOINT, EXECUTION, PROCESSING, TRAINING, TRANSFORM, TUNING
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption, point_in_time
from tidemill.cli.text import print_json_line
from tidemill.errors import printable

if TYPE_CHECKING:
    from tidemill.sdk.logs import LogLine

app = typer.Typer(add_completion=False)

_WITH_LOG = (TRAINING, PROCESSING, TRANSFORM, ENDPOINT)


@app.command()
def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            autocompletion=logged_names,
            help="A training, processing or transform job or an endpoint: its name, a begin of it, or - for the last"
            " job.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="10m|TIME", help="Only lines since then: 30s, 10m, 2h, 1d, or ISO 8601.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only lines in which the regular expression is found.")
    ] = None,
    instances: Annotated[
        list[str] | None,
        typer.Option("--instance", metavar="NAME", help="Only lines of this instance, e.g. algo-2; repeatable."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines, after the other filters.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Keep control characters.")] = False,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Print the log of a job or an endpoint. With several instances, lines are ordered by time and begin with the
    instance's name.

    A restart of the service does not end --follow.
    """
    from tidemill.cli.choice import choose
    from tidemill.cli.job_log import ShownLog
    from tidemill.cli.service import require_service
    from tidemill.sdk.console import Console

    pattern, since_ms = _pattern(grep), _since_ms(since)
    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    found = choose(service, name, _WITH_LOG)
    if found.kind in (TUNING, EXECUTION):
        raise CommandFailed(
            f"{found.name} is a {found.kind.noun}, whose jobs have the logs: `tidemill ps --all` lists them, e.g."
            f" {found.name}-001-..."
        )
    console = Console(keep_escapes=raw)
    log = ShownLog(service, found, since_ms=since_ms, pattern=pattern, instances=instances or (), console=console)
    for lines in log.read(tail=tail, follow=follow):
        if json:
            for time_ms, message, instance in lines:
                print_json_line({"time": _time(time_ms), "instance": instance, "message": message})
            continue
        console.log_all(_shown(lines, raw=raw, several=log.several), named=True)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _shown(lines: "list[LogLine]", *, raw: bool, several: bool) -> Any:
    return ((message if raw else _printable(message), instance if several else None) for _, message, instance in lines)


def _printable(message: str) -> str:
    return printable(message) + ("\r" if message.endswith("\r") else "")  # marks the state of a progress bar


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no regular expression: {error}", param_hint="--grep") from error


def _since_ms(text: str | None) -> int | None:
    if text is None:
        return None
    return int(point_in_time(text, option="--since").timestamp() * 1000)
