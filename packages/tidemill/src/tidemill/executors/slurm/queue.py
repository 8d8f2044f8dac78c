"""The jobs of this user in Slurm's queue, as squeue lists them. Slurm forgets ended jobs after some minutes."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.executors.slurm import commands

NAME_PREFIX = "tidemill-"
FORMAT = "%i|%T|%r|%N|%j"
_WAITING = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)
_HAS_NODES = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"))
AGAIN = frozenset(("BOOT_FAIL", "COMPLETED", "NODE_FAIL", "PREEMPTED", "REVOKED"))
"""Ends of an allocation, before the instances were started in it, after which another allocation is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as squeue shows it.

    Attributes:
        number: Slurm's id of the job.
        state: Long name of the state, e.g. ``PENDING``.
        reason: Why the job waits or has ended, in Slurm's words; ``None`` if Slurm gives none.
        nodes: Its nodes in Slurm's compact form, e.g. ``node[1-3,7]``; empty before the start.
    """

    number: int
    state: str
    reason: str
    nodes: str
    name: str

    @property
    def waits(self) -> bool:
        """Whether the job has no nodes yet that can run something."""
        return self.state in _WAITING

    @property
    def ended(self) -> bool:
        """Whether the job is over on all nodes that Slurm can reach."""
        return not self.waits and self.state not in _HAS_NODES

    def __str__(self) -> str:
        reason = "" if self.reason in ("", "None") else f" ({self.reason})"
        return f"Slurm's job {self.number} is {self.state}{reason}"


def parse(listing: str) -> tuple[SlurmJob, ...]:
    """Return the jobs of tidemill in a listing by squeue in `FORMAT`.

    Args:
        listing: Output of squeue without a header.
    """
    jobs = []
    for line in listing.splitlines():
        number, state, reason, nodes, name = line.split("|", 4)
        if name.startswith(NAME_PREFIX) and number.isdigit():
            jobs.append(SlurmJob(number=int(number), state=state, reason=reason, nodes=nodes, name=name))
    return tuple(jobs)


class Queue:
    """Lists the jobs. One listing serves all threads that ask at about the same time.

    Args:
        now_s: Returns the monotonic time in seconds.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._jobs: tuple[SlurmJob, ...] = ()
        self._asked_s = float("-inf")

    def jobs(self, *, not_before_s: float) -> tuple[SlurmJob, ...]:
        """Return the jobs by a listing that was requested at ``not_before_s`` or later.

        Raises:
            SlurmAway: The controller does not answer.
        """
        with self._lock:
            if self._asked_s < not_before_s:
                asked_s = self._now_s()
                user = f"--user={os.getuid()}"
                try:
                    listing = commands.run("squeue", "--noheader", user, "--states=all", f"--format={FORMAT}")
                except commands.SlurmRefused as error:  # of an unknown user, e.g. after a restart without its records
                    raise commands.SlurmAway(str(error)) from error
                self._jobs, self._asked_s = parse(listing), asked_s
            return self._jobs
