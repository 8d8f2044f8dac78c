"""Traced training functions in which processes communicate: all processes run the same variant.

Ops that communicate, and ops that depend on them, are never compiled. The compiled variant has three parts: TensorFlow
runs the input, XLA runs the gradients, and TensorFlow runs the reduction and the updates. The plain variant is the
script's own function, in which communication may overlap with the backward pass. Therefore trials time whole calls,
not only XLA's part. The processes switch together (`agreement`), and the times of rank 0 decide.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

import tensorflow as tf

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.graphs.nodes import NotCompilable, nodes_of
from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart
from tidemill_tensorflow.compiler.variants.earlier_jobs import key_of
from tidemill_tensorflow.compiler.variants.shapes import XLA, Shape
from tidemill_tensorflow.compiler.variants.traced import NOT_STORED, TracedStep, first_lines
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Load, Times, Trial, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction
    from tidemill_tensorflow.compiler.several.agreement import Agreement, Ballot
    from tidemill_tensorflow.compiler.variants.traced import Coordinator, StepCall

LATE = "the processes of the job had decided already when this function was first called"
REFUSED = "another process of the job cannot compile it, or did not in time"
_Split = TypeVar("_Split")
"""What the variants are built of."""


class SharedStep(TracedStep, Generic[_Split]):
    """Traced training function of which all processes run the same variant, for one combination of shapes.

    The account of rank 0 decides when all ranks begin. Functions with stateful random ops stay plain.
    """

    def __init__(self, concrete: ConcreteFunction, session: Coordinator, agreement: Agreement) -> None:
        super().__init__(concrete, session)
        self._session = session
        self._is_prepared = False
        self._agreement = agreement
        self._ballot = agreement.join()
        self._parts: _Split | None = None
        self._shape: Shape | None = None
        self._turns = 0
        self._has_adopted = False
        if self._ballot is None:
            self._give_up(LATE)

    def run(self, call: StepCall) -> object:
        """Run one step, and return the function's results."""
        self._agreement.advance()
        begin = self._clock()
        result = self._run(call)
        self.account.train(self._clock() - begin)
        return result

    def _run(self, call: StepCall) -> object:
        self.runs += 1
        ballot = self._ballot
        if ballot is None:
            return call.run_as_traced()
        if ballot.decision is not None and not self._has_adopted:
            self._adopt(ballot.decision)
        if not self._is_prepared and self._may_prepare(call.concrete, ballot):
            self._is_prepared = True
            self._session.run_in_background(self, lambda: self._prepare(call.concrete))
        parts = self._parts
        if self.reason is not None or parts is None or ballot.decision == PLAIN or not ballot.all_prepared:
            return self._run_plain(call)
        if self._shape is None:
            return self._run_first(parts, call.slots())
        if not ballot.all_compiled or self._shape.reason is not None:
            return self._run_plain(call)

        def run_variant(variant: str) -> object:
            return self._run_plain(call) if variant == PLAIN else self._run_fast(variant, parts, call)

        return run_variant(ballot.decision) if ballot.decision is not None else self._run_trial(run_variant)

    @property
    def has_begun(self) -> bool:
        """Whether this process has begun to split the function."""
        return self._is_prepared

    def _may_prepare(self, concrete: ConcreteFunction, ballot: Ballot) -> bool:
        """Return whether to split the function: at once if that may cost anything, else when rank 0 begins."""
        if self.key is None:
            self.key = key_of(concrete)
            self.account.size = sum(1 for _ in nodes_of(concrete))
            is_known = self._session.stored_decision(self.key) is not None
            ballot.is_due = is_known or self._session.is_deterministic or self.account.is_unlimited
            return self.account.is_unlimited or self._session.is_deterministic
        ballot.is_due = ballot.is_due or self.account.may_begin()
        return ballot.begins

    def give_up(self, reason: str) -> None:
        """Run the function plain from now on. The other processes learn of it at the next meeting."""
        if self._ballot is not None:
            self._ballot.is_failed = True
        self._give_up(reason)

    def release(self) -> None:
        """Free graphs and compiled code when the script's function is gone. What the report needs stays."""
        self._parts = None
        for shape in self.shapes.values():
            shape.functions.clear()

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._session.note_fallback(self, reason)

    def _prepare(self, concrete: ConcreteFunction) -> None:
        try:
            parts = self._split(concrete, self.prefix())
        except NotCompilable as error:
            self.give_up(str(error))
            return
        self._parts = parts

    @abstractmethod
    def _split(self, concrete: ConcreteFunction, name: str) -> _Split:
        """Split a function for `_run_first` and `_run_fast`, and set the ballot's fingerprint."""

    @abstractmethod
    def _run_first(self, parts: _Split, slots: list[tf.Tensor]) -> object:
        """Run one step plain, and start the compilation for its shapes."""

    @abstractmethod
    def _run_fast(self, variant: str, parts: _Split, call: StepCall) -> object:
        """Run one step in a variant other than plain."""

    def _ask(
        self,
        key: tuple[tf.TensorShape, ...],
        fingerprint: str,
        build: Callable[[], dict[str, TensorFunction]],
    ) -> None:
        """Start the compilation for the shapes of this run, which is plain.

        Args:
            fingerprint: Digest of the function.
            build: Returns the functions of the variants besides plain.
        """
        shape = Shape(key, f"{fingerprint} {key} of {self._agreement.group.size} processes", calls=1)
        self._shape = self.shapes[key] = shape
        assert self._ballot is not None
        if self._agreement.group.rank == 0:
            self._ballot.choice = self._session.stored_decision(shape.key)
            shape.stored = self._ballot.choice is not None
            if self._session.is_deterministic and not shape.stored:
                self._ballot.choice = PLAIN
                shape.reason = NOT_STORED
        self._session.run_in_background(self, lambda: self._compile(shape, build))
        shape.count(PLAIN)

    def _compile(self, shape: Shape, build: Callable[[], dict[str, TensorFunction]]) -> None:
        assert self._ballot is not None
        if PLAIN not in (self._ballot.choice, self._ballot.decision):
            try:
                shape.functions.update(build())
            except (ValueError, TypeError, tf.errors.OpError) as error:
                shape.reason = f"XLA does not compile it: {first_lines(error)}"
                self._ballot.is_failed = True
                return
        shape.trial = self._new_trial()
        self._ballot.is_compiled = True

    def _new_trial(self) -> Trial:
        return Trial(self._agreement.variants, is_busy=Load().is_high)

    def _run_trial(self, run_variant: Callable[[str], object]) -> object:
        """Run the next variant of the trial. The order is the same on all ranks, also after rank 0 has decided."""
        assert self._shape is not None and self._shape.trial is not None and self._ballot is not None
        trial = self._shape.trial
        left = [name for name in trial.variants if name not in self._ballot.dropped]
        variant = turns(left, self._turns // len(left))[self._turns % len(left)]
        self._turns += 1
        counts = self._agreement.group.rank == 0 and trial.awaits(variant)
        wall, cpu = time.perf_counter(), time.process_time()
        result = run_variant(variant)
        if counts:
            trial.record(variant, Times(time.perf_counter() - wall, time.process_time() - cpu))
            self._ballot.choice, self._ballot.lost = trial.decision, trial.lost
        return result

    def _run_plain(self, call: StepCall) -> object:
        if self._shape is not None:
            self._shape.calls += 1
            self._shape.count(PLAIN)
        return call.run_as_traced()

    def _adopt(self, decision: str) -> None:
        """Run the variant that all processes agreed on from now on."""
        assert self._ballot is not None
        self._has_adopted = True
        shape = self._shape
        if self._ballot.is_refused or shape is None or shape.trial is None:
            if self.reason is None and (shape is None or shape.reason is None):
                self._give_up(REFUSED)
            elif shape is not None and shape.reason is not None:
                self._session.note_fallback(self, shape.reason)
            return
        shape.trial.decision = decision
        if not shape.stored and shape.reason is None:
            self._session.note_decision(self, shape)


class ReducingStep(SharedStep[Parts]):
    """Traced training function that contains the reduction of the gradients over all processes."""

    def _split(self, concrete: ConcreteFunction, name: str) -> Parts:
        parts = take_apart(concrete, name=name, may_communicate=True)
        if parts.random_ops > 0:
            raise NotCompilable("it draws noise by a state, and communicates with other processes")
        assert self._ballot is not None
        self._ballot.fingerprint = parts.fingerprint
        _ = parts.plain  # builds it here, in the background
        return parts

    def _build(self, parts: Parts, arguments: Sequence[tf.Tensor]) -> dict[str, TensorFunction]:
        assert self._shape is not None
        compiled = parts.compiled_for(arguments) or parts.compiled()
        copied, kept = functions.copies(arguments)
        self._shape.compile_s = functions.warm_up(compiled, copied, kept)
        return {XLA: compiled}

    def _run_first(self, parts: Parts, slots: list[tf.Tensor]) -> object:
        def run_step(parts: Parts, arguments: list[tf.Tensor]) -> list[tf.Tensor]:
            self.argument_names = parts.names_of(arguments)
            self._ask(parts.shapes_of(arguments), parts.fingerprint, lambda: self._build(parts, arguments))
            return parts.plain(*arguments)

        return self._run_parts(parts, slots, run_step)

    def _run_fast(self, variant: str, parts: Parts, call: StepCall) -> object:
        return self._run_parts(parts, call.slots(), self._run_compiled)

    def _run_parts(
        self, parts: Parts, slots: list[tf.Tensor], run_step: Callable[[Parts, list[tf.Tensor]], list[tf.Tensor]]
    ) -> object:
        slots.append(None)
        read_before, read_step, read_after = parts.reads
        try:
            slots += parts.before(*[slots[index] for index in read_before])
        except tf.errors.OpError:
            parts.whole.end_of_data.run(slots)
            raise
        slots += run_step(parts, [slots[index] for index in read_step])
        slots += parts.after(*[slots[index] for index in read_after])
        return self._pack([slots[index] for index in parts.results])

    def _run_compiled(self, parts: Parts, arguments: list[tf.Tensor]) -> list[tf.Tensor]:
        shape = self._shape
        assert shape is not None
        if XLA not in shape.functions or parts.shapes_of(arguments) != shape.shapes:
            return parts.plain(*arguments)
        shape.calls += 1
        try:
            outputs = shape.functions[XLA](*arguments)
        except tf.errors.OpError as error:
            # XLA writes variables only after its whole part has succeeded, so the part can run again.
            shape.reason = f"XLA failed: {first_lines(error)}"
            self._session.note_fallback(self, shape.reason)
            return parts.plain(*arguments)
        shape.count(XLA)
        return list(outputs)
