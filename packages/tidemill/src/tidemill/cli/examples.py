"""`tidemill examples`: programs to begin with, each with its data, script and client."""

import ast
import shutil
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption
from tidemill.cli.text import print_list, print_result

_INSTALLED = Path(__file__).parents[1] / "examples"  # of a wheel, see hatch_build.py
_IN_CHECKOUT = Path(__file__).parents[5] / "examples"


def _examples() -> dict[str, Path]:
    """Return the directories by the names of the examples."""
    root = _INSTALLED if _INSTALLED.is_dir() else _IN_CHECKOUT
    # The directories are numbered in the order in which one reads them.
    return {path.name.partition("_")[2].replace("_", "-"): path for path in sorted(root.glob("[0-9]*_*"))}


def _names(incomplete: str) -> list[str]:
    return [name for name in _examples() if name.startswith(incomplete)]


app = typer.Typer(add_completion=False, no_args_is_help=True, help="List and copy programs to begin with.")


@app.command("list")
def list_examples(json: JsonOption = False) -> None:
    """List the examples."""
    rows = [(name, _about(path)) for name, path in _examples().items()]
    print_list(
        [{"name": name, "about": about} for name, about in rows],
        ("NAME", "WHAT ITS FIRST PROGRAM DOES"),
        rows,
        nothing="this installation has no examples",
        wraps=True,
        json=json,
    )


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="E.g. digits.", autocompletion=_names)],
    directory: Annotated[
        Path | None, typer.Argument(help="The new directory (default: the example's name).", file_okay=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy an example into a new directory."""
    examples = _examples()
    if name not in examples:
        raise CommandFailed(f"there is no example {name!r}; there are {', '.join(examples)}")
    target = directory or Path(name)
    if target.exists():
        raise CommandFailed(f"{target} exists, and an example is copied into a new directory: name another one")
    target.mkdir(parents=True)
    copied = [Path(shutil.copyfile(file, target / file.name)) for file in sorted(examples[name].glob("*.py"))]
    files = [str(file) for file in copied]
    print_result({"name": name, "files": files}, *files, json=json)


def _about(path: Path) -> str:
    """Return the first line of the docstring of what one runs: the client, else the only script, else the first."""
    file = next((file for file in (path / "client.py", *sorted(path.glob("*.py"))) if file.exists()), None)
    docstring = ast.get_docstring(ast.parse(file.read_text())) if file is not None else None
    return (docstring or "").partition("\n")[0]
