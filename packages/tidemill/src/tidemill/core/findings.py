"""What a check of the machine or of the service found."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was checked, e.g. ``isolation``.
        level: How severe it is.
        remedy: What to do; empty if nothing needs to be done.
    """

    name: str
    level: Level
    text: str
    remedy: str = ""
