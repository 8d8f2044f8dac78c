"""`tidemill config`: the settings, and where each comes from."""

import json as jsonlib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import JsonOption, StateDirOption, load_settings, shown_setting
from tidemill.cli.text import print_json, print_result, print_table
from tidemill.core.files import make_directory, write_durably
from tidemill.core.service_choice import named_in_environment, settings_file

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Show the settings and where each comes from; change the file."
)

_PREFIX = "TIDEMILL_"
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a setting, e.g. max_instances.")]


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting as it takes effect.

    Attributes:
        value: In JSON's types.
        origin: ``flag``, ``environment``, ``file`` or ``default``.
        where: The flag, the variable, or the file with its line. Empty for a default.
    """

    name: str
    value: Any
    origin: str
    where: str = ""


@app.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Also print where each value comes from.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not defaults.")] = False,
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Print the settings with which commands and the service of this user start. Secrets are hidden.

    A running service has the settings of its start.
    """
    found = [each for each in _settings(state_dir) if not changed or each.origin != "default"]
    if json:
        print_json([{"name": each.name, "value": each.value, **_place(each)} for each in found])
        return
    rows = [(each.name, _text(each.value), f"{each.origin} {each.where}".strip()) for each in found]
    if origin:
        print_table(("SETTING", "VALUE", "ORIGIN"), rows)
    else:
        print_table(("SETTING", "VALUE"), [row[:2] for row in rows])


@app.command("set")
def set_value(
    name: _Name,
    value: Annotated[str, typer.Argument(help="As in TOML; text needs no quotes.")],
    json: JsonOption = False,
) -> None:
    """Write a setting to the settings file. Tables, such as remote_s3, are edited by hand."""
    read = _read(name, value)
    file = settings_file()
    text = file.read_text() if file.exists() else ""
    # JSON's text, numbers, true and lists are TOML's, too.
    changed = _with_line(text, name, f"{name} = {jsonlib.dumps(read, ensure_ascii=False)}")
    _check_edit(file, text, changed, name, read)
    make_directory(file.parent, mode=0o700)
    write_durably(file, changed.encode())
    text = f"{name} is set in {file}; a running service has it from its next start"
    print_result({"name": name, "file": str(file)}, text, json=json)


@app.command()
def unset(name: _Name, json: JsonOption = False) -> None:
    """Remove a setting from the settings file."""
    file = settings_file()
    text = file.read_text() if file.exists() else ""
    present = name in tomllib.loads(text)
    if present:
        changed = _with_line(text, name, None)
        _check_edit(file, text, changed, name, None)
        write_durably(file, changed.encode())
    text = f"{name} is removed from {file}" if present else f"{file} has no setting {name}"
    print_result({"name": name, "removed": present, "file": str(file)}, text, json=json)


def _settings(state_dir: Path | None) -> list[_Setting]:
    settings = load_settings(state_dir=state_dir)
    values = settings.model_dump(mode="json")
    file = settings_file()
    text = file.read_text() if file.is_file() else ""
    configured = tomllib.loads(text)
    variables = {name.casefold(): name for name in os.environ}
    named = None if state_dir is not None else named_in_environment()
    found = []
    for name in type(settings).model_fields:
        variable = variables.get(f"{_PREFIX}{name}".casefold())
        if name == "state_dir" and state_dir is not None:
            found.append(_Setting(name, values[name], "flag", "--state-dir"))
        elif name == "endpoint_url" and named is not None:
            found.append(_Setting(name, named.url, "environment", named.named_by))
        elif variable is not None:
            found.append(_Setting(name, values[name], "environment", variable))
        elif name in configured:
            found.append(_Setting(name, values[name], "file", f"{file}:{_line_of(text, name)}"))
        else:
            found.append(_Setting(name, values[name], "default"))
    return found


def _place(setting: _Setting) -> dict[str, str | None]:
    return {"origin": setting.origin, "where": setting.where or None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsonlib.dumps(value)


def _line_of(text: str, name: str) -> int:
    """Return the number of the line that begins a setting, or its first table."""
    begin = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(name)}[\"']?\s*[.=\]]")
    return next((number for number, line in enumerate(text.splitlines(), 1) if begin.match(line)), 0)


def _read(name: str, text: str) -> Any:
    """Return the value of a setting in TOML's types: what the text is in TOML, else the text itself, e.g. 2.20.

    Raises:
        CommandFailed: There is no such setting, it is a table, or it cannot have the value.
    """
    from pydantic import TypeAdapter, ValidationError

    from tidemill.settings import Settings

    field = Settings.model_fields.get(name)
    if field is None:
        raise CommandFailed(f"there is no setting {name!r}; `tidemill config show` lists them")
    kind: Any = field.annotation
    for constraint in field.metadata:
        kind = Annotated[kind, constraint]
    why = ""
    for value in (*_literal(text), text):
        if isinstance(value, dict):
            raise CommandFailed(f"{name} is a table: edit {settings_file()}")
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            why = why or error.errors(include_url=False)[0]["msg"]
        else:
            return value
    raise CommandFailed(f"{shown_setting(name, text)}: {why}")


def _literal(text: str) -> tuple[Any, ...]:
    try:
        return (tomllib.loads(f"value = {text}")["value"],)
    except tomllib.TOMLDecodeError:
        return ()


def _with_line(text: str, name: str, line: str | None) -> str:
    """Return the file with a line in place of the setting's, or above the first table if there is none."""
    lines = text.splitlines()
    top = next((number for number, each in enumerate(lines) if each.lstrip().startswith("[")), len(lines))
    number = _line_of("\n".join(lines[:top]), name)
    begin, end = (number - 1, number) if number else (top, top)
    lines[begin:end] = [] if line is None else [line]
    return "\n".join(lines) + "\n" if lines else ""


def _check_edit(file: Path, before: str, after: str, name: str, value: Any) -> None:
    """Raise unless the edit changes one setting and nothing else, e.g. because its value has several lines."""
    expected = {key: each for key, each in tomllib.loads(before).items() if key != name}
    if value is not None:
        expected[name] = value
    try:
        is_right = tomllib.loads(after) == expected
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise CommandFailed(f"{name} has more than one line in {file}: edit the file")
