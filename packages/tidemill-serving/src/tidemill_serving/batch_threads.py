"""Threads that run signatures, and the order in which signatures get them.

As many runs take place at once as there are processors. A signature whose session runs operations on one thread takes
one processor; one whose operations are split over several takes two. The signature that has used the least time runs
next, so that all that wait get the same share. A quick signature need not wait for a slow one: it may use one thread
more than there are processors.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_WIDE_SLOTS = 2
_LONGEST_WAIT_S = 30.0
_OVERDUE = 0.25  # share of its expected time that a run is expected to take at least until it ends: runs vary
_QUICK = 0.25  # share of the time of the shortest run in progress, up to which a run counts as quick


@dataclass(slots=True, eq=False)
class ThreadRun:
    """A run on a thread.

    Attributes:
        runner: Gets its share of the time charged.
        work: Runs the signature; called on the thread.
        narrow: Its operations run on the calling thread alone.
        expected_s: Expected duration in seconds; 0 if it is not known.
        slots: Processors that it takes; 0 for a quick run beside slow ones.
        begin_s: Time at which it started.
    """

    runner: "Waiting"
    work: Callable[[], None]
    narrow: bool
    expected_s: float
    slots: int = 0
    begin_s: float = 0.0


class Waiting(Protocol):
    """What has runs for the threads. Used on the event loop.

    Attributes:
        used_s: Processor time that its runs have used, or more, if others used more while it had no runs.
    """

    used_s: float

    @property
    def has_thread_jobs(self) -> bool:
        """Whether jobs wait."""

    @property
    def is_ready(self) -> bool:
        """Whether a run can start."""

    @property
    def next_is_narrow(self) -> bool:
        """Whether the next run's operations run on the calling thread alone."""

    @property
    def expected_s(self) -> float:
        """Expected duration of the next run in seconds; 0 if it is not known."""

    def next_run(self) -> ThreadRun | None:
        """Return the next run, or None if there is none after all."""


class BatchThreads:
    """Threads for longer runs. All methods are called on the event loop.

    Threads whose runs use one thread each are separate from others, because libraries of kernels keep what they have
    prepared for a number of threads with the calling thread.

    Args:
        slots: Processors for runs.
        wide_slots: Processors that a run takes whose operations are split over threads.
        longest_wait_s: Time in seconds after which a request that waits is given up.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        *,
        slots: int,
        wide_slots: int = _WIDE_SLOTS,
        longest_wait_s: float = _LONGEST_WAIT_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.slots = self._free = slots
        self._wide_slots = min(wide_slots, slots)
        self.longest_wait_s = longest_wait_s
        self._clock = clock
        self._waiting: dict[Waiting, None] = {}
        self._active: dict[ThreadRun, None] = {}
        self._used_s = 0.0
        self._is_quick_free = True
        self._narrow = _QueueThreads("batch", slots + 1)
        self._wide = _QueueThreads("wide", slots // self._wide_slots + 1)
        self.jobs = 0
        """Requests that wait or run."""

    def enlist(self, runner: Waiting) -> None:
        """Start the runs of a runner as soon as processors are free.

        Args:
            runner: A runner with at least one waiting job.
        """
        if runner not in self._waiting:
            if all(run.runner is not runner for run in self._active):
                runner.used_s = max(runner.used_s, self._used_s)  # time without requests is not saved up
            self._waiting[runner] = None
        self.dispatch()

    def withdraw(self, runner: Waiting) -> None:
        """Forget a runner that has no waiting jobs any more.

        Args:
            runner: A runner, which may be in no list.
        """
        self._waiting.pop(runner, None)

    def dispatch(self) -> None:
        """Start runs while processors are free."""
        while (chosen := self._choose()) is not None:
            runner, slots = chosen
            run = runner.next_run()
            if run is not None:
                self._start(run, slots)
            if not runner.has_thread_jobs:
                self.withdraw(runner)

    def release(self, run: ThreadRun) -> None:
        """Note that a run has ended, and start others."""
        del self._active[run]
        self._free += run.slots
        if not run.slots:
            self._is_quick_free = True
        # What was expected is charged already.
        run.runner.used_s += (self._clock() - run.begin_s - run.expected_s) * max(run.slots, 1)
        self.dispatch()

    def wait_s(self) -> float:
        """Return the expected time until a processor is free; 0 if one is."""
        if self._free:
            return 0.0
        now_s = self._clock()
        return min(
            max(run.begin_s + run.expected_s - now_s, run.expected_s * _OVERDUE) for run in self._active if run.slots
        )

    def lanes(self, *, narrow: bool) -> int:
        """Return the number of runs that can take place at once.

        Args:
            narrow: Whether their operations run on the calling thread alone.
        """
        return self.slots if narrow else max(1, self.slots // self._wide_slots)

    @property
    def sharers(self) -> int:
        """Number of signatures that wait or run, at least 1."""
        return max(1, len({*self._waiting, *(run.runner for run in self._active)}))

    @property
    def in_progress(self) -> int:
        """Number of runs in progress."""
        return len(self._active)

    def close(self) -> None:
        """Make the threads exit when they are idle."""
        self._narrow.close()
        self._wide.close()

    def _choose(self) -> tuple[Waiting, int] | None:
        """Return the runner to start, and the processors that it takes."""
        ready = [runner for runner in self._waiting if runner.is_ready]
        if not ready:
            return None
        first = min(ready, key=lambda runner: runner.used_s)
        slots = 1 if first.next_is_narrow else self._wide_slots
        if slots <= self._free:
            return first, slots
        if not self._is_quick_free:
            return None
        shortest_s = min(run.expected_s for run in self._active)
        quick = next((runner for runner in ready if 0 < runner.expected_s <= shortest_s * _QUICK), None)
        return None if quick is None else (quick, 0)

    def _start(self, run: ThreadRun, slots: int) -> None:
        run.slots, run.begin_s = slots, self._clock()
        self._free -= slots
        if not slots:
            self._is_quick_free = False
        self._active[run] = None
        self._used_s = max(self._used_s, run.runner.used_s)
        run.runner.used_s += run.expected_s * max(slots, 1)
        (self._narrow if run.narrow else self._wide).put(run.work)


class _QueueThreads:
    """Threads that take work from one queue; started when there is the first work."""

    def __init__(self, name: str, size: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True) for index in range(size)
        ]
        self._is_started = False

    def put(self, work: Callable[[], None]) -> None:
        """Queue work."""
        if not self._is_started:
            self._is_started = True
            for thread in self._threads:
                thread.start()
        self._tasks.put(work)

    def close(self) -> None:
        """Make the threads exit when they are idle."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
