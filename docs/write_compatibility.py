"""Writes the generated parts of `docs/compatibility.md`: clients, and the effect of every member and argument.

    python docs/write_compatibility.py

The rows are those of `tidemill.core.compatibility`, which also decide on requests; those of the clients are in
`docs/clients.toml`. `make compatibility` runs this script, and a test fails if the page is older than the tables.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tidemill.core.compatibility import COMMON, OPERATIONS, row_of
from tidemill.core.compatibility.hyperparameters import HYPERPARAMETERS
from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Row, Sent
from tidemill.core.compatibility.sdk import ARGUMENTS, DISTRIBUTIONS
from tidemill.core.compatibility.sdk_rows import Argument

__all__ = ["CLIENTS", "PAGE", "clients", "generated", "main", "pinned", "replaced"]

PAGE = Path(__file__).with_name("compatibility.md")
BEGIN = "<!-- generated from tidemill.core.compatibility by `make compatibility`; do not edit by hand -->\n"
END = "<!-- end of the generated part -->\n"
CLIENTS = Path(__file__).with_name("clients.toml")
CLIENTS_BEGIN = "<!-- generated from docs/clients.toml by `make compatibility`; do not edit by hand -->\n"
CLIENTS_END = "<!-- end of the clients -->\n"
ONLY_IN_THE_MATRIX = "tests/clients/"
"""Folder of the tests that no ordinary run includes."""

_LEGEND = """\
## Every member
**honored**: done as requested. **in part**: done as far as the note says. **recorded**: accepted and shown, without
effect. **refused**: an error at the call that names the member, the value, what is allowed and what to do; `false` and
empty values request nothing, and are accepted. The row of a recorded or refused member also applies to the members
inside it. Members that are not in AWS's model are ignored, with a warning in the service's log.
"""
_OF_HYPERPARAMETERS = """\
### Hyperparameters of the platform
All other hyperparameters belong to the user and reach the script. A `sagemaker_` name that is not listed is shown to
the script in `SM_FRAMEWORK_PARAMS`, as on SageMaker. The hyperparameters `training_steps`, `evaluation_steps` and
`checkpoint_path` of legacy mode are refused if all three are given, as version 1 of the SDK sends them.
"""
_OF_ARGUMENTS = """\
### Arguments of tidemill.sdk
The row of an argument that is sent as a member of a request names that member; the member's row above shows its effect.
"""

_TITLES = {
    "sagemaker": "SageMaker",
    "sagemaker-metrics": "SageMaker Metrics",
    "sagemaker-runtime": "SageMaker Runtime",
    "logs": "CloudWatch Logs",
    "cloudwatch": "CloudWatch",
    "application-autoscaling": "Application Auto Scaling",
    "sts": "STS",
    "iam": "IAM",
    "kms": "KMS",
    "s3": "S3",
}


def generated() -> str:
    """Return the generated part of the page."""
    return "\n".join((_LEGEND, *_services(), *_hyperparameters(), *_arguments()))


def clients() -> str:
    """Return the table of clients and of what each was tested with."""
    tested = tomllib.loads(CLIENTS.read_text())
    keys = [client["key"] for client in tested["client"]]
    names = [" ".join((client["name"], pinned(client))).strip() for client in tested["client"]]
    rows = [[flow["name"], *(_shown(flow.get(key, "-")) for key in keys)] for flow in tested["flow"]]
    lines = (["", *names], ["---"] * (len(names) + 1), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def pinned(client: Mapping[str, str]) -> str:
    """Return the version of a client in the tests, as its lock has it; empty for tidemill's own.

    Raises:
        LookupError: The lock has no such package.
    """
    if "pin" not in client:
        return ""
    file, _, before = client["pin"].partition(": ")
    for line in (PAGE.parent.parent / file).read_text().splitlines():
        _, found, version = line.partition(before)
        if found:
            return ".".join(version.split(".")[:2])
    raise LookupError(f"{file} has no {before!r}")


def replaced(page: str) -> str:
    """Return the page with its generated parts replaced.

    Raises:
        ValueError: The page lacks a mark that encloses one.
    """
    return _between(BEGIN, f"{generated()}\n", END, _between(CLIENTS_BEGIN, clients(), CLIENTS_END, page))


def main() -> None:
    """Write the page."""
    PAGE.write_text(replaced(PAGE.read_text()))


def _between(begin: str, text: str, end: str, page: str) -> str:
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"the page lacks the line {begin!r} or {end!r}")
    return f"{before}{begin}{text}{end}{after}"


def _shown(cell: str) -> str:
    if "::" not in cell:
        return cell
    return "matrix" if cell.startswith(ONLY_IN_THE_MATRIX) else "yes"


def _services() -> Iterator[str]:
    for service, operations in OPERATIONS.items():
        yield f"### {_TITLES[service]}"
        if service in COMMON:
            yield "Members with the same meaning in all operations:\n"
            yield from _table("member", COMMON[service])
        if service == "sagemaker":
            yield f"Lists of what cannot exist here are empty: {', '.join(f'`{each}`' for each in EMPTY_LISTS)}.\n"
        for operation, rows in operations.items():
            if service == "sagemaker" and operation in EMPTY_LISTS:
                continue
            others = " Further members are in the first table." if service in COMMON else ""
            if rows and any(_is_remarkable(row) for row in rows.values()):
                yield f"**{operation}**\n"
                yield from _table("member", rows)
            elif rows:
                yield f"**{operation}**: {_names(rows)}: honored.{others}\n"
            else:
                yield f"**{operation}**: no members.{others}\n"


def _hyperparameters() -> Iterator[str]:
    yield _OF_HYPERPARAMETERS
    yield from _table("hyperparameter", HYPERPARAMETERS)


def _arguments() -> Iterator[str]:
    yield _OF_ARGUMENTS
    for function, arguments in ARGUMENTS.items():
        if any(_is_remarkable(row) for row in arguments.values()):
            yield f"**{function}**\n"
            yield from _table("argument", arguments)
        else:
            yield f"**{function}**: {_names(arguments)}: honored.\n"
    yield "**TensorFlow's `distribution`**\n"
    yield from _table("kind", DISTRIBUTIONS)


def _is_remarkable(row: Argument) -> bool:
    return row != Honored()


def _table(title: str, rows: Mapping[str, Argument]) -> Iterator[str]:
    yield f"| {title} | here | |"
    yield "|---|---|---|"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, row in rows.items():
        groups.setdefault(_described(row), []).append(name)
    for (status, note), names in groups.items():
        yield f"| {_names(names)} | {status} | {note} |"
    yield ""


def _described(row: Argument) -> tuple[str, str]:
    """Status and note of a row."""
    if isinstance(row, Sent):
        status = _described(_target(row))[0]
        return status, f"sent as `{row.member}` of {row.operation}"
    if isinstance(row, Refused):
        harmless = ", ".join(f"`{value}`" for value in row.harmless)
        note = f", {row.note}" if row.note else ""
        return "refused", f"{row.reason}. Accepted: {harmless}{note}" if harmless else row.reason
    if isinstance(row, Recorded):
        return "recorded", row.note
    only = f"only {', '.join(f'`{value}`' for value in row.only)}" if row.only else ""
    return "in part" if row.in_part else "honored", "; ".join(part for part in (only, row.note) if part)


def _target(sent: Sent) -> Row:
    """The row that decides over an argument that is sent."""
    head, _, name = sent.member.partition("HyperParameters.")
    if not head and name:
        return HYPERPARAMETERS[name]
    if sent.operation not in OPERATIONS[sent.service]:
        return Refused(f"there is no operation {sent.operation}")
    row = row_of(sent.service, sent.operation, sent.member)
    if row is None:
        raise LookupError(f"{sent.operation} has no row {sent.member!r}")
    return row


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    main()
