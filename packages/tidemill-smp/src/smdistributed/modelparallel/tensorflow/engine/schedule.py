"""Schedules the segments of all microbatches on all ranks.

Every rank simulates the whole pipeline, and extracts its own part from the same schedule. So all ranks emit their sends
and receives in one global order, which cannot deadlock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One segment, as input of the schedule."""

    partition: int
    level: int
    needs: tuple[tuple[int, int], ...]
    """(partition, level) of the segments that must run before, for the same microbatch."""
    work: float
    """Estimated or measured time; only ratios matter."""


@dataclass(frozen=True)
class Task:
    """One segment of one microbatch."""

    partition: int
    level: int
    microbatch: int
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """The simulated run of a step."""

    tasks: tuple[Task, ...]
    """Tasks in the order of their start."""
    span: float
    """End of the last task."""

    def of(self, partition: int) -> tuple[Task, ...]:
        """Return the tasks of one partition, in order.

        Args:
            partition: From 0.
        """
        return tuple(task for task in self.tasks if task.partition == partition)

    def bubble(self, num_partitions: int) -> float:
        """Return the idle share of the ranks' time, from 0 to 1.

        Args:
            num_partitions: Ranks of the replica.
        """
        busy = sum(task.end - task.start for task in self.tasks)
        return 1.0 - busy / (self.span * num_partitions) if self.span else 0.0


def make_schedule(
    stages: Sequence[Stage],
    *,
    num_partitions: int,
    num_microbatches: int,
    pipeline: str,
    active_microbatches: int | None = None,
) -> Schedule:
    """Simulate list scheduling of all tasks.

    Args:
        stages: The segments of all partitions.
        num_partitions: Number of partitions, P.
        pipeline: `interleaved`: later segments of the step have priority, so that backward passes run as soon as they
            can, and partition p (in pipeline order) has at most P - p microbatches alive. `simple`: earlier segments
            have priority: all forward passes, then all backward passes; all microbatches may be alive.
        active_microbatches: Overrides the largest number of microbatches alive on any partition.
    """
    simulation = _Simulation(stages, num_partitions, num_microbatches, pipeline, active_microbatches)
    return simulation.run()


class _Simulation:
    def __init__(
        self,
        stages: Sequence[Stage],
        num_partitions: int,
        num_microbatches: int,
        pipeline: str,
        active_microbatches: int | None,
    ) -> None:
        self.stages = {(stage.partition, stage.level): stage for stage in stages}
        self.lines = [
            sorted(level for p, level in self.stages if p == partition) for partition in range(num_partitions)
        ]
        self.num_microbatches = num_microbatches
        self.latest_first = pipeline != "simple"
        self.caps = _caps(self.lines, num_microbatches, pipeline, active_microbatches)
        self.next = dict.fromkeys(self.stages, 0)
        self.ends: dict[tuple[int, int, int], float] = {}
        self.free = [0.0] * num_partitions
        self.tasks: list[Task] = []

    def run(self) -> Schedule:
        total = len(self.stages) * self.num_microbatches
        while len(self.tasks) < total:
            partition, level, start = min(self._candidates(), key=lambda c: (c[2], c[0]))
            self._place(partition, level, start)
        return Schedule(tuple(self.tasks), max(self.free, default=0.0))

    def _candidates(self) -> list[tuple[int, int, float]]:
        """Return the next task of each partition that has one, and when it can start."""
        found = []
        for partition, line in enumerate(self.lines):
            ready = [(self._ready_at(partition, level), level) for level in line]
            times = [(max(at, self.free[partition]), level) for at, level in ready if at is not None]
            if times:
                first = min(times)[0]
                levels = [level for at, level in times if at == first]
                found.append((partition, max(levels) if self.latest_first else min(levels), first))
        return found

    def _ready_at(self, partition: int, level: int) -> float | None:
        """Return when the next microbatch of a segment can start; None if that is not known yet."""
        microbatch = self.next[partition, level]
        if microbatch >= self.num_microbatches or not self._may_open(partition, level, microbatch):
            return None
        ends = []
        for needed in self.stages[partition, level].needs:
            end = self.ends.get((*needed, microbatch))
            if end is None:
                return None
            ends.append(end)
        return max(ends, default=0.0)

    def _may_open(self, partition: int, level: int, microbatch: int) -> bool:
        line = self.lines[partition]
        if level != line[0]:
            return True
        return microbatch - self.next[partition, line[-1]] < self.caps[partition]

    def _place(self, partition: int, level: int, start: float) -> None:
        microbatch = self.next[partition, level]
        end = start + self.stages[partition, level].work
        self.next[partition, level] += 1
        self.ends[partition, level, microbatch] = end
        self.free[partition] = end
        self.tasks.append(Task(partition, level, microbatch, start, end))


def _caps(
    lines: Sequence[Sequence[int]], num_microbatches: int, pipeline: str, active_microbatches: int | None
) -> Mapping[int, int]:
    """Return how many microbatches each partition may have begun and not finished."""
    order = sorted(range(len(lines)), key=lambda partition: (lines[partition][:1] or [0], partition))
    most = {p: len(lines) - place if pipeline != "simple" else num_microbatches for place, p in enumerate(order)}
    if active_microbatches is not None:
        most = dict.fromkeys(most, active_microbatches)
    return {partition: max(1, cap) for partition, cap in most.items()}
