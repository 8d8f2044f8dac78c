"""`tidemill top`: what runs now, and what its instances use."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, fitted, print_json, print_json_line, print_table
from tidemill.core.sizes import size
from tidemill.errors import printable

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)

_COLUMNS = ("NAME", "HOST", "STATUS", "CPU", "MEMORY", "GPU", "DISK I/O", "NETWORK", "AGE")
_INTERESTS = [{"Kind": kind} for kind in ("training-job", "processing-job", "transform-job", "endpoint")]
_PENDING = "Pending"
_DENIED = ("AccessDeniedException", "AccessDenied")


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
    interval: Annotated[int, typer.Option("--interval", min=1, max=30, help="Seconds between two looks.")] = 2,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Show running jobs and endpoints, and the processors, memory, GPUs and traffic of their instances, until Ctrl-C.

    Instances are sampled every ten seconds; a job that begins or ends is shown at once. Where standard output is no
    terminal, the table is printed once. With --json and without --once, each look is a line of JSON.
    """
    from tidemill.cli.service import require_service

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    if once or not (json or sys.stdout.isatty()):
        look = _Look.at(service)
        if json:
            print_json(look.to_json())
        else:
            typer.echo(look.head)
            print_table(_COLUMNS, look.rows)
        return
    try:
        if json:
            for look in _looks(service, interval):
                if not look.fault:
                    print_json_line(look.to_json())
        else:
            _show(service, interval)
    except KeyboardInterrupt:  # the usual end
        return


@dataclass(frozen=True, slots=True)
class _Look:
    """What runs at one moment.

    Attributes:
        running: Jobs and endpoints, as ListRunningInstances returns them.
        machine: The answer of DescribeMachine; empty if the caller may not ask for it.
        fault: Why the service did not answer; then the rest is that of the last look.
    """

    running: Sequence[Mapping[str, Any]]
    machine: Mapping[str, Any]
    fault: str = ""

    @classmethod
    def at(cls, service: "NamedService") -> "_Look":
        from botocore.exceptions import ClientError

        running = service.tidemill.list_running_instances()["Running"]
        machine: dict[str, Any] = {}
        try:
            machine = service.tidemill.describe_machine()
        except ClientError as error:
            if error.response["Error"]["Code"] not in _DENIED:
                raise
        machine.pop("ResponseMetadata", None)
        return cls(running, machine)

    @property
    def head(self) -> str:
        """The line above the table: the machine, and the queue."""
        waiting = sum(each["SecondaryStatus"] == _PENDING for each in self.running)
        parts = [f"{len(self.running) - waiting} running", f"{waiting} waiting"]
        if self.machine:
            cpus, memory = self.machine["Cpus"], self.machine["Memory"]
            used = memory["TotalBytes"] - memory["AvailableBytes"]
            parts = [
                printable(self.machine["HostName"]),
                *parts,
                f"load {cpus['LoadAverage'][0]:.1f} of {cpus['Count']}",
                f"memory {size(used)} of {size(memory['TotalBytes'])}",
            ]
        return ", ".join(parts) + (f"  ({printable(self.fault)})" if self.fault else "")

    @property
    def rows(self) -> list[list[str]]:
        """The rows of the table: one per instance, jobs that wait last and in the order of the queue."""
        begun = [each for each in self.running if each["SecondaryStatus"] != _PENDING]
        waiting = sorted((each for each in self.running if each not in begun), key=lambda each: each["CreatedMs"])
        rows = [row for owner in begun for row in _rows(owner, owner["SecondaryStatus"])]
        for place, owner in enumerate(waiting, start=1):
            rows.append([owner["Name"], "", f"{_PENDING} ({place})", "", "", "", "", "", _age(owner)])
        return rows

    def to_json(self) -> dict[str, Any]:
        return {"running": list(self.running), "machine": dict(self.machine)}


def _looks(service: "NamedService", interval_s: int) -> Iterator[_Look]:
    """Yield a look whenever something changes, and after the interval; go on while the service does not answer."""
    from botocore.exceptions import BotoCoreError

    token: str | None = None
    last = _Look((), {})
    while True:
        try:
            last = _Look.at(service)
            yield last
            named = {"Token": token} if token else {}
            changes = service.tidemill.wait_for_changes(Interests=_INTERESTS, WaitSeconds=interval_s, **named)
            if token is None:
                threading.Event().wait(interval_s)  # without a token the service answers at once
            token = changes["Token"]
        except BotoCoreError as error:
            token = None
            yield _Look(last.running, last.machine, fault=f"the service does not answer: {error}")
            threading.Event().wait(interval_s)


def _show(service: "NamedService", interval_s: int) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for look in _looks(service, interval_s):
            table = Table(box=None, pad_edge=False, header_style="bold", width=console.width)
            for name in _COLUMNS:
                table.add_column(name, no_wrap=True)
            shown = [[printable(cell).replace("\n", " ") for cell in row] for row in look.rows]
            for row in fitted(_COLUMNS, shown[: max(1, console.height - 3)], width=console.width):
                table.add_row(*map(Text, row))
            live.update(Group(Text(look.head, no_wrap=True, overflow="ellipsis"), table), refresh=True)


def _rows(owner: Mapping[str, Any], status: str) -> Iterator[list[str]]:
    for instance in owner.get("Instances") or ({"Host": "", "TimesMs": []},):
        head = [owner["Name"], instance["Host"], status]
        yield [*head, *(_used(instance) if instance["TimesMs"] else ("", "", "", "", "")), _age(owner)]


def _used(instance: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Return the cells of the last sample of an instance."""
    gpus = [f"{100 * each['Busy'][-1]:.0f}% {size(each['Memory'][-1])}" for each in instance.get("GpuSamples", ())]
    network = f"{_rate(instance, 'NetworkReceived')} in, {_rate(instance, 'NetworkSent')} out"
    return (
        f"{100 * instance['Cpu'][-1]:.0f}% of {100 * instance['Cpus']}%",
        f"{size(instance['Memory'][-1])} of {size(instance['MemoryBytes'])}",
        "; ".join(gpus),
        f"{_rate(instance, 'DiskRead')} in, {_rate(instance, 'DiskWritten')} out",
        network if instance["Network"] == "instance" else f"{network} (machine)",
    )


def _rate(instance: Mapping[str, Any], member: str) -> str:
    return f"{size(round(instance[member][-1]))}/s"


def _age(owner: Mapping[str, Any]) -> str:
    return age(datetime.fromtimestamp(owner["CreatedMs"] / 1000, UTC))
