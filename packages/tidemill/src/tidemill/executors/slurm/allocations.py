"""The service's records of the allocations that it asked Slurm for. They outlive the service."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tidemill.core.files import make_directory, read_json, write_json
from tidemill.executors.slurm.queue import NAME_PREFIX, SlurmJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """An allocation for one attempt of a job.

    Attributes:
        job_id: Hexadecimal id of the job.
        count: Number of nodes.
        nonce: Makes the name of the file with the assignments unpredictable.
        number: Slurm's id of the job; None if sbatch has not answered with it yet.
        started: Whether the assignments may have reached the nodes.
        released: Whether the allocation is no longer needed.
    """

    job_id: str
    attempt: int
    count: int
    nonce: str
    number: int | None = None
    started: bool = False
    released: bool = False

    @property
    def name(self) -> str:
        """The name of the job in Slurm, by which it is found if its number is unknown."""
        return f"{NAME_PREFIX}{self.job_id}-{self.attempt}"

    def find(self, jobs: Sequence[SlurmJob]) -> SlurmJob | None:
        """Return the Slurm job of the allocation; None if Slurm does not list it.

        Args:
            jobs: All jobs of the user.
        """
        if self.number is not None:
            return next((job for job in jobs if job.number == self.number), None)
        return min((job for job in jobs if job.name == self.name), key=lambda job: job.number, default=None)


class Allocations:
    """Stores allocations as files below ``root``. May be used from several threads.

    Args:
        root: Directory of the files.
    """

    def __init__(self, root: Path) -> None:
        make_directory(root, mode=0o700)
        self._root = root
        self._lock = threading.Lock()
        self._all = {(each.job_id, each.attempt): each for each in map(_read, root.glob("*.json")) if each}

    def all(self) -> list[Allocation]:
        """Return all allocations."""
        return list(self._all.values())

    def of_job(self, job_id: str) -> list[Allocation]:
        """Return the allocations of all attempts of a job.

        Args:
            job_id: Hexadecimal id of the job.
        """
        return [each for each in self.all() if each.job_id == job_id]

    def get(self, job_id: str, attempt: int) -> Allocation | None:
        """Return the allocation of an attempt; None if there is none.

        Args:
            job_id: Hexadecimal id of the job.
        """
        return self._all.get((job_id, attempt))

    def put(self, allocation: Allocation) -> Allocation:
        """Store an allocation durably, and return it.

        Args:
            allocation: Replaces the stored one of the same attempt.
        """
        with self._lock:
            value = {each.name: getattr(allocation, each.name) for each in fields(allocation)}
            write_json(self._file(allocation), {"version": 1, **value})
            self._all[allocation.job_id, allocation.attempt] = allocation
            return allocation

    def change(self, allocation: Allocation, **members: Any) -> Allocation:
        """Store an allocation with other values of some members, and return it."""
        return self.put(replace(allocation, **members))

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation; one that was removed before is no error."""
        with self._lock:
            self._all.pop((allocation.job_id, allocation.attempt), None)
            self._file(allocation).unlink(missing_ok=True)

    def _file(self, allocation: Allocation) -> Path:
        return self._root / f"{allocation.job_id}-{allocation.attempt}.json"


def _read(file: Path) -> Allocation | None:
    value = read_json(file)
    if not value:
        return None
    value.pop("version")
    return Allocation(**value)
