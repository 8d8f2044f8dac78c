"""What an instance takes of a machine of a cluster: the setting ``ray_instance_types`` says it by instance type."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidemill.core.remotes import pattern_for

__all__ = ["MachineShare", "share_of"]

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShare:
    """A part of a machine, and which machines it may be of.

    Attributes:
        cpus: Processors that the cluster counts as taken. The script may use all of its machine.
        gpus: GPUs that the script sees and that no other instance gets. None takes no GPU and hides none.
        labels: The machine must have all of these labels, with these values.

    Raises:
        ValueError: A number is out of range, or a label cannot be one.
    """

    cpus: float = 1
    gpus: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt member of the settings is an error

    def __post_init__(self) -> None:
        if self.cpus <= 0:
            raise ValueError(f"cpus is {self.cpus:g}; expected more than 0")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus}; expected 0 or more")
        for text in (*self.labels, *self.labels.values()):
            if not _LABEL.fullmatch(text):
                raise ValueError(
                    f"{text!r} cannot be a label or its value; expected at most 63 letters, digits and ._/-, with a"
                    " letter or a digit at both ends"
                )

    def __str__(self) -> str:
        parts = [_count(self.cpus, "CPU"), *([_count(self.gpus, "GPU")] if self.gpus else [])]
        return ", ".join(parts + [f"label {name}={value}" for name, value in sorted(self.labels.items())])


def share_of(instance_type: str, shares: Mapping[str, MachineShare]) -> MachineShare:
    """Return what an instance of a type takes: by the most precise pattern of ``shares``, else one CPU."""
    pattern = pattern_for(instance_type, shares)
    return MachineShare() if pattern is None else shares[pattern]


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"
