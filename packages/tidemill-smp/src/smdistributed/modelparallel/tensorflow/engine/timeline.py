"""Timelines: what each rank did when, and its idle time.

With a timeline, traced steps contain ops that read the clock: around the receives, the segment and the sends of each
task. At the end of a step the ranks of a replica send their time stamps to the rank of partition 0, which keeps those
of the last steps, and writes them as Chrome-trace JSON for ui.perfetto.dev, chrome://tracing and TensorBoard's trace
viewer. Without a timeline no ops are added.

Time stamps of several machines are as comparable as the clocks of the machines.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.session import current

if TYPE_CHECKING:
    from smdistributed.modelparallel.tensorflow.engine.plan import Plan

STAMPS_PER_TASK = 3
"""Before the receives, before the call, and after the call. The sends end when the next task begins."""
STEPS_KEPT = 50

_log = logging.getLogger("smdistributed.modelparallel")
_active: Timeline | None = None


@dataclass(frozen=True)
class ActivitySpan:
    """One activity of a rank."""

    partition: int
    rank: int
    what: str
    """`compute`, `wait` or `send`."""
    kind: str
    """Kind of the segment: `forward`, `backward`, `forward and backward`; empty after the last task."""
    level: int
    microbatch: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class RecordedStep:
    """One step on all ranks of a replica."""

    spans: tuple[ActivitySpan, ...]
    num_partitions: int
    num_microbatches: int

    @property
    def bubble(self) -> float:
        """Idle share of the ranks' time, from the start of the first segment to the end of the last."""
        busy = [span for span in self.spans if span.what == "compute"]
        span_s = max(span.end_s for span in busy) - min(span.begin_s for span in busy)
        return max(0.0, 1.0 - sum(s.end_s - s.begin_s for s in busy) / (span_s * self.num_partitions))

    @property
    def ideal(self) -> float:
        """See `ideal_bubble`."""
        return ideal_bubble(self.num_partitions, self.num_microbatches)


def ideal_bubble(num_partitions: int, num_microbatches: int) -> float:
    """Return the idle share of a pipeline with equal partitions and free communication, from 0 to 1.

    Args:
        num_partitions: At least 1.
        num_microbatches: At least 1.
    """
    return (num_partitions - 1) / (num_microbatches + num_partitions - 1)


@dataclass
class Timeline:
    """The recorded last steps; usable as a context manager, which calls `stop` at its end."""

    path: Path
    """File that `save` writes."""
    steps: deque[RecordedStep] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    """Filled on the rank of partition 0."""

    def __enter__(self) -> Timeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop recording steps that are traced from now on, and save."""
        global _active
        if _active is self:
            _active = None
        self.save()

    def record(self, plan: Plan, ranks: Sequence[int], stamps: Sequence[Tensor]) -> None:
        """Add an op that records the time stamps of a step.

        Args:
            ranks: Global rank of each partition.
            stamps: The time stamps of each partition, in seconds.
        """
        num_microbatches = len({task.microbatch for task in plan.schedule.tasks})

        def keep(*readings: Any) -> None:
            spans = [
                span
                for partition, values in enumerate(readings)
                for span in _spans(plan, partition, ranks[partition], np.asarray(values).tolist())
            ]
            self.steps.append(RecordedStep(tuple(spans), len(ranks), num_microbatches))

        tf.numpy_function(keep, list(stamps), [])

    def save(self) -> None:
        """Write the file on the rank of partition 0, and log the bubble."""
        if not self.steps:
            return
        document = {"traceEvents": list(_events(self.steps)), "displayTimeUnit": "ms", "otherData": self.summary()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(document))
        temporary.replace(self.path)
        summary = self.summary()
        bubble, ideal = summary["bubble"], summary["ideal"]
        _log.info("smp.timeline path=%s steps=%d bubble=%.3f ideal=%.3f", self.path, summary["steps"], bubble, ideal)

    def summary(self) -> dict[str, Any]:
        """Return `steps` (their number), `bubble` (median over the steps) and `ideal`, on the rank of partition 0."""
        last = self.steps[-1] if self.steps else None
        alike = [one for one in self.steps if last is not None and len(one.spans) == len(last.spans)]
        return {
            "steps": len(self.steps),
            "bubble": statistics.median(one.bubble for one in alike) if alike else 0.0,
            "ideal": last.ideal if last else 0.0,
            "partitions": last.num_partitions if last else 0,
            "microbatches": last.num_microbatches if last else 0,
        }


def timeline(path: str | os.PathLike[str]) -> Timeline:
    """Record a timeline of the steps that are traced from now on. All ranks call it, before the first step.

        with smp.timeline("timeline.json"):
            for x, y in batches:
                train_step(x, y)

    Args:
        path: The Chrome-trace JSON file that the first rank of the replica writes at the end of the block, in `stop`,
            and in `save`. Replicas other than the first append their number to the name.

    Returns:
        The timeline. Its steps are recorded on the rank of partition 0 only.

    Raises:
        SMPUsageError: If a timeline is already active.
    """
    global _active
    if _active is not None:
        raise SMPUsageError(f"there is a timeline already, for {_active.path}: end it with its stop() first")
    _active = Timeline(_path_of_replica(path))
    return _active


def active_timeline() -> Timeline | None:
    """Return the active timeline, starting that of the parameter `timeline` if necessary; None without one."""
    global _active
    path = current().config.timeline
    if _active is None and path is not None and path not in _begun:
        _begun.add(path)
        _active = timeline(path)
        atexit.register(_active.save)
    return _active


_begun: set[str] = set()


def _path_of_replica(path: str | os.PathLike[str]) -> Path:
    replica = current().placement.dp_rank
    given = Path(path)
    return given if replica == 0 else given.with_name(f"{given.stem}.replica-{replica}{given.suffix}")


def _spans(plan: Plan, partition: int, rank: int, readings: Sequence[float]) -> Iterator[ActivitySpan]:
    segments = plan.cut.of(partition)
    tasks = plan.schedule.of(partition)
    for place, task in enumerate(tasks):
        begin, called, ended, sent = readings[STAMPS_PER_TASK * place :][:4]
        kind = segments[task.level].kind
        for what, start, end in (("wait", begin, called), ("compute", called, ended), ("send", ended, sent)):
            yield ActivitySpan(partition, rank, what, kind, task.level, task.microbatch, start, end)
    last, done = readings[-2:]
    yield ActivitySpan(partition, rank, "wait", "", -1, -1, last, done)


_COLORS = {"forward": "good", "backward": "thread_state_running", "forward and backward": "rail_animation"}
_ROWS = {"compute": 0, "wait": 1, "send": 2}


def _events(steps: Sequence[RecordedStep]) -> Iterator[dict[str, Any]]:
    named: set[int] = set()
    for number, step in enumerate(steps):
        for span in step.spans:
            if span.rank not in named:
                named.add(span.rank)
                yield from _names(span)
            yield {
                "ph": "X",
                "pid": span.rank,
                "tid": _ROWS[span.what],
                "name": _title(span),
                "cat": span.what,
                "ts": span.begin_s * 1e6,
                "dur": max(0.0, span.end_s - span.begin_s) * 1e6,
                **({"cname": _COLORS[span.kind]} if span.what == "compute" else {}),
                "args": {
                    "partition": span.partition,
                    "level": span.level,
                    "microbatch": span.microbatch,
                    "pass": span.kind,
                    "step": number,
                },
            }


def _names(span: ActivitySpan) -> Iterator[dict[str, Any]]:
    yield _metadata(span.rank, 0, "process_name", f"rank {span.rank} (partition {span.partition})")
    for what, row in _ROWS.items():
        yield _metadata(span.rank, row, "thread_name", what)


def _metadata(rank: int, row: int, name: str, value: str) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": row, "name": name, "args": {"name": value}}


def _title(span: ActivitySpan) -> str:
    if span.level < 0:
        return "wait for results"
    if span.what == "wait":
        return f"wait for input of {span.level}, microbatch {span.microbatch}"
    if span.what == "send":
        return f"send of {span.level}, microbatch {span.microbatch}"
    return f"{span.kind} {span.level}, microbatch {span.microbatch}"
