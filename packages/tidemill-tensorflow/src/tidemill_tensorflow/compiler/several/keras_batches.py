"""Run several batches per call of Keras's training step, if that is faster and no callback works on batches.

Between two batches `fit` runs Python: callbacks, logs, and the call of the step. With short steps, this Python takes a
large part of the time. So `fit` runs several steps of an epoch in one call, as with ``steps_per_execution``. A call
never goes past the end of an epoch, so the order of batches, remainders and ends of epochs stay the same.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, TypeVar

from tidemill_tensorflow.compiler.private_api import KERAS_2, when_keras_2
from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.variants import jit
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE, MAX_STEP_S
from tidemill_tensorflow.compiler.variants.traced import Coordinator
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Load, Times, Trial
from tidemill_tensorflow.imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    import tensorflow as tf

    from tidemill_tensorflow.compiler.several.several_runs import GroupedStep, Grouping
    from tidemill_tensorflow.compiler.variants.shapes import Shape

COUNT = 8
"""Number of batches per call."""
_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_OWN = ("ProgbarLogger", "History")
"""Keras callbacks that only show or store logs, so that fewer calls do not change their result."""
_CALLBACKS = ("keras.src.callbacks.callback", *(f"{package}.callbacks" for package in KERAS_2))
"""Modules of the base class of callbacks, in Keras 3 and in Keras 2."""
_OF_KERAS = tuple(f"{package}.callbacks" for package in KERAS_2)
_FRAMES = 4
_Steps = TypeVar("_Steps")


class EpochIterator(Protocol):
    """Keras 3's iterator over the batches of an epoch."""

    steps_per_epoch: int | None
    _num_batches: int | None


class DataHandler(Protocol):
    """Keras 2's iterator over the batches of an epoch."""

    inferred_steps: int | None
    _steps_per_execution: tf.Variable
    _step_increment: int


class BatchesCoordinator(Coordinator, Protocol):
    """Methods of the session that `KerasBatches` uses."""

    def note_batches(self, step: GroupedStep, key: str) -> None:
        """Store a decision on several batches per call, and log it."""


class KerasBatches:
    """Decide how many batches of `fit` go into one call of its step.

    Attributes:
        wanted: Number of runs that the next call of Keras's step must do.
    """

    def __init__(self, session: BatchesCoordinator) -> None:
        self.wanted = 1
        self._promised: int | None = None
        self._session = session
        self._seen: Grouping | None = None
        self._asked: Shape | None = None
        self._stored: str | None = None

    def watch(self) -> None:
        """Patch the loop over the batches of an epoch in Keras 3 and in Keras 2, now or right after the import."""
        when_imported("keras.src.backend.tensorflow.trainer", self._patch)
        when_keras_2("engine.data_adapter", self._patch_keras_2)

    def runs_wanted(self, grouping: Grouping) -> int:
        """Return how many runs this call of a step of `fit` must do, and remember the step."""
        self._seen = grouping
        if self._promised is not None:
            grouping.step.account.promise(self._promised)
            self._promised = None
        wanted, self.wanted = self.wanted, 1
        return wanted

    def _patch(self, module: ModuleType) -> None:
        original = module.TFEpochIterator._enumerate_iterator

        @functools.wraps(original)
        def enumerate_iterator(epoch_iterator: EpochIterator) -> Iterator[tuple[int, int, object]]:
            steps = original(epoch_iterator)
            fit = _fit_of("epoch_iterator", epoch_iterator)
            number = epoch_iterator.steps_per_epoch or epoch_iterator._num_batches
            self._promise(fit, number)
            if fit is None or not number or not self._may_group(fit, fit["self"].steps_per_execution):
                yield from steps
            else:
                yield from self._grouped(steps, lambda group: (group[0][0], group[-1][1], group[0][2]))

        module.TFEpochIterator._enumerate_iterator = enumerate_iterator

    def _patch_keras_2(self, module: ModuleType) -> None:
        original = module.DataHandler.steps

        def merged(data_handler: DataHandler, group: list[int]) -> int:
            data_handler._step_increment = len(group) - 1
            return group[0]

        @functools.wraps(original)
        def steps(data_handler: DataHandler) -> Iterator[int]:
            fit = _fit_of("data_handler", data_handler)
            at_once = int(data_handler._steps_per_execution.numpy())
            self._promise(fit, data_handler.inferred_steps)
            if fit is None or data_handler.inferred_steps is None or not self._may_group(fit, at_once):
                yield from original(data_handler)
            else:
                yield from self._grouped(original(data_handler), functools.partial(merged, data_handler))

        module.DataHandler.steps = steps

    def _promise(self, fit: dict[str, Any] | None, steps_per_epoch: SupportsInt | None) -> None:
        """Note how many steps `fit` will certainly run, at the start of an epoch; none if a callback may stop it."""
        self.wanted = 1  # an interrupted `fit` may have asked for more in a call that never came
        if fit is None or "epoch" not in fit:
            return
        callbacks = getattr(fit["callbacks"], "callbacks", None)
        is_certain = bool(steps_per_epoch) and callbacks is not None and not any(map(_may_stop, callbacks))
        self._promised = (fit["epochs"] - fit["epoch"]) * int(steps_per_epoch) if is_certain else 0

    def _may_group(self, fit: dict[str, Any], steps_per_execution: int) -> bool:
        model = fit["self"]
        if job.has_several_processes() or model.run_eagerly or steps_per_execution != 1:
            return False
        if jit.has_chosen_steps(model):
            return False
        # To build the model, `fit` takes a batch while its callbacks are still the script's list.
        callbacks = getattr(fit["callbacks"], "callbacks", None)
        return callbacks is not None and not any(map(_looks_at_batches, callbacks))

    def _grouped(self, steps: Iterator[_Steps], merged: Callable[[list[_Steps]], _Steps]) -> Iterator[_Steps]:
        """Yield the steps of an epoch, some of them as groups that `merged` makes one step."""
        while True:
            seen = self._seen
            trial = None if seen is None or seen.step.reason is not None else self._trial_of(seen)
            if seen is None or trial is None or (trial.decision is None and self._session.is_compiling):
                group, variant, is_timed = list(itertools.islice(steps, 1)), PLAIN, False
            else:
                variant, is_timed = trial.next(), trial.decision is None
                number = COUNT if is_timed or variant == AT_ONCE else 1
                group = list(itertools.islice(steps, number))
            if not group:
                return
            wall, cpu = time.perf_counter(), time.process_time()
            if variant == AT_ONCE and len(group) == COUNT:
                self.wanted = COUNT
                yield merged(group)
                if self.wanted != 1:  # no step of the compiler read `wanted`, so the call trained one batch only
                    self.wanted = 1
                    yield from group[1:]
                elif self._seen is not None:
                    self._seen.raise_end()
            else:
                yield from group
            if is_timed and len(group) == COUNT:
                assert seen is not None and trial is not None
                trial.record(variant, Times(time.perf_counter() - wall, time.process_time() - cpu))
                if trial.decision is not None:
                    self._session.note_batches(seen.step, _key(seen.step))

    def _trial_of(self, grouping: Grouping) -> Trial | None:
        """Return the trial of single batches against several per call, or None if the step is not ready for it."""
        step = grouping.step
        if step.at_once is not None:
            return step.at_once
        shape = step.main_shape()
        if shape is None or shape.trial is None or shape.decision is None or shape.step_s > MAX_STEP_S:
            return None
        if self._asked is not shape:
            self._asked, self._stored = shape, self._session.stored_decision(_key(step))
        decision = self._stored
        if decision is None and self._session.is_deterministic:
            decision = PLAIN
        if decision != PLAIN:
            if decision is None and not grouping.is_prepared and not step.account.may_group():
                return None
            if not grouping.prepare(COUNT):
                return None
        step.at_once = Trial((PLAIN, AT_ONCE), decision=decision, is_busy=Load().is_high)
        return step.at_once


def _key(step: GroupedStep) -> str:
    shape = step.main_shape()
    assert shape is not None
    return f"{shape.key} {COUNT} at once"


def _fit_of(name: str, value: object) -> dict[str, Any] | None:
    """Return the local variables of the `fit` that has a value in its variable `name`; None if that is not `fit`."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame.f_code.co_name == "fit" and frame.f_locals.get(name) is value:
            return dict(frame.f_locals)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def _may_stop(callback: object) -> bool:
    """Return whether a callback may end `fit` early: whether its code, or a function that it holds, mentions that."""
    held = [value for each in type(callback).__mro__ if each.__name__ != "Callback" for value in vars(each).values()]
    codes = [getattr(value, "__code__", None) for value in [*held, *vars(callback).values()]]
    return any(_mentions(code, "stop_training") for code in codes if code is not None)


def _mentions(code: CodeType, name: str) -> bool:
    """Return whether code, or a function inside of it, uses an attribute by its name or by a string."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    strings = [each for each in code.co_consts if isinstance(each, str)]
    return name in (*code.co_names, *strings) or any(_mentions(each, name) for each in inner)


def _looks_at_batches(callback: object) -> bool:
    """Return whether a callback has batch hooks. Keras's own callbacks for whole epochs do not count."""
    kind = type(callback)
    is_of_epochs = getattr(callback, "save_freq", getattr(callback, "_save_freq", None)) == "epoch"
    if kind.__module__.startswith(_OF_KERAS) and (kind.__name__ in _OWN or is_of_epochs):
        return False
    base = next((each for each in kind.__mro__ if each.__name__ == "Callback" and each.__module__ in _CALLBACKS), None)
    return (
        base is None
        or any(getattr(kind, hook) is not getattr(base, hook) for hook in _HOOKS)
        or any(hook in vars(callback) for hook in _HOOKS)
    )
