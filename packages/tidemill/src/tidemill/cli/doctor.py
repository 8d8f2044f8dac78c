"""`tidemill doctor`: check whether a machine can run tidemill, and what to change."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_json, print_table

if TYPE_CHECKING:
    from tidemill.cli.service import ServiceChoice
    from tidemill.core.findings import Finding

app = typer.Typer(add_completion=False)


@app.command()
def doctor(json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None) -> None:
    """Check the machine of the service, or this one, and print what to do. Exit code 1 if a check fails."""
    from tidemill.cli.service import ServiceChoice
    from tidemill.core.findings import Level
    from tidemill.server.doctor import shell

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    findings = [*_of_machine(choice, quiet=json), shell(choice.settings)]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("", "CHECK", "FOUND"), [(str(each.level), each.name, each.text) for each in findings], wraps=True)
        for each in findings:
            if each.remedy:
                typer.echo(f"{each.name}: {each.remedy}")
    if any(each.level is Level.FAIL for each in findings):
        raise typer.Exit(1)


def _of_machine(choice: "ServiceChoice", *, quiet: bool) -> Iterator["Finding"]:
    """Yield what a service on another machine finds there, if one is selected and answers, and else what this one is.

    Args:
        choice: The selected service.
        quiet: Print no line about which machine is checked.
    """
    from tidemill.cli.service import find_service
    from tidemill.cli.status import health_of
    from tidemill.core.findings import Finding, Level
    from tidemill.server.doctor import examine

    service = find_service(choice) if choice.endpoint is not None else None
    if service is not None and service.own is None:
        if health_of(service.url):
            if not quiet:
                typer.echo(f"the machine of {service.url} ({choice.reason}):")
            for each in service.tidemill.run_doctor()["Findings"]:
                yield Finding(each["Name"], Level(each["Level"]), each["Text"], each["Remedy"])
            return
        text = f"{service.url} ({choice.reason}) does not answer; these are the checks of this machine"
        yield Finding("selected service", Level.WARN, text, "start it, or name another service")
    yield from examine(choice.settings)
