"""Several runs of a step in one call, against the same steps in plain TensorFlow, one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.session import CompilerSession
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE
from tidemill_tensorflow.compiler.variants.traced import StepCall

AT_A_TIME = 3
"""Number of runs in one call."""
USUAL, OTHER = 2, 4
"""Rows of the batches whose shape is grouped, and of others."""
LIMIT = 50.0
"""A batch with a greater number fails the assertion of the step."""
ROWS = np.random.default_rng(1).normal(size=(400, 3)).astype("float32")

sizes = st.lists(st.sampled_from([USUAL] * 4 + [OTHER]), min_size=1, max_size=14)
calls = st.lists(st.sampled_from([1, AT_A_TIME, AT_A_TIME]), min_size=1, max_size=8)


def batches(lengths: Sequence[int], *, spoiled: int | None = None) -> Any:
    """Return an iterator over batches with these numbers of rows; `spoiled` is the one that fails the assertion."""
    rows = tf.constant(ROWS)
    starts = tf.constant(np.cumsum([0, *lengths]), tf.int64)
    largest = tf.constant([LIMIT * 2 if index == spoiled else 0.0 for index in range(len(lengths))])
    indices = tf.data.Dataset.range(len(lengths))
    return iter(indices.map(lambda index: rows[starts[index] : starts[index + 1]] + largest[index]))


class Training:
    """A step over an iterator, with an update of Adam's form, noise by a state, a counter and an assertion."""

    def __init__(self, *, noise: bool, checks: bool) -> None:
        self.weight = tf.Variable(tf.zeros([3]))
        self.velocity = tf.Variable(tf.zeros([3]))
        self.count = tf.Variable(0, dtype=tf.int64)

        def train_function(iterator: Any) -> Any:
            batch = next(iterator)
            if checks:
                tf.debugging.assert_less(tf.reduce_max(batch), LIMIT, message="too large")
            values = batch + tf.random.uniform(tf.shape(batch), seed=5) if noise else batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(values, self.weight) - 1.0))
            self.velocity.assign(0.5 * self.velocity + tape.gradient(loss, self.weight))
            self.weight.assign_sub(0.1 * self.velocity)
            # It depends on the batch: what does not, may run or not in a call that gets no batch.
            return {"loss": loss, "count": self.count.assign_add(tf.size(batch, tf.int64) // tf.size(batch, tf.int64))}

        traced = tf.function(train_function, autograph=False)
        self.concrete = traced.get_concrete_function(batches([USUAL]))

    def restart(self) -> None:
        """Set all variables to their first values."""
        for variable in (self.weight, self.velocity, self.count):
            variable.assign(tf.zeros_like(variable))

    def state(self) -> list[Any]:
        """Return the values of the variables."""
        return [variable.numpy() for variable in (self.weight, self.velocity, self.count)]

    def plain(self, iterator: Any) -> dict[str, Any]:
        """Run one step by TensorFlow alone."""
        return dict(self.concrete._call_flat([iterator._iterator_resource], self.concrete.captured_inputs))


class Compiled(Training):
    """The same step, run by the compiler, which has decided on a variant and on several runs per call."""

    def __init__(self, *, variant: str, noise: bool = False, checks: bool = False) -> None:
        super().__init__(noise=noise, checks=checks)
        self.session = CompilerSession(deterministic=False, report_dir=None, cache_dir=None, max_cost=math.inf)
        self.session.stored_decision = (  # type: ignore[method-assign]
            lambda key: None if key.startswith("function ") else variant
        )
        step = self.session.step_of(self.concrete)
        assert step is not None
        self.step: Any = step
        iterator = batches([USUAL] * 20)
        for _ in range(8):
            self.run(iterator, 1)
            self.session.wait_for_background()
            shape = self.step.main_shape()
            if shape is not None and shape.decision is not None:
                assert shape.decision == variant
                self.step.grouping.prepare(AT_A_TIME)
        assert self.step.grouping.can_run(AT_A_TIME)

    def run(self, iterator: Any, count: int) -> dict[str, Any]:
        """Run steps in one call, as `fit` asks for them."""
        self.session.batches.wanted = count
        inputs = [iterator._iterator_resource]
        results = self.step.run(
            StepCall(type(self.concrete)._call_flat, self.concrete, inputs, self.concrete.captured_inputs)
        )
        self.step.grouping.raise_end()
        return dict(results)

    @property
    def at_once(self) -> int:
        """Number of steps that ran with others in one call."""
        return sum(shape.steps.get(AT_ONCE, 0) for shape in self.step.shapes.values())


@pytest.fixture(scope="module", params=["plain", "xla"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Compiled, Training]]:
    """The compiled step and the reference; each test begins with the same variables."""
    compiled = Compiled(variant=request.param)
    yield compiled, Training(noise=False, checks=False)
    compiled.session.end()


@pytest.fixture(scope="module")
def noisy() -> Iterator[tuple[Compiled, Training]]:
    """A step that draws random numbers by a state, and its reference with the seed of the same op."""
    tf.random.set_seed(3)
    compiled = Compiled(variant="plain", noise=True)
    tf.random.set_seed(3)
    yield compiled, Training(noise=True, checks=False)
    compiled.session.end()


def followed(compiled: Compiled, reference: Training, lengths: Sequence[int], wanted: Sequence[int]) -> int:
    """Run both over the same batches, call by call, and compare them. Return how many calls ran steps at once."""
    compiled.restart()
    reference.restart()
    own, other = batches(lengths), batches(lengths)
    left, grouped = len(lengths), 0
    for count in wanted:
        before, results, ended = compiled.at_once, None, False
        try:
            results = compiled.run(own, count)
        except tf.errors.OutOfRangeError:
            ended = True
        assert ended == (left < count), "the data ends in the call that asks for more than there is, and in no other"
        expected: dict[str, Any] = {}
        for _ in range(min(count, left)):
            expected = reference.plain(other)
        left -= min(count, left)
        for name, value in (results or {}).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=f"the last step's {name}")
        for one, two in zip(compiled.state(), reference.state(), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
        grouped += compiled.at_once > before
    return grouped


@settings(max_examples=8, deadline=None)
@given(sizes, calls)
def test_any_calls_over_any_batches_train_as_single_steps_do(
    pair: tuple[Compiled, Training], lengths: list[int], wanted: list[int]
) -> None:
    followed(*pair, lengths, wanted)


def test_batches_of_one_size_run_at_once_and_others_one_by_one(pair: tuple[Compiled, Training]) -> None:
    assert followed(*pair, [USUAL] * 9, [AT_A_TIME] * 3) == 3
    assert followed(*pair, [USUAL, OTHER, USUAL, *[USUAL] * 3], [AT_A_TIME] * 2) == 1
    assert followed(*pair, [USUAL] * 5, [AT_A_TIME] * 2) == 1, "the data ends in the second call, which trains two"
    assert followed(*pair, [USUAL] * 3, [AT_A_TIME] * 3) == 1, "and again in each call after the end"


@settings(max_examples=6, deadline=None)
@given(sizes, calls)
def test_random_numbers_by_a_state_go_on_from_call_to_call_as_in_plain_tensorflow(
    noisy: tuple[Compiled, Training], lengths: list[int], wanted: list[int]
) -> None:
    compiled, _ = noisy
    tf.random.set_seed(3)  # restarts the kernels of the reference
    compiled.session.restart_random_ops()
    followed(*noisy, lengths, wanted)


def test_a_step_that_draws_by_a_state_also_runs_at_once(noisy: tuple[Compiled, Training]) -> None:
    tf.random.set_seed(3)
    noisy[0].session.restart_random_ops()
    assert followed(*noisy, [USUAL] * 9, [AT_A_TIME, 1, AT_A_TIME, 1, 1]) == 2


@pytest.mark.parametrize("spoiled", range(2 * AT_A_TIME))
def test_an_assertion_fails_in_the_call_that_has_the_batch(checked: Compiled, spoiled: int) -> None:
    checked.restart()
    iterator = batches([USUAL] * 2 * AT_A_TIME, spoiled=spoiled)
    for number in range(2):
        if spoiled // AT_A_TIME == number:
            with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
                checked.run(iterator, AT_A_TIME)
            return
        checked.run(iterator, AT_A_TIME)


@pytest.fixture(scope="module")
def checked() -> Iterator[Compiled]:
    """A step with an assertion."""
    compiled = Compiled(variant="plain", checks=True)
    yield compiled
    compiled.session.end()


def test_a_function_that_is_gone_leaves_no_code_and_each_call_runs_single_steps(
    pair: tuple[Compiled, Training],
) -> None:
    compiled = Compiled(variant="plain")
    assert compiled.step.grouping.can_run(AT_A_TIME) and not compiled.step.grouping.can_run(AT_A_TIME + 1)
    compiled.step.release()
    assert not compiled.step.grouping.can_run(AT_A_TIME)
    assert followed(compiled, pair[1], [USUAL] * 6, [AT_A_TIME] * 2) == 0
    compiled.session.end()


def test_another_choice_for_the_shape_ends_runs_at_once(pair: tuple[Compiled, Training]) -> None:
    compiled = Compiled(variant="xla")
    compiled.step.main_shape().trial.decision = "plain"  # as when XLA failed, or rank 0 chose anew
    assert followed(compiled, pair[1], [USUAL] * 6, [AT_A_TIME] * 2) == 0
    compiled.session.end()
