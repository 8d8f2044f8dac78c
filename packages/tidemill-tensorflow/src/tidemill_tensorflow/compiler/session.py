"""State of the training compiler in one process: functions, background thread, log lines and report."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import config

from tidemill_tensorflow.compiler import report
from tidemill_tensorflow.compiler.background import Background, awaited, without_garbage_collection
from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.several.keras_batches import COUNT, KerasBatches
from tidemill_tensorflow.compiler.several.pipeline_steps import PipelineStep
from tidemill_tensorflow.compiler.several.recognition import Agreements, trains
from tidemill_tensorflow.compiler.several.shared_steps import ReducingStep
from tidemill_tensorflow.compiler.steps import LocalStep
from tidemill_tensorflow.compiler.variants import earlier_jobs, jit
from tidemill_tensorflow.compiler.variants.decisions import DecisionStore
from tidemill_tensorflow.compiler.variants.payback import Ledger
from tidemill_tensorflow.compiler.variants.trials import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.several.several_runs import GroupedStep, Grouping
    from tidemill_tensorflow.compiler.variants.shapes import Shape
    from tidemill_tensorflow.compiler.variants.traced import TracedStep


class CompilerSession:
    """Find the training steps among the traced functions, and decide how each one runs.

    Args:
        deterministic: Whether to use stored decisions or plain, and never decide by time.
        report_dir: Directory of the report; None writes no report.
        cache_dir: Directory of the decisions that later jobs reuse; None stores no decisions.
        max_cost: Share of the training's time that compiling may cost (see `Ledger`).
    """

    def __init__(
        self, *, deterministic: bool, report_dir: Path | None, cache_dir: Path | None, max_cost: float
    ) -> None:
        self.steps: list[TracedStep] = []
        self.advice: list[str] = []
        self.ledger = Ledger(max_cost)
        self._store = DecisionStore(cache_dir) if cache_dir is not None else None
        self._deterministic = deterministic
        self._report_dir = report_dir
        self._known: weakref.WeakKeyDictionary[ConcreteFunction, TracedStep | None] = weakref.WeakKeyDictionary()
        self._gone: deque[TracedStep] = deque()
        self._background = Background()
        self._lock = threading.Lock()
        self._decisions: dict[str, str] = {}
        self._agreements = Agreements()
        self.batches = KerasBatches(self)
        self._waiting = 0
        self._ended = False

    @property
    def is_compiling(self) -> bool:
        """Whether the background thread is compiling. Times that are measured meanwhile must not count."""
        return self._waiting > 0

    @property
    def is_deterministic(self) -> bool:
        """Whether the options or the script's TensorFlow settings require the same results in every run."""
        return self._deterministic or config.is_op_determinism_enabled()

    def step_of(self, concrete: ConcreteFunction) -> TracedStep | None:
        """Return the step of a traced function, or None if the function is not a training step."""
        try:
            return self._known[concrete]
        except KeyError:
            pass
        step = None
        if not self._ended and trains(concrete) and not jit.is_chosen_by_script(concrete):
            self._release_gone()
            step = self._new_step(concrete)
            self.steps.append(step)
            # A finalizer may run in the middle of any other code, so that it must not take locks.
            weakref.finalize(concrete, self._gone.append, step)
        self._known[concrete] = step
        return step

    def _release_gone(self) -> None:
        """Free what belongs to functions that the script has deleted, as a search over models does."""
        while self._gone:
            step = self._gone.popleft()
            self.run_in_background(step, step.release)

    def _new_step(self, concrete: ConcreteFunction) -> TracedStep:
        if not job.has_several_processes():
            return LocalStep(concrete, self, begins_with_xla=jit.is_chosen_by_keras(concrete))
        is_smp, reason = job.model_parallelism() is not None, job.why_plain()
        agreement = self._agreements.on(concrete) if reason is None else None
        if agreement is not None:
            return (PipelineStep if is_smp else ReducingStep)(concrete, self, agreement)
        if is_smp and reason is None:
            reason = "it calls no smp.step that trains, or no other rank calls it, in a job of several ranks of smp"
        step = LocalStep(concrete, self, begins_with_xla=not is_smp and jit.is_chosen_by_keras(concrete))
        if reason is not None:
            step.give_up(reason)
        return step

    def advise(self, text: str) -> None:
        """Write advice for the script to the log and the report."""
        self.advice.append(text)
        self.note(text)

    def restart_random_ops(self) -> None:
        """Restart the sequences of stateful random ops. Called when the script sets a seed."""
        for step in self.steps:
            if isinstance(step, LocalStep):
                step.draws.restart()

    def stored_decision(self, key: str) -> str | None:
        """Return the variant that an earlier job chose."""
        return self._store.read(key) if self._store is not None else None

    def decision_of_replica(self, key: str) -> str | None:
        """Return the variant that another trace of the same step chose in this process."""
        return self._decisions.get(key)

    def decision_of_first(self, key: str) -> str | None:
        """Return the variant that rank 0 chose. None on rank 0 itself, or if no decision of rank 0 can be read."""
        if self._store is None or not job.has_several_processes() or job.is_first():
            return None
        return self._store.read(key)

    def note_decision(self, step: TracedStep, shape: Shape) -> None:
        """Store a decision, log it, and update the report."""
        assert shape.trial is not None and shape.trial.decision is not None
        self._decisions[shape.key] = shape.trial.decision
        if self._store is not None and (job.is_first() or not job.has_several_processes()):
            self._store.write(shape.key, shape.trial.decision)
            if job.has_several_processes() and step.key is not None and shape.trial.decision != PLAIN:
                self._store.write(step.key, earlier_jobs.BY_SHAPE)
        self.note(f"{step.name} {report.brief(shape.shapes)}: {shape.trial.decision} ({report.times(shape.trial)})")
        self._tell_later_jobs()
        self._write_report()

    def runs_wanted(self, grouping: Grouping) -> int:
        """Return how many runs this call of the step of `fit` must do: more than 1 only if `fit` groups batches."""
        return self.batches.runs_wanted(grouping)

    def note_batches(self, step: GroupedStep, key: str) -> None:
        """Store a decision on several batches per call, log it, and update the report."""
        trial = step.at_once
        assert trial is not None and trial.decision is not None
        if self._store is not None:
            self._store.write(key, trial.decision)
        chosen = "1 batch" if trial.decision == PLAIN else f"{COUNT} batches"
        times = report.times(trial, runs=COUNT, names=("1 in a call", f"{COUNT} in a call"))
        self.note(f"{step.name}: {chosen} in a call (per batch: {times})")
        self._tell_later_jobs()
        self._write_report()

    def note_fallback(self, step: TracedStep, reason: str, *, how: str = "plain") -> None:
        """Log that a function runs plain, or `how` else it runs, and why; update the report."""
        self.note(f"{step.name} runs {how}: {reason}")
        self._write_report()

    def note(self, text: str) -> None:
        """Write a line to the log. After the end, what still compiles writes none."""
        if not self._is_dropped():
            sys.stderr.write(f"training compiler: {text}\n")

    def _is_dropped(self) -> bool:
        return self._ended and threading.current_thread() is not threading.main_thread()

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``report.json``."""
        return report.as_dict(self.steps, advice=self.advice, deterministic=self.is_deterministic)

    def wait_for_background(self) -> None:
        """Wait until the background thread has finished all work submitted so far."""
        with awaited():
            self._background.submit(lambda: None).wait()

    def end(self) -> None:
        """Write the report and the summary line, and drop what still compiles. Later calls have no effect."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._background.close()
        self._tell_later_jobs()
        self.note(report.summary(self.steps, advice=self.advice))
        self._write_report()

    def run_in_background(self, step: TracedStep, work: Callable[[], None], *, wait: bool = False) -> None:
        """Run work in the background thread. If the work fails, the step runs plain. In deterministic runs, wait."""

        def run() -> None:
            begin = self.ledger.clock()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the job must go on, plain
                step.give_up(f"{type(error).__name__}: {error}")
            finally:
                step.account.spend(self.ledger.clock() - begin)
                with self._lock:
                    self._waiting -= 1

        with self._lock:
            if self._ended:
                return
            self._waiting += 1
        done = self._background.submit(run)
        if wait or self.is_deterministic:
            with awaited(), without_garbage_collection():
                done.wait()

    def _tell_later_jobs(self) -> None:
        """Store what this job knows about whole functions. Decisions that it has read count too, at its end."""
        if self._store is not None and not job.has_several_processes() and not self.is_deterministic:
            earlier_jobs.record(self._store, [step for step in self.steps if isinstance(step, LocalStep)])

    def _write_report(self) -> None:
        if self._report_dir is None or self._is_dropped():
            return
        try:
            report.write(self.as_dict(), self._report_dir)
        except OSError as error:
            self.note(f"the report cannot be written: {error}")
