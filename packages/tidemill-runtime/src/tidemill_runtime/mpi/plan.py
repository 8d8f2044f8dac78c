"""The plan and the outcome of a supervisor: files that it shares with its launcher and with what mpirun calls."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FAILED = "failed"
"""Name of the notice of the rank that failed first."""
ENDED = "ended"
"""Name of the notice that mpirun has ended, for instances without ranks: they have no daemon that reports it."""


@dataclass(frozen=True)
class MpiPlan:
    """The work of a supervisor.

    Attributes:
        argv: The script's argument vector, the same for every rank.
        directory: Working directory of the ranks.
        mpirun: Command line of mpirun up to the program; empty on instances where mpirun does not run.
        reports: Directory in which each rank gets a subdirectory for its reports.
        variables: Variables set for the ranks in addition to the supervisor's own environment.
        shared: Directory of notices and sockets, which instances of one machine share; empty with one instance.
        network: File with addresses and secret, for instances on several machines; empty on one machine.
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
    def read(cls, path: Path) -> MpiPlan:
        """Read the plan.

        Args:
            path: Path of the file.
        """
        return cls(**json.loads(path.read_text(encoding="ascii")))

    def write(self, path: Path) -> None:
        """Write the plan.

        Args:
            path: Path of the file.
        """
        path.write_text(json.dumps(asdict(self)), encoding="ascii")


@dataclass(frozen=True)
class Outcome:
    """How a job under MPI ended: the content of ``outcome.json`` beside the plan, and of notices.

    Attributes:
        exit_code: Exit code of the rank that failed first, negative for a signal; 0 if none failed.
        where: The rank that failed, e.g. ``rank 1 on algo-1``; empty if mpirun itself failed.
        pid: Process id of that rank.
        tail: The end of its standard error, or of the output of mpirun.
    """

    exit_code: int
    where: str = ""
    pid: int = 0
    reports: str = ""
    tail: str = ""

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read the outcome.

        Raises:
            OSError: The file does not exist.
            ValueError: The file is not complete.
        """
        return cls(**json.loads(path.read_text(encoding="ascii")))

    def write(self, path: Path) -> None:
        """Write the outcome atomically.

        Args:
            path: Path of the file; readers see the old or the new one.
        """
        new = path.with_name(f"{path.name}.tmp")  # not with_suffix: the senders of a notice differ in the suffix
        new.write_text(json.dumps(asdict(self)), encoding="ascii")
        new.replace(path)
