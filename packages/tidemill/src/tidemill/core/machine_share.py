"""The part of a cluster's machine that an instance occupies, by instance type (setting ``ray_instance_types``)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tidemill.core.remotes import pattern_for

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShare:
    """A part of a machine, and the labels of suitable machines.

    Attributes:
        cpus: Number of processors that the cluster counts as occupied. The script may use all processors.
        gpus: Number of GPUs that the script sees, and that no other instance gets. None reserves no GPU and hides none.
        labels: Labels with values, all of which the machine must have.

    Raises:
        ValueError: A number is out of range, or the name or value of a label is invalid.
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
    """Return the share of an instance type: that of the most precise pattern in ``shares``, or one CPU.

    Args:
        shares: The shares by instance type or pattern.
    """
    pattern = pattern_for(instance_type, shares)
    return MachineShare() if pattern is None else shares[pattern]


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
