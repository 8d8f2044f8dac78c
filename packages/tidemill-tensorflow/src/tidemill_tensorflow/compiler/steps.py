"""Traced training functions of one process, and the choice of the variant that runs the next step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import tensorflow as tf

from tidemill_tensorflow.compiler.graphs.nodes import NotCompilable, nodes_of
from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart
from tidemill_tensorflow.compiler.graphs.random_numbers import STATEFUL, Draws
from tidemill_tensorflow.compiler.graphs.unsplit import Unsplit, unsplit
from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.several.several_runs import Grouping
from tidemill_tensorflow.compiler.variants.earlier_jobs import BY_SHAPE, key_of
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE, FUSED, XLA, Shape
from tidemill_tensorflow.compiler.variants.traced import NOT_STORED, Coordinator, TracedStep, first_lines
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Times, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction
    from tidemill_tensorflow.compiler.variants.traced import StepCall


MAX_SHAPES = 4
"""Number of shapes that are compiled for one function."""
FIRST_AFTER = 2
OTHERS_AFTER = 8
"""Number of calls with a shape before the shape is compiled: for the first shape of a function, and for later ones."""
MIN_SHARE = 1 / 16
"""Share of a function's calls that a later shape needs. The last batch of an epoch is often smaller, and rare."""
IN_PARTS = 64
"""Number of first runs in parts, if an earlier job ran several batches per call, in which the parts are used too."""
SLOW_S = 0.5
SLOW_FACTOR = 10
MAX_SLOW = 3
"""A compiled step slower than `SLOW_S` seconds and `SLOW_FACTOR` medians was compiled again. After `MAX_SLOW` such
steps, its shape runs plain."""


class StepCoordinator(Coordinator, Protocol):
    """Methods of the session that a step uses."""

    def runs_wanted(self, grouping: Grouping) -> int:
        """Return how many runs this call of the step of `fit` must do."""

    def decision_of_replica(self, key: str) -> str | None:
        """Return the variant that another trace of the same step chose in this process."""

    def decision_of_first(self, key: str) -> str | None:
        """Return the variant that rank 0 chose. None on rank 0 itself, or if no decision of rank 0 can be read."""


class LocalStep(TracedStep):
    """Traced training function of one process.

    Attributes:
        draws: State of the stateful random ops.
        is_of_fit: Whether the function has the name of the step of `fit`, in Keras 3 or tf_keras.
        grouping: Several runs per call.
    """

    def __init__(self, concrete: ConcreteFunction, session: StepCoordinator, *, begins_with_xla: bool = False) -> None:
        super().__init__(concrete, session, begins_with_xla=begins_with_xla)
        self.draws = Draws()
        self.is_of_fit = "multi_step_on_iterator" in self.name or self.name == "train_function"
        self.grouping = Grouping(self)
        self._session = session
        self._is_split = False
        self._is_due = False
        self._unsplit: Unsplit | None = None
        self._parts: Parts | None = None
        self._has_static_shapes = False
        self._known: str | None = None
        self._stays_whole = False
        self._whole: TensorFunction | None = None
        self._whole_asked = False
        self._xla_failure: str | None = None
        self._functions: dict[str, TensorFunction | None] = {}

    def run(self, call: StepCall) -> object:
        """Run one step, and return the function's results."""
        count = self._session.runs_wanted(self.grouping) if self.is_of_fit else 1
        if self.key is None and self.reason is None:
            self._begin(call.concrete)
        elif not self._is_split and self.reason is None and self.account.may_begin():
            self._split(call.concrete, wait=False)
        begin = self._clock()
        result = self._run(call, count)
        self.account.train(self._clock() - begin, count)
        return result

    def _run(self, call: StepCall, count: int) -> object:
        if self._parts is not None and self.runs & (self.runs - 1) == 0:
            self._follow_first()
        if self._parts is not None and self.grouping.can_run(count):
            slots = self.grouping.run(self._parts, call.slots())
            return self._results(self._parts, slots)
        for _ in range(count - 1):
            self._run_once(call)
        return self._run_once(call)

    @property
    def has_begun(self) -> bool:
        """Whether work on the function has begun, or an earlier job has shown that it need not."""
        return self._is_split

    def has_static_shapes(self) -> bool:
        """Return whether the graph alone determines the shapes of the step's arguments."""
        return self._has_static_shapes

    def can_group(self) -> bool:
        """Return whether several runs can be one call: the part after the step may then run once per call."""
        return self._parts is not None and self._parts.can_wait

    def run_in_background(self, work: Callable[[], None]) -> None:
        """Run work for this step in the background thread."""
        self._session.run_in_background(self, work)

    def _run_once(self, call: StepCall) -> object:
        # Where a stateful random op continues is only known to the parts, also if their variants have failed.
        parts = self._parts if self.reason is None or self._draws_by_state() else None
        if parts is not None and not self._runs_whole(parts):
            return self._run_parts(parts, call.slots())
        begin = time.perf_counter()
        if self._whole is not None and self._unsplit is not None:
            result = self._run_counted(self._whole, self._unsplit, call.slots())
        else:
            result = call.run_as_traced()
        self.runs += 1
        if self._stays_whole and self.is_of_fit and self.at_once is None:
            self._note_duration(time.perf_counter() - begin)
        return result

    def _run_counted(self, whole: TensorFunction, graph: Unsplit, slots: list[tf.Tensor]) -> object:
        """Run the whole function plain, and count what its stateful random ops draw."""
        slots.append(self.draws.state(graph.random_ops))
        try:
            *results, sizes = whole(*slots)
        except tf.errors.OutOfRangeError:
            self.draws.add(graph.end_of_data.sizes(slots))
            raise
        self.draws.add(sizes)
        return self._pack(results)

    def _begin(self, concrete: ConcreteFunction) -> None:
        """Read what an earlier job chose. Split the function at once if that is known, or if Keras has chosen XLA.

        TensorFlow optimizes each function in its first run, and that takes long for large graphs. If it is known that
        the parts will be used, the first run waits for them, so that the function itself is never optimized.
        """
        nodes = list(nodes_of(concrete))
        self.account.size = len(nodes)
        self.key = key_of(concrete)
        self._known = self._session.stored_decision(self.key)
        if self._known == PLAIN and not self.begins_with_xla:
            self._is_split = True
            shape = self.shapes[()] = Shape((), self.key, stored=True)
            shape.begin_trial(PLAIN)
            shape.notes.append("an earlier job chose plain, so the function was not split")
            self._stays_whole = True
            return
        # What a stateful random op has drawn is only known if it never ran outside of the parts.
        draws = any(node.op in STATEFUL for node in nodes)
        if self._known is not None or self.begins_with_xla:
            self._split(concrete, wait=draws or self._known != BY_SHAPE)
        elif self._session.is_deterministic:
            self.give_up(NOT_STORED)
        elif self.account.is_unlimited:
            self._split(concrete, wait=draws)
        elif draws:
            self._session.run_in_background(self, lambda: self._count_draws(concrete), wait=True)

    def _split(self, concrete: ConcreteFunction, *, wait: bool) -> None:
        self._is_split = True
        self._is_due = self.account.may_begin()
        self._session.run_in_background(self, lambda: self.prepare(concrete), wait=wait)

    def _count_draws(self, concrete: ConcreteFunction) -> None:
        """Replace the function by one that counts its draws, so that it may be split later. In the background thread.

        TensorFlow then optimizes this function and not that of the script.
        """
        try:
            graph = unsplit(concrete, name=self.prefix(), is_alone=not job.has_several_processes())
        except NotCompilable as error:
            self.give_up(str(error))
            return
        self._whole, self._unsplit = graph.plain(), graph

    def _draws_by_state(self) -> bool:
        return self._unsplit is not None

    def _runs_whole(self, parts: Parts) -> bool:
        """Return whether the next run needs no parts. To prepare several runs per call, one run in parts is needed."""
        if not self._stays_whole or self.grouping.is_requested:
            return False
        if self._known == AT_ONCE and self.runs < IN_PARTS:
            return False
        if parts.random_ops > 0 and not self._whole_asked:
            self._whole_asked = True
            self._session.run_in_background(self, lambda: self._build_whole(parts))
        return self._whole is not None or parts.random_ops == 0

    def _build_whole(self, parts: Parts) -> None:
        self._whole = parts.whole.plain()

    def _note_duration(self, wall_s: float) -> None:
        shape = self.main_shape()
        if shape is not None:
            shape.last_s.append(wall_s)

    def prepare(self, concrete: ConcreteFunction) -> None:
        """Split the function into parts; later runs use the parts. Called in the background thread."""
        is_alone = not job.has_several_processes()
        try:
            parts = take_apart(concrete, name=self.prefix(), is_alone=is_alone, whole=self._unsplit)
        except NotCompilable as error:
            self.give_up(str(error))
            return
        if self._known in (None, BY_SHAPE) and not self.begins_with_xla:
            _ = parts.plain  # builds it here, in the background
        self._has_static_shapes = parts.has_static_shapes()
        self._unsplit = parts.whole if parts.random_ops > 0 else None
        self._parts = parts

    def compile(self, shape: Shape, arguments: Sequence[tf.Tensor]) -> None:
        """Compile the step for a shape, on copies of its variables. Called in the background thread."""
        stored = self._session.stored_decision(shape.key)
        shape.stored = stored is not None
        if stored != PLAIN:
            begin = self._clock()
            self._add_variants(shape, arguments, wanted=(XLA, FUSED) if stored is None else (stored,))
            if stored is None:
                self.account.learn(self._clock() - begin)
        shape.begin_trial(stored)
        if shape.decision is not None:
            self._stay_whole(shape)

    def _add_variants(self, shape: Shape, arguments: Sequence[tf.Tensor], *, wanted: Sequence[str]) -> None:
        """Build variants, and run each of them once on copies of the variables."""
        assert self._parts is not None
        shape.compile_s = shape.compile_s or 0.0
        earlier = self._xla_failure
        for variant in wanted:
            if variant in shape.functions:
                continue
            if variant == XLA and self._xla_failure is not None:  # most likely, other shapes fail for the same reason
                shape.reason = self._xla_failure
                continue
            try:
                function = self._parts.compiled_for(arguments) if variant == XLA else None
                if function is None:
                    function = self._function(variant)
                if function is None:
                    continue
                if self._known in (None, BY_SHAPE) or variant == XLA:  # else the run that waits for it is the first one
                    shape.first_s[variant] = self._parts.warm_up(function, arguments)
                    shape.compile_s += shape.first_s[variant]
                shape.functions[variant] = function
            except (ValueError, TypeError, tf.errors.OpError) as error:
                if variant == XLA:
                    shape.reason = self._xla_failure = f"XLA does not compile it: {first_lines(error)}"
                elif shape.reason is None:  # else XLA has failed too, most likely for the same reason
                    self._session.note(f"{self.name} keeps its updates as they are: {first_lines(error)}")
        if self._xla_failure is not None and earlier is None:
            self._session.note_fallback(self, self._xla_failure, how="without XLA" if shape.functions else "plain")

    def _function(self, variant: str) -> TensorFunction | None:
        """Return a variant that serves all shapes, or None if the step has no such variant."""
        assert self._parts is not None
        if variant not in self._functions:
            self._functions[variant] = self._parts.compiled() if variant == XLA else self._parts.fused()
        return self._functions[variant]

    def give_up(self, reason: str) -> None:
        """Run the function plain from now on."""
        self.reason = reason
        self._stays_whole = self._stays_whole or self._draws_by_state()
        self._session.note_fallback(self, reason, how="as Keras compiles it" if self.begins_with_xla else "plain")

    def release(self) -> None:
        """Free graphs and compiled code when the script's function is gone. What the report needs stays."""
        self._parts = self._whole = self._unsplit = None
        self._functions.clear()
        self.grouping.release()
        for shape in self.shapes.values():
            shape.functions.clear()

    def _run_parts(self, parts: Parts, slots: list[tf.Tensor]) -> object:
        try:
            slots += self.before(parts, slots)
        except tf.errors.OpError:
            self.end_of_data(parts, slots)
            raise
        arguments = [slots[index] for index in parts.reads[1]]
        slots += self.run_variant(parts, arguments)
        result = self._results(parts, slots)
        self.count(parts, slots)
        shape = self.main_shape()
        if self.grouping.is_requested and shape is not None:
            self.grouping.compile(parts, shape, arguments)
        return result

    def before(self, parts: Parts, slots: Sequence[tf.Tensor], *, later: int = 0) -> list[tf.Tensor]:
        """Run the part before the step, and return the slots to add: the random ops' state, then the results."""
        own = [*slots, self.draws.state(parts.random_ops, later=later) if parts.random_ops > 0 else None]
        return [own[-1], *parts.before(*[own[index] for index in parts.reads[0]])]

    def end_of_data(self, parts: Parts, slots: Sequence[tf.Tensor]) -> None:
        """Run and count what a call of the script's function does although it gets no next element."""
        own = [*slots, self.draws.state(parts.random_ops) if parts.random_ops > 0 else None]
        parts.whole.end_of_data.run(own)
        if parts.random_ops > 0:
            self.draws.add(parts.whole.end_of_data.sizes(own))

    def count(self, parts: Parts, slots: Sequence[tf.Tensor], runs: int = 1) -> None:
        """Count runs that drew random values of the same sizes."""
        self.runs += runs
        if parts.sizes is not None:
            self.draws.add(slots[parts.sizes], runs=runs)

    def _results(self, parts: Parts, slots: list[tf.Tensor]) -> object:
        slots += parts.after(*[slots[index] for index in parts.reads[2]])
        return self._pack([slots[index] for index in parts.results])

    def run_variant(self, parts: Parts, arguments: list[tf.Tensor]) -> list[tf.Tensor]:
        """Run the step in the chosen variant, or in the variant whose turn it is; return its results."""
        shape = self._shape(arguments)
        shape.calls += 1
        if self.reason is not None:
            return self._run_plain(parts, shape, arguments)
        if self.begins_with_xla and not shape.has_begun:
            self._begin_with_xla(shape, arguments)
        if shape.trial is None:
            self._ask(shape, arguments)
        trial = shape.trial
        if trial is None:
            return self._run_first(parts, shape, arguments)
        if trial.decision is None:
            self._adopt_decision(shape, trial)
        if trial.decision is None and self._session.is_compiling:
            return self._run_first(parts, shape, arguments)
        variant = trial.next()
        undecided = trial.decision is None
        cpu = time.process_time() if undecided else 0.0
        begin = time.perf_counter()
        if variant == XLA:
            outputs = self._run_compiled(parts, shape, arguments)
        elif variant == FUSED:
            outputs = shape.functions[FUSED](*arguments)
            shape.count(FUSED)
        else:
            outputs = self._run_plain(parts, shape, arguments)
        wall = time.perf_counter() - begin
        if undecided:
            trial.record(variant, Times(wall, time.process_time() - cpu))
            if trial.decision is not None and shape.trial is trial:
                self._stay_whole(shape)
                self._session.note_decision(self, shape)
        else:
            shape.last_s.append(wall)
            if variant == XLA and wall > SLOW_S:
                self._watch(shape, wall)
        return outputs

    def _adopt_decision(self, shape: Shape, trial: Trial) -> None:
        """Adopt the decision of another replica: a strategy traces a function once per device."""
        decision = self._session.decision_of_replica(shape.key)
        if decision in trial.variants:
            trial.decision = decision
            self._stay_whole(shape)

    def _follow_first(self) -> None:
        """Adopt newer decisions of rank 0 if they can be read, because all ranks wait for the slowest one."""
        for shape in list(self.shapes.values()):
            if shape.decision is None or shape.trial is None:
                continue
            chosen = self._session.decision_of_first(shape.key)
            if chosen != shape.decision and chosen in (PLAIN, *shape.functions):
                shape.trial.decision = chosen
                self._stay_whole(shape)

    def _begin_with_xla(self, shape: Shape, arguments: Sequence[tf.Tensor]) -> None:
        """Compile a shape before its first run, as TensorFlow does if Keras has chosen XLA."""
        shape.has_begun = True
        if self._session.stored_decision(shape.key) is None:
            work = list(arguments)
            self._session.run_in_background(self, lambda: self._add_variants(shape, work, wanted=(XLA,)), wait=True)

    def _run_first(self, parts: Parts, shape: Shape, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Run the variant with which the function begins, while nothing is decided."""
        if self.begins_with_xla and XLA in shape.functions:
            return self._run_compiled(parts, shape, arguments)
        return self._run_plain(parts, shape, arguments)

    def _run_plain(self, parts: Parts, shape: Shape, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        shape.count(PLAIN)
        return parts.plain(*arguments)

    def _run_compiled(self, parts: Parts, shape: Shape, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        try:
            outputs = shape.functions[XLA](*arguments)
        except tf.errors.OpError as error:
            if parts.replicas is not None:
                raise  # other devices may have written their variables
            # XLA writes variables only after the whole step has succeeded, so the step can run again. Only seeds may
            # have advanced (see `noise`): the step then draws the next numbers of the script.
            self._drop_xla(shape, f"XLA failed: {first_lines(error)}")
            return self._run_plain(parts, shape, arguments)
        shape.count(XLA)
        return outputs

    def _drop_xla(self, shape: Shape, reason: str) -> None:
        shape.drop(XLA, reason)
        self._session.note_fallback(self, reason, how="without XLA" if shape.functions else "plain")

    def _shape(self, arguments: Sequence[tf.Tensor]) -> Shape:
        assert self._parts is not None
        key = self._parts.shapes_of(arguments)
        shape = self.shapes.get(key)
        if shape is None:
            self.argument_names = self._parts.names_of(arguments)
            shape = self.shapes[key] = Shape(key, f"{self._parts.fingerprint} {key}")
        return shape

    def _ask(self, shape: Shape, arguments: Sequence[tf.Tensor]) -> None:
        if shape.asked or (shape.reason is not None and not self.begins_with_xla):
            return
        asked = sum(each.asked for each in self.shapes.values())
        if asked >= MAX_SHAPES:
            return
        if shape.calls == 1:
            knows = self._known is not None or self.begins_with_xla
            shape.is_stored = knows and self._session.stored_decision(shape.key) is not None
        if shape.is_stored or (self._comes_often(shape, asked) and self._may_compile(shape, asked)):
            shape.asked = True
            if self._session.is_deterministic and self._session.stored_decision(shape.key) is None:
                shape.reason = NOT_STORED
                self._stay_whole(shape)
                return
            wait, work = shape.is_stored and self._known != BY_SHAPE, list(arguments)
            self._session.run_in_background(self, lambda: self.compile(shape, work), wait=wait)

    def _comes_often(self, shape: Shape, asked: int) -> bool:
        all_calls = sum(each.calls for each in self.shapes.values())
        return shape.calls >= (max(OTHERS_AFTER, MIN_SHARE * all_calls) if asked else FIRST_AFTER)

    def _may_compile(self, shape: Shape, asked: int) -> bool:
        """Return whether variants for a shape pay, by what is known now. Deterministic runs do not ask for times."""
        if self._session.is_deterministic:
            return not self.begins_with_xla
        self._is_due = self._is_due or self.account.may_begin()
        if not self._is_due or not asked:
            return self._is_due
        return self.account.may_add_shape(shape.calls / sum(each.calls for each in self.shapes.values()))

    def _stay_whole(self, shape: Shape) -> None:
        """Stop running in parts if plain was chosen for the most frequent shape.

        TensorFlow's own function runs again, except if it has stateful random ops: their state does not include the
        runs of the parts, so a function that counts the runs takes its place.
        """
        most = max(each.calls for each in self.shapes.values())
        # The function of a script that Keras compiles is not the plain variant.
        self._stays_whole = shape.decision == PLAIN and shape.calls == most and not self.begins_with_xla

    def _watch(self, shape: Shape, wall_s: float) -> None:
        assert shape.trial is not None
        usual = shape.trial.medians_s().get(XLA, 0.0)
        if wall_s > SLOW_FACTOR * usual and usual:
            shape.slow += 1
        if shape.slow >= MAX_SLOW:
            self._drop_xla(
                shape,
                f"XLA compiled it again in {shape.slow} steps: a shape inside of it depends on a value; pad it"
                " to a fixed length",
            )
