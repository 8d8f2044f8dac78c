"""Every command line of tidemill in the documents is valid, and every message that they explain is one of the code."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tidemill.cli import VERBS, _app

REPOSITORY = Path(__file__).resolve().parents[4]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:`|\$\(|^)tidemill ([a-z]+(?: [^`\n#;|)]*)?)")
PRINTED = "tidemill runs at"  # output of a command inside a code block


def documented() -> list[tuple[str, str]]:
    """Return each command line once, with the document that contains it."""
    found: dict[str, str] = {}
    for document in DOCUMENTS:
        for code in code_of(document.read_text()):
            for match in COMMAND.finditer(code.replace("...", "")):
                found.setdefault(match[1].strip(), document.name)
    return sorted(found.items())


def code_of(text: str) -> Iterator[str]:
    """Yield the code between backquotes, and the lines of code blocks."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith("    ")) and not line.startswith(PRINTED):
            yield line.strip()
        elif not fenced:
            yield from re.findall(r"`[^`]+`", line)


@pytest.mark.parametrize(("command", "document"), documented())
def test_a_command_that_a_document_prints_is_one(command: str, document: str) -> None:
    words = shlex.split(re.sub(r"\[[^]]*\]", "", command))
    group: Any = typer.main.get_command(_app)
    with group.make_context("tidemill", [], resilient_parsing=True) as context:
        verb = group.get_command(context, words[0])
        assert verb is not None, f"{document}: tidemill {words[0]} is no verb"
        if hasattr(verb, "commands") and len(words) > 1:
            verb = verb.commands.get(words[1])
            assert verb is not None, f"{document}: tidemill {command} is no verb"
        options = {option for parameter in verb.params for option in parameter.opts + parameter.secondary_opts}
        given = {word.partition("=")[0] for word in words[1:] if word.startswith("-") and word != "-"}
        assert given <= options | {"--help"}, f"{document}: tidemill {command}"


def test_documents_print_commands() -> None:
    verbs = {command.split()[0] for command, _ in documented()}
    assert {"up", "down", "env", "run", "environments", "logs", "serve", "gc"} <= verbs


def test_every_verb_has_a_row_in_the_reference() -> None:
    text = (REPOSITORY / "docs/reference/command-line.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)", text.partition("## Exit codes")[0], re.MULTILINE)
    assert sorted(rows) == sorted(VERBS)


def test_messages_that_the_documents_explain_are_in_the_code() -> None:
    page = (REPOSITORY / "docs/troubleshooting.md").read_text()
    rows = re.findall(r"^\|([^|]*)\|", page, re.MULTILINE)
    messages = {message for row in rows for message in re.findall(r"`([^`]+)`", row)}
    assert len(messages) >= 60
    files = [*REPOSITORY.glob("packages/*/src/**/*.py"), *REPOSITORY.glob("shared/**/*.py")]
    source = "".join(file.read_text() for file in files)
    assert {message for message in messages if message not in source} == set()


def test_a_benchmark_that_a_figure_names_exists() -> None:
    pages = [REPOSITORY / "docs/performance.md", *sorted((REPOSITORY / "docs/measurements").glob("*.md"))]
    for page in pages:
        named = set(re.findall(r"benchmarks/\w+\.py", page.read_text()))
        assert named, page.name
        assert [name for name in named if not (REPOSITORY / name).exists()] == [], page.name


def test_no_code_block_is_too_wide_for_a_page() -> None:
    printed = {"model-parallel-partitioning.md"}  # the report, as a test compares it
    wide = [
        f"{document.relative_to(REPOSITORY)}: {line}"
        for document in DOCUMENTS
        if document.name not in printed
        for block in re.findall(r"^ *```.*?\n(.*?)^ *```", document.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if len(line) > 78
    ]
    assert wide == []


def test_a_list_does_not_follow_one_of_another_kind() -> None:
    """The site would show the second list with the marks of the first."""
    mixed: list[str] = []
    for document in DOCUMENTS:
        last = ""
        for line in document.read_text().splitlines():
            item = re.match(r"(\d+\.|-) ", line)
            if item:
                kind = item[1].strip("0123456789")
                mixed += [f"{document.name}: {line}"] if last not in ("", kind) else []
                last = kind
            elif line and not line.startswith(" "):
                last = ""
    assert mixed == []


def test_make_targets_that_documents_name_are_listed_by_make_help() -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-s", "help"]
    shown = subprocess.run(command, cwd=REPOSITORY, env=outside, capture_output=True, text=True, check=True).stdout
    listed = {
        name for names in re.findall(r"^make((?: [a-z][a-z0-9-]*)+)  ", shown, re.MULTILINE) for name in names.split()
    }
    named = {
        name
        for document in (*DOCUMENTS, REPOSITORY / "CONTRIBUTING.md")
        for code in code_of(document.read_text())
        for name in re.findall(r"^`?make ([a-z][a-z0-9-]*)", code)
        if not name.startswith("lock-")  # of one file
    }
    assert {"test", "quickstart", "check", "test-bare", "matrix-smp", "reference"} <= named
    assert named <= listed


def test_every_command_has_a_documented_form_of_json() -> None:
    page = (REPOSITORY / "docs/reference/json.md").read_text()
    documented = set(re.findall(r"^\| `([a-z ]+)` \|", page, re.MULTILINE))
    found = dict(commands())
    without = {name for name, command in found.items() if "--json" not in options_of(command)}
    assert without == {"run", "tensorboard"}  # what they print comes from other programs
    assert documented == set(found) - without


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands, those of groups with both names."""
    group: Any = typer.main.get_command(_app)
    with group.make_context("tidemill", [], resilient_parsing=True) as context:
        for verb in VERBS:
            found = group.get_command(context, verb)
            below = getattr(found, "commands", None)
            yield from ((f"{verb} {name}", each) for name, each in below.items()) if below else ((verb, found),)


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_completion_options_are_those_of_the_program_only() -> None:
    assert "--install-completion" in options_of(typer.main.get_command(_app))
    for name, each in commands():
        assert not options_of(each) & {"--install-completion", "--show-completion"}, name
