"""Who chose between plain and XLA: scripts by `jit_compile`, Keras by itself; and the state of a step's shapes."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.graphs.flat_graphs import KERAS_STEP
from tidemill_tensorflow.compiler.variants import jit
from tidemill_tensorflow.compiler.variants.jit import has_chosen_steps, is_chosen_by_keras, is_chosen_by_script
from tidemill_tensorflow.compiler.variants.shapes import FUSED, MAX_LAST, MIN_LAST, XLA, Shape
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Times


@pytest.fixture(scope="module")
def trainer() -> Any:
    """Return Keras's models, whose `compile` notes its arguments; unchanged after the module."""
    from keras.src.trainers.trainer import Trainer

    original = Trainer.compile
    jit._note_choices(Trainer)
    yield Trainer
    Trainer.compile = original


@pytest.mark.parametrize(("given_", "chosen"), [(None, False), (True, True), (False, True)])
def test_a_function_is_chosen_by_the_script_if_it_says_jit_compile(given_: bool | None, chosen: bool) -> None:
    function = tf.function(lambda x: x * 2.0, jit_compile=given_, input_signature=[tf.TensorSpec([2])])
    assert is_chosen_by_script(function.get_concrete_function()) == chosen
    assert not is_chosen_by_keras(function.get_concrete_function())


@pytest.mark.parametrize("given_", [True, False, None])
def test_a_step_of_keras_is_told_by_its_name_and_its_choice_is_no_scripts(given_: bool | None) -> None:
    def step(x: Any) -> Any:
        return x * 2.0

    step.__name__ = KERAS_STEP
    inner = tf.function(step, jit_compile=given_)
    outer = tf.function(lambda x: inner(x) + 1.0, input_signature=[tf.TensorSpec([2])], autograph=False)
    for concrete in (outer.get_concrete_function(), inner.get_concrete_function(tf.TensorSpec([2]))):
        assert not is_chosen_by_script(concrete)
        assert is_chosen_by_keras(concrete) == (given_ is True)


@pytest.mark.parametrize(
    ("options", "chosen", "steps"),
    [
        ({}, False, False),
        ({"jit_compile": "auto"}, False, False),
        ({"jit_compile": True}, True, False),
        ({"jit_compile": False}, True, False),
        ({"steps_per_execution": 1}, False, True),
        ({"steps_per_execution": 3, "jit_compile": False}, True, True),
        ({"steps_per_execution": None}, False, False),
    ],
    ids=str,
)
def test_what_a_script_passes_to_compile_is_its_choice_and_defaults_are_not(
    trainer: Any, options: dict[str, Any], chosen: bool, steps: bool
) -> None:
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    given_ = {name: value for name, value in options.items() if not (name == "steps_per_execution" and value is None)}
    model.compile("sgd", "mse", **given_)
    assert has_chosen_steps(model) == steps
    assert not has_chosen_steps(keras.Sequential())
    plain = tf.function(lambda x: x, input_signature=[tf.TensorSpec([2])]).get_concrete_function()
    seen = []

    class Asking(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(is_chosen_by_script(plain))

    model.fit(np.ones([2, 1]), np.ones([2, 1]), verbose=0, callbacks=[Asking()])
    assert seen == [chosen], "read from the call stack, inside of fit alone"
    assert not is_chosen_by_script(plain)


def test_the_last_call_of_compile_counts_and_positions_are_names(trainer: Any) -> None:
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", None, None, None, False, 4, True)
    assert (model._tidemill_jit_compile, has_chosen_steps(model)) == (True, True)
    model.compile("sgd", "mse")
    assert (model._tidemill_jit_compile, has_chosen_steps(model)) == (None, False)
    assert "_tidemill_jit_compile" not in str(model.get_config())


# --- the state of one combination of shapes ---------------------------------------------------------------------------
def shape_with(*variants: str) -> Shape:
    return Shape((), "key", functions=dict.fromkeys(variants, list))


def test_a_shape_without_variants_is_plain_and_one_that_is_undecided_is_nothing() -> None:
    assert shape_with().decision is None
    assert Shape((), "key", reason="XLA cannot compile it").decision == PLAIN
    without = shape_with()
    without.begin_trial()
    assert without.decision == PLAIN
    undecided = shape_with(XLA)
    undecided.begin_trial()
    assert undecided.decision is None


@given(st.sets(st.sampled_from((XLA, FUSED))), st.sampled_from((None, PLAIN, XLA, FUSED, "of a later version")))
def test_the_decision_of_an_earlier_job_is_used_if_its_variant_exists(variants: set[str], stored: str | None) -> None:
    shape = shape_with(*variants)
    shape.begin_trial(stored)
    assert shape.trial is not None
    assert set(shape.trial.variants) == {PLAIN, *variants}
    if stored in {PLAIN, *variants}:
        assert shape.decision == stored
    else:
        assert shape.decision == (None if variants else PLAIN)


def test_a_variant_that_is_dropped_is_not_compared_again_and_its_reason_stays() -> None:
    shape = shape_with(XLA, FUSED)
    shape.begin_trial(XLA)
    shape.drop(XLA, "it failed")
    assert shape.decision is None and shape.trial is not None
    assert shape.trial.variants == (PLAIN, FUSED)
    shape.drop(FUSED, "it failed, too")
    assert (shape.decision, shape.reason, shape.functions) == (PLAIN, "it failed, too", {})


@settings(max_examples=60)
@given(st.lists(st.floats(1e-4, 1.0), max_size=40))
def test_the_duration_of_a_step_is_the_median_of_the_last_ones_when_there_are_enough(last_s: list[float]) -> None:
    shape = shape_with()
    for seconds in last_s:
        shape.last_s.append(seconds)
    if len(last_s) < MIN_LAST:
        assert math.isinf(shape.step_s)
    else:
        assert shape.step_s == pytest.approx(float(np.median(last_s[-MAX_LAST:])))
    shape.begin_trial()
    assert shape.trial is not None
    shape.trial.times[PLAIN] = [Times(0.5, 0.4), Times(0.1, 0.1), Times(0.2, 0.2)]
    assert shape.step_s == 0.2, "the times of the trial are of steps that were compared"


@given(st.lists(st.tuples(st.sampled_from((PLAIN, XLA)), st.integers(1, 5))))
def test_steps_are_counted_by_their_variant(counts: list[tuple[str, int]]) -> None:
    shape = shape_with(XLA)
    for variant, number in counts:
        shape.count(variant, number)
    assert shape.steps == {
        name: sum(number for each, number in counts if each == name) for name in {each for each, _ in counts}
    }
