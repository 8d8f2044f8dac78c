"""Files kept of ended jobs: a record from which the job can be repeated, and a mark that it is cleaned up."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.core.files import make_directory, remove_unfinished, write_json

_RECORD = "record.json"
_FINISHED = "published.json"


class JobArchive:
    """Files below one directory for each job. `tidemill gc` removes the directories of finished jobs.

    Args:
        root: Directory of all jobs. The local executor keeps its instances in the same directories.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, job_id: str, record: Mapping[str, Any]) -> None:
        """Store the record of a job whose instances have been removed.

        Args:
            job_id: Hexadecimal id of the job.
            record: What is needed to repeat the job.
        """
        directory = self._root / job_id
        make_directory(directory, mode=0o700)
        for each in (directory, *directory.glob("algo-*")):
            remove_unfinished(each)  # files of a service or a shim that was killed here
        write_json(directory / _RECORD, {"version": 1, **record})

    def finish(self, job_id: str, *, name: str, ended_ms: int | None) -> None:
        """Mark a job or an endpoint as cleaned up, so that later starts of the service skip it.

        Args:
            job_id: Id of the job, or of the instances of an endpoint.
            name: Name of the job or endpoint.
            ended_ms: Time of the end, in milliseconds since the epoch; None if unknown.
        """
        directory = self._root / job_id
        make_directory(directory, mode=0o700)
        write_json(directory / _FINISHED, {"version": 1, "name": name, "ended_ms": ended_ms})

    def is_finished(self, job_id: str) -> bool:
        """Return whether a job is marked as cleaned up.

        Args:
            job_id: Hexadecimal id of the job.
        """
        return os.path.exists(f"{self._root}/{job_id}/{_FINISHED}")  # noqa: PTH110 - half the time of a Path
