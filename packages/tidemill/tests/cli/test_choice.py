"""Which job or endpoint a begin of a name means."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tidemill.cli.choice import choose, choose_to_end
from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import ENDPOINT, JOBS, PROCESSING, TRAINING, NamedKind
from tidemill.cli.service import Named, NotFound


class Names:
    """A service with things of these kinds and names."""

    url = "http://service"

    def __init__(self, *names: tuple[NamedKind, str]) -> None:
        self._names = names

    def find(self, name: str, *, first: Sequence[NamedKind] = ()) -> Named:
        kinds = {kind for kind, each in self._names if each == name}
        kind = next((kind for kind in (*first, *JOBS, ENDPOINT) if kind in kinds), None)
        if kind is None:
            raise NotFound(f"no job named {name!r}")
        return Named(kind, name, {})

    def summaries(self, kind: NamedKind, NameContains: str = "") -> Iterator[dict[str, Any]]:
        for each, name in self._names:
            if each is kind and NameContains in name:
                yield {kind.member: name, "CreationTime": 0}


def test_a_begin_of_one_name_that_two_kinds_have_is_the_begin_of_several() -> None:
    service: Any = Names((TRAINING, "digits-1"), (PROCESSING, "digits-1"))
    with pytest.raises(
        CommandFailed, match=r"digits-1 \(job\), digits-1 \(processing job\); the whole name is the fir"
    ):
        choose_to_end(service, "dig", JOBS, verb="stop")
    assert choose_to_end(service, "digits-1", JOBS, verb="stop").kind is TRAINING


def test_a_begin_means_what_has_the_name_among_the_kinds_of_the_command() -> None:
    service: Any = Names((TRAINING, "digits-1"), (ENDPOINT, "digits-1"), (ENDPOINT, "digits"))
    assert choose_to_end(service, "digits-", (ENDPOINT,), verb="delete").kind is ENDPOINT
    assert choose_to_end(service, "digits", (ENDPOINT,), verb="delete").name == "digits"
    assert choose(service, "d", (TRAINING,)).name == "digits-1"
    with pytest.raises(CommandFailed, match="digits-1"):
        choose_to_end(service, "dig", (ENDPOINT,), verb="delete")
