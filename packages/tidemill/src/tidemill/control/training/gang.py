"""Combine the reports of all instances of a training job's attempt: its phases, whether it is over, how it ended.

Everything is computed from the reports and nothing is stored, so a restarted service gets the same results.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemill.instance.status import LOST, InstanceExit, InstanceOutcome, InstanceStatus, Phase, StopReason

_REASON_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Gang:
    """The reports of all instances of an attempt, ``algo-1`` first.

    Attributes:
        statuses: The status of each instance, in the same order.
    """

    hosts: Sequence[str]
    statuses: Sequence[InstanceStatus]

    @property
    def over(self) -> bool:
        """Whether all instances have ended."""
        return not any(status.running for status in self.statuses)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that every running instance has reached, each with the time of the last one to reach it.

        Ended instances do not count, so they do not delay the phases of the others.
        """
        running = [status for status in self.statuses if status.running] or list(self.statuses)
        reached = []
        for phase in max(running, key=lambda status: len(status.phases)).phases:
            same = [[each for each in status.phases if each.status == phase.status] for status in running]
            if all(same):
                reached.append(replace(phase, started_ms=max(each[0].started_ms for each in same)))
        return tuple(reached)

    @property
    def peers_must_stop(self) -> StopReason | None:
        """Why the remaining instances must be stopped; None if they may continue."""
        if self._first_failure is not None:
            return StopReason.PEER_FAILED
        ends = [status.exit for status in self.statuses if status.exit is not None]
        if any(ended.outcome is InstanceOutcome.MAX_RUNTIME for ended in ends):
            return StopReason.MAX_RUNTIME
        return None

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the instances that were lost.

        They ended without a report, e.g. since they were killed from outside, or reported that they lost what they
        need, such as the network of the job.
        """
        pairs = zip(self.hosts, self.statuses, strict=True)
        return tuple(host for host, status in pairs if _is_lost(status))

    @property
    def was_cut_short(self) -> bool:
        """Whether an instance was lost, or stopped before its script had ended."""
        stopped = any(
            status.exit is not None and status.exit.outcome is InstanceOutcome.STOPPED for status in self.statuses
        )
        return stopped or bool(self.lost)

    def end(self) -> InstanceExit | None:
        """Return how the job as a whole ended, with the archives of ``algo-1``; None if no instance reported its end.

        A job fails if any instance fails. Its reason is that of the instance that failed first.
        """
        ends = [status.exit for status in self.statuses if status.exit is not None]
        if not ends:
            return None
        first = self.statuses[0].exit
        failed = self._first_failure
        base = first or ends[0]
        outcome = base.outcome
        if failed is not None:
            outcome = InstanceOutcome.FAILED
        else:
            for worse in (InstanceOutcome.MAX_RUNTIME, InstanceOutcome.STOPPED):
                if any(ended.outcome is worse for ended in ends):
                    outcome = worse
                    break
        artifacts = dict(first.artifacts) if first is not None else {}
        if outcome is InstanceOutcome.FAILED:
            artifacts.pop("model", None)
        started = [ended.training_started_ms for ended in ends if ended.training_started_ms is not None]
        stopped = [ended.training_ended_ms for ended in ends if ended.training_ended_ms is not None]
        return replace(
            base,
            outcome=outcome,
            failure=self._reason(failed) if failed is not None else "",
            ended_ms=max(ended.ended_ms for ended in ends),
            training_started_ms=min(started, default=None),
            training_ended_ms=max(stopped, default=None),
            artifacts=artifacts,
            peak_rss_bytes=max(ended.peak_rss_bytes for ended in ends),
        )

    @property
    def loss(self) -> str:
        """The FailureReason if no instance reported its end: that of the first lost instance."""
        return self._reason(self._first_failure or 0)

    @property
    def _first_failure(self) -> int | None:
        """Index of the instance that reported a failure first, else of a lost instance; None if no instance failed."""
        reported = [
            (status.exit.training_ended_ms or status.exit.ended_ms, index)
            for index, status in enumerate(self.statuses)
            if status.exit is not None and status.exit.outcome is InstanceOutcome.FAILED
        ]
        lost = [index for index, status in enumerate(self.statuses) if status.exit is None and not status.running]
        # The loss of an instance may be the cause of the reported failures. But no report says when an instance was
        # lost, so a reported failure takes precedence: it may be in the user's code, where the user can repair it.
        return min(reported)[1] if reported else (lost[0] if lost else None)

    def _reason(self, index: int) -> str:
        ended = self.statuses[index].exit
        reason = ended.failure if ended is not None else self.statuses[index].loss or LOST
        if len(self.statuses) == 1:
            return reason
        where = f", instance: {self.hosts[index]}"
        return reason[: _REASON_LIMIT - len(where)] + where


def _is_lost(status: InstanceStatus) -> bool:
    return not status.running if status.exit is None else status.exit.lost
