"""Which job, execution or endpoint a command means: a whole name, the begin of one, or the last.

A whole name wins. Otherwise the text has to begin exactly one name of the kinds that the command is about. ``-`` or
nothing is the newest; commands that stop or delete refuse that, because someone else may have made the newest.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import ENDPOINT, EXECUTION, JOBS, NAMED, TRAINING, NamedKind
from tidemill.cli.text import execution_name

if TYPE_CHECKING:
    from tidemill.cli.service import Named, NamedService

LAST = "-"
_BEGIN = re.compile(r"[a-zA-Z0-9-]{1,63}")
_MAX_CANDIDATES = 8


def choose(service: "NamedService", text: str | None, kinds: Sequence[NamedKind] = (*NAMED, EXECUTION)) -> "Named":
    """Return what a command is about, and print its name if the text is not the whole name.

    Args:
        text: Name, its begin, or ``-`` or None for the newest.
        kinds: What the command can be about. A whole name is found even if it is of another kind.

    Raises:
        CommandFailed: Nothing, or more than one thing, matches.
    """
    if text is None or text in ("", LAST):
        found = service.find(_newest(service, kinds), first=kinds)
    else:
        found = _named(service, text, kinds)
    if found.name != text:
        typer.echo(f"tidemill: {found.name} ({found.kind.noun})", err=True)
    return found


def choose_to_end(service: "NamedService", text: str, kinds: Sequence[NamedKind], *, verb: str) -> "Named":
    """Return what a command stops or deletes. ``-`` is refused.

    Args:
        text: Name, or its begin.
        kinds: What the command can end.
        verb: The command.

    Raises:
        CommandFailed: Nothing, or more than one thing, matches; or the text is ``-``.
    """
    if text in ("", LAST):
        newest = _newest(service, kinds)
        raise CommandFailed(
            f"`tidemill {verb}` needs a name, or a begin that no other name has: the last may be someone else's. The"
            f" last is {newest}"
        )
    return choose(service, text, kinds)


def check_kind(found: "Named", kinds: Sequence[NamedKind], *, verb: str) -> None:
    """Raise if a command cannot be about what was found.

    Args:
        found: What has the name.
        kinds: What the command can be about.
        verb: The command.

    Raises:
        CommandFailed: It is of another kind.
    """
    if found.kind not in kinds:
        raise CommandFailed(f"{found.name} is a {found.kind.noun}; `tidemill {verb}` is about {_nouns(kinds)}")


def choose_training(service: "NamedService", text: str | None, *, verb: str) -> "Named":
    """Return a training job, as `choose` does.

    Args:
        text: Name, its begin, or ``-`` or None for the newest.
        verb: The command.

    Raises:
        CommandFailed: Nothing, or more than one thing, matches; or it is no training job.
    """
    found = choose(service, text, (TRAINING,))
    check_kind(found, (TRAINING,), verb=verb)
    return found


def _named(service: "NamedService", text: str, kinds: Sequence[NamedKind]) -> "Named":
    from tidemill.cli.service import NotFound

    try:
        return service.find(text, first=kinds)
    except NotFound:
        candidates = dict.fromkeys(_beginning(service, text, kinds))
        if not candidates:
            raise
    if len(candidates) > 1:
        shown = ", ".join(f"{name} ({kind.noun})" for name, kind in list(candidates)[:_MAX_CANDIDATES])
        more = "" if len(candidates) <= _MAX_CANDIDATES else ", ..."
        if len({name for name, _ in candidates}) == 1:
            more = "; the whole name is the first of these"
        raise CommandFailed(f"{text!r} begins several names; give more of one: {shown}{more}")
    name, kind = next(iter(candidates))
    return service.find(name, first=(kind, *kinds))


def _beginning(service: "NamedService", text: str, kinds: Sequence[NamedKind]) -> Iterator[tuple[str, NamedKind]]:
    """Yield the names that begin with a text; of each kind one more than are shown, at most."""
    if "/" in text and EXECUTION in kinds:
        names = (execution_name(each) for each in service.executions())
        yield from ((name, EXECUTION) for name in names if name.startswith(text))
    if not _BEGIN.fullmatch(text):
        return
    for kind in kinds:
        if kind is EXECUTION:
            continue
        count = 0
        for summary in service.summaries(kind, NameContains=text):
            if kind.name(summary).startswith(text):
                yield kind.name(summary), kind
                count += 1
            if count > _MAX_CANDIDATES:
                break


def _newest(service: "NamedService", kinds: Sequence[NamedKind]) -> str:
    """Return the name of the newest job of the kinds; of the newest endpoint if there is no kind of job among them."""
    listed = [kind for kind in kinds if kind in JOBS] or [kind for kind in kinds if kind is ENDPOINT]
    firsts = [(kind, next(service.summaries(kind), None)) for kind in listed]
    found = [(summary["CreationTime"], kind.name(summary)) for kind, summary in firsts if summary is not None]
    if not found:
        raise CommandFailed(f"there are no {_nouns(listed)} at {service.url}")
    return max(found)[1]


def _nouns(kinds: Sequence[NamedKind]) -> str:
    nouns = [f"{'training ' if kind is TRAINING else ''}{kind.noun}s" for kind in kinds]
    return nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} and {nouns[-1]}"
