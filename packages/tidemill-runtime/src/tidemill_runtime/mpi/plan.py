"""What a supervisor is to do, and how it ended: the files between it, its launcher and what mpirun calls."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["ENDED", "FAILED", "Outcome", "Plan"]

FAILED = "failed"
"""The notice of the rank that failed first."""
ENDED = "ended"
"""The notice that mpirun has ended, for instances without ranks: they have no daemon that tells them."""


@dataclass(frozen=True)
class Plan:
    """What the supervisor is to do.

    Attributes:
        argv: The script's argument vector, the same for every rank.
        directory: Its working directory.
        mpirun: Command line of mpirun up to the program; empty on the instances that mpirun reaches.
        host: Name of this instance.
        reports: Directory in which each rank gets one for its reports.
        variables: Set for the ranks besides the supervisor's own environment.
        shared: Directory of notices and sockets, which instances of one machine share; empty with one instance.
        network: File with addresses and secret, for instances on several machines; empty on one machine.
        others: Names of the other instances.
    """

    argv: Sequence[str]
    directory: str
    mpirun: Sequence[str]
    host: str
    reports: str
    variables: Mapping[str, str]
    shared: str = ""
    network: str = ""
    others: Sequence[str] = ()

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read it."""
        return cls(**json.loads(path.read_text(encoding="ascii")))

    def write(self, path: Path) -> None:
        """Write it."""
        path.write_text(json.dumps(asdict(self)), encoding="ascii")


@dataclass(frozen=True)
class Outcome:
    """How the job under MPI ended: ``outcome.json`` beside the plan, and what instances tell each other.

    Attributes:
        exit_code: Of the rank that failed first, negative for a signal; 0 if none did.
        where: E.g. ``rank 1 on algo-1``; empty if mpirun itself failed.
        pid: Of that rank.
        reports: Directory of its reports.
        tail: The last of its standard error, or of what mpirun wrote.
    """

    exit_code: int
    where: str = ""
    pid: int = 0
    reports: str = ""
    tail: str = ""

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read it.

        Raises:
            OSError: The file does not exist.
            ValueError: It is not complete.
        """
        return cls(**json.loads(path.read_text(encoding="ascii")))

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        new = path.with_suffix(".tmp")
        new.write_text(json.dumps(asdict(self)), encoding="ascii")
        new.replace(path)
