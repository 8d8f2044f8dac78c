"""Ends allocations that are no longer needed, and notices those that Slurm has ended."""

import threading
import time
from collections.abc import Callable

import structlog

from tidemill.errors import TidemillError
from tidemill.executors.slurm import commands
from tidemill.executors.slurm.allocations import Allocation, Allocations
from tidemill.executors.slurm.nodes import nodes_of
from tidemill.executors.slurm.queue import Queue, SlurmJob

_log = structlog.get_logger("tidemill.slurm")
_LOOK_S = 5.0
_GRACE_S = 30.0
"""Time for agents to end by themselves and remove their files, once their job has ended."""


class AllocationWatch:
    """Looks at the queue every few seconds while there are allocations. May be used from several threads.

    Args:
        allocations: The records; those of ended allocations are removed.
        queue: Lists Slurm's jobs.
    """

    def __init__(self, allocations: Allocations, queue: Queue) -> None:
        self._allocations = allocations
        self._queue = queue
        self._ended: Callable[[str, int, str], None] = _ignore
        self._due_s: dict[str, float] = {}
        self._told: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def begin(self, ended: Callable[[str, int, str], None]) -> None:
        """Begin to look.

        Args:
            ended: See `AgentPlacement.watch`.
        """
        self._ended = ended
        self._thread.start()

    def close(self) -> None:
        """Stop looking. What is to be cancelled is cancelled by the next service, or ends by itself."""
        self._closed.set()

    def release(self, allocation: Allocation) -> None:
        """End an allocation: now if its instances were not started, else when its agents have had time to end."""
        if not allocation.started:
            self.end(allocation)
            return
        self._due_s.setdefault(allocation.name, time.monotonic() + _GRACE_S)
        self._allocations.change(allocation, released=True)

    def end(self, allocation: Allocation) -> None:
        """Cancel an allocation now, or as soon as Slurm answers."""
        allocation = self._allocations.change(allocation, released=True)
        self._due_s[allocation.name] = 0.0
        try:
            self._cancel(allocation)
        except TidemillError as error:
            _log.warning("slurm.cancel_delayed", slurm_job=allocation.number, reason=str(error))

    def kill(self, allocation: Allocation, *, timeout_s: float) -> bool:
        """Cancel an allocation and wait for its end. Return whether all its processes have certainly ended.

        Args:
            timeout_s: Longest wait in seconds.

        Raises:
            SlurmAway: Slurm does not answer.
            SlurmRefused: Slurm refused to cancel it.
        """
        self._cancel(allocation)
        end_s = time.monotonic() + timeout_s
        while True:
            job = allocation.find(self._queue.jobs(not_before_s=time.monotonic()))
            if job is None:
                return False  # forgotten: what its nodes do is unknown
            if job.ended:
                return _has_certainly_ended(job)
            if time.monotonic() >= end_s or self._closed.wait(0.3):
                return False

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_S):
            try:
                self._look()
            except TidemillError as error:
                _log.warning("slurm.not_seen", reason=str(error))
            except Exception:  # noqa: BLE001 - a look that failed must not end the watch
                _log.exception("slurm.look_failed")

    def _look(self) -> None:
        allocations = self._allocations.all()
        if not allocations:
            return
        jobs = self._queue.jobs(not_before_s=time.monotonic())
        for allocation in allocations:
            job = allocation.find(jobs)
            if allocation.released:
                self._end_released(allocation, job)
            elif allocation.started and job is not None and job.ended:
                self._tell(allocation, job)
        self._cancel_copies(jobs)

    def _tell(self, allocation: Allocation, job: SlurmJob) -> None:
        if allocation.name not in self._told and _has_certainly_ended(job):
            self._ended(allocation.job_id, allocation.attempt, f"InternalServerError: {job}")
            self._told.add(allocation.name)

    def _end_released(self, allocation: Allocation, job: SlurmJob | None) -> None:
        if job is None or job.ended:
            self._allocations.remove(allocation)
            self._due_s.pop(allocation.name, None)
            self._told.discard(allocation.name)
        elif time.monotonic() >= self._due_s.get(allocation.name, 0.0):
            self._cancel(allocation)

    def _cancel_copies(self, jobs: tuple[SlurmJob, ...]) -> None:
        """Cancel jobs that Slurm accepted although sbatch got no answer, if another one has taken their place."""
        numbers = {each.name: each.number for each in self._allocations.all() if each.number is not None}
        for job in jobs:
            if not job.ended and numbers.get(job.name, job.number) != job.number:
                commands.run("scancel", str(job.number))

    def _cancel(self, allocation: Allocation) -> None:
        number = allocation.number
        if number is None:  # sbatch has not answered, but Slurm may have accepted the job
            job = allocation.find(self._queue.jobs(not_before_s=time.monotonic()))
            if job is None:
                return
            number = job.number
        commands.run("scancel", "--quiet", str(number))


def _has_certainly_ended(job: SlurmJob) -> bool:
    """Return whether no process of an ended job is left on any node.

    Slurm also counts a job as ended on a node with which it has lost contact, where the job may still run.
    """
    if job.state == "NODE_FAIL":
        return False
    return not job.nodes or all(node.responds for node in nodes_of(job.nodes))


def _ignore(job_id: str, attempt: int, reason: str) -> None:
    pass
