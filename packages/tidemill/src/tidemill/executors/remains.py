"""The files that instances leave behind on this machine.

Scripts can make their removal fail, e.g. by a process that still writes. It is then tried again later.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from tidemill._shared.trees import remove_tree
from tidemill.core.instances import InstanceRef
from tidemill.instance.directory import InstanceDirectory

_log = structlog.get_logger("tidemill.executor")
_WITHDRAWN = ".withdrawn"


class Remains:
    """Removes the files of jobs below a state directory.

    Args:
        kill: Kills all processes of an instance.
    """

    def __init__(self, state_dir: Path, *, kill: Callable[[InstanceRef], None]) -> None:
        self._state_dir = state_dir
        self._kill = kill
        self._delayed: set[str] = set()

    @property
    def delayed(self) -> list[str]:
        """Ids of the jobs whose files could not be removed."""
        return list(self._delayed)

    def remove_job(self, job_id: str) -> bool:
        """Remove what a job filled. Return whether nothing is left.

        Args:
            job_id: Hexadecimal id of the job.
        """
        trees: list[Path] = []
        for directory in InstanceDirectory.all_below(self._state_dir, job_id):
            withdrawn = directory.path.parent.glob(f".*{_WITHDRAWN}")  # left by a killed service
            trees += [*directory.trees, directory.shared, *withdrawn]
        fault = self._remove(job_id, trees)
        if fault and job_id not in self._delayed:
            _log.warning("clean_up.delayed", job_id=job_id, reason=fault)
        (self._delayed.add if fault else self._delayed.discard)(job_id)
        return not fault

    def remove_attempt(self, directory: InstanceDirectory) -> None:
        """Remove what one attempt filled. What cannot be removed is left until the end of the job."""
        job_id = directory.ref.job_id
        if fault := self._remove(job_id, directory.trees):
            _log.warning("clean_up.delayed", job_id=job_id, reason=fault)

    def withdraw(self, directory: InstanceDirectory) -> bool:
        """Remove the directory of an instance, so that it counts as never launched.

        Returns:
            Whether the job has no other instance.
        """
        path, job_id = directory.path, directory.ref.job_id
        with contextlib.suppress(OSError):  # the end of the job tries again
            # Renamed first: the next service must not take a partly removed directory for an instance.
            remove_tree(path.replace(path.with_name(f".{secrets.token_hex(8)}{_WITHDRAWN}")))
        if any(InstanceDirectory.all_below(self._state_dir, job_id)):
            return False
        with contextlib.suppress(OSError):
            remove_tree(directory.shared)
        return True

    def _remove(self, job_id: str, trees: Iterable[Path]) -> str:
        """Remove directories that a job filled. Return the first error; empty if all are removed."""
        fault = ""
        for tree in trees:
            try:
                remove_tree(tree)
            except OSError:
                for directory in InstanceDirectory.all_below(self._state_dir, job_id):
                    self._kill(directory.ref)  # a process that began while the others were killed was still writing
                try:
                    remove_tree(tree)
                except OSError as error:
                    fault = fault or f"{tree}: {error}"
        return fault
