"""Rows of the tables that say what each argument of a public function does. The tests of Horovod and smp share them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ArgumentEffect(Enum):
    """What a function does with an argument."""

    HONORED = "honored"
    NONE = "without effect"
    REFUSED = "refused"
    """Raises an error that names the argument, unless the value is the default."""


@dataclass(frozen=True)
class ArgumentRow:
    """A row of the table."""

    effect: ArgumentEffect
    note: str
    """What the argument does, why it has no effect, or why it is refused."""


def honored(note: str) -> ArgumentRow:
    """Return the row of an argument that has an effect."""
    return ArgumentRow(ArgumentEffect.HONORED, note)


def refused(note: str) -> ArgumentRow:
    """Return the row of an argument that raises an error."""
    return ArgumentRow(ArgumentEffect.REFUSED, note)


def without_effect(note: str) -> ArgumentRow:
    """Return the row of an argument that changes nothing."""
    return ArgumentRow(ArgumentEffect.NONE, note)
