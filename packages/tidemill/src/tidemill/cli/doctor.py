"""`tidemill doctor`: check whether this machine can run tidemill, and what to change."""

from dataclasses import asdict

import typer

from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import print_json, print_table

app = typer.Typer()


@app.command()
def doctor(json: JsonOption = False, state_dir: StateDirOption = None) -> None:
    """Check this machine, and print what to do. Exit code 1 if a check fails."""
    from tidemill.core.findings import Level
    from tidemill.server.doctor import examine, shell

    settings = load_settings(state_dir=state_dir)
    findings = [*examine(settings), shell(settings)]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("", "CHECK", "FOUND"), [(str(each.level), each.name, each.text) for each in findings], wraps=True)
        for each in findings:
            if each.remedy:
                typer.echo(f"{each.name}: {each.remedy}")
    if any(each.level is Level.FAIL for each in findings):
        raise typer.Exit(1)
