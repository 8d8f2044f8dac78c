"""Steps for which XLA fails, and steps whose function is gone."""

import json

import pytest

import forked_scripts

SCRIPT = """
import json, os, sys
import tidemill_tensorflow
tidemill_tensorflow.compile_training()
import keras
import tensorflow as tf
from tidemill_tensorflow import compiler
from tidemill_tensorflow.compiler.graphs.parts import Parts

tried, compiled_for = [], Parts.compiled_for

def counted(self, arguments):
    tried.append([tuple(each.shape) for each in arguments if each.shape.rank])
    return compiled_for(self, arguments)

Parts.compiled_for = counted
weight, optimizer = tf.Variable(2.0), keras.optimizers.Adam(0.01)

@tf.function(input_signature=[tf.TensorSpec([None])])
def train_step(values):
    times = tf.shape(tf.where(values > 0.0))[0] // tf.shape(values)[0]  # 1, but XLA needs a constant
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * tf.tile(values, [times]))
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    return loss

losses = []
for step in range(40):
    losses.append(float(train_step(tf.ones([(4, 6)[step % 2]]))))
    compiler._sessions[0].wait_for_background()
(function,) = compiler._sessions[0].as_dict()["functions"]
print(json.dumps({"tried": tried, "shapes": function["shapes"], "losses": losses}))
"""


def test_a_step_for_which_xla_fails_is_not_tried_with_other_shapes() -> None:
    ended = forked_scripts.start(SCRIPT).wait()
    found = json.loads(ended.stdout)
    assert found["tried"] in ([[[4]]], [[[6]]]), "both shapes have enough calls"
    # With gradients of one sign and similar size, each step of Adam is nearly its rate.
    assert found["losses"] == pytest.approx([(4, 6)[step % 2] * (2.0 - 0.01 * step) for step in range(40)], rel=2e-2)
    assert len(found["shapes"]) == 2
    assert ended.stderr.count("training compiler: train_step runs without XLA: XLA does not compile it: ") == 1
    for shape in found["shapes"]:
        assert shape["fallback"].startswith("XLA does not compile it: ")
        assert "compile-time constant" in shape["fallback"]
        assert shape["steps_by_variant"]["fused"] >= 2 and "xla" not in shape["steps_by_variant"]


LATER = """
import json, os, sys
import tidemill_tensorflow
tidemill_tensorflow.compile_training()
import tensorflow as tf
from tidemill_tensorflow import compiler

(device,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
session = compiler._sessions[0]
session.stored_decision = lambda key: None if key.startswith("function ") else "xla"
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]) if sys.argv[1] == "2" else tf.distribute.get_strategy()
with strategy.scope():
    weight = tf.Variable(2.0)

def replica_step(value):
    with tf.GradientTape() as tape:
        loss = weight * value
    gradient = tape.gradient(loss, weight)
    if sys.argv[1] == "2":
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
    weight.assign_sub(0.125 * gradient)

@tf.function
def train_step(value):
    strategy.run(replica_step, args=(value,))

def fail(*arguments):
    raise tf.errors.ResourceExhaustedError(None, None, "no memory is left")

error = ""
for number in range(8):
    if number == 6:
        (step,) = session.steps
        (shape,) = step.shapes.values()
        assert shape.steps["xla"] >= 2, shape.steps
        shape.functions["xla"] = fail
    try:
        train_step(tf.constant(1.0))
    except tf.errors.ResourceExhaustedError as caught:
        error = caught.message
        break
    session.wait_for_background()
print(json.dumps({"steps": number, "error": error, "weight": float(weight.numpy())}))
"""


@pytest.mark.parametrize(
    ("devices", "ended"),
    [
        (1, {"steps": 7, "error": "", "weight": 1.0}),
        (2, {"steps": 6, "error": "no memory is left", "weight": 1.25}),
    ],
)
def test_a_step_in_which_xla_fails_later_runs_again_but_not_over_several_devices(
    devices: int, ended: dict[str, object]
) -> None:
    found = forked_scripts.start(LATER, devices).wait()
    assert json.loads(found.stdout) == ended
    assert ("train_step runs plain: XLA failed: no memory is left" in found.stderr) == (devices == 1)


SEARCH = """
import gc, json, os, sys, weakref
import tidemill_tensorflow
tidemill_tensorflow.compile_training()
import keras
import tensorflow as tf
from tidemill_tensorflow import compiler
from tidemill_tensorflow.compiler.graphs import parts
from tidemill_tensorflow.compiler import steps

taken, take_apart = [], steps.take_apart

def noted(*arguments, **named):
    found = take_apart(*arguments, **named)
    taken.append(weakref.ref(found))
    return found

steps.take_apart = noted
session = compiler._sessions[0]
for units in (4, 5, 6):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(units)])
    model.compile("adam", "mse")
    model.fit(tf.ones([64, 3]), tf.ones([64, units]), batch_size=2, verbose=0)
    session.wait_for_background()
    del model
    keras.backend.clear_session()
    gc.collect()
session.wait_for_background()
functions = session.as_dict()["functions"]
print(json.dumps({"alive": [each() is not None for each in taken], "steps": [each["steps"] for each in functions]}))
"""


def test_graphs_and_compiled_code_of_deleted_models_are_freed_and_stay_in_the_report() -> None:
    ended = forked_scripts.start(SEARCH).wait()
    # What belongs to a model is freed when the next one begins to train.
    assert json.loads(ended.stdout) == {"alive": [False, False, True], "steps": [32, 32, 32]}


STATEFUL = """
import json, os, sys
import tidemill_tensorflow
if sys.argv[1] == "compiled":
    tidemill_tensorflow.compile_training()
import keras
import tensorflow as tf

weight, count, optimizer = tf.Variable(2.0), tf.Variable(0.0), keras.optimizers.SGD(0.01)
generator, calls = tf.random.Generator.from_seed(7), []

@tf.function(input_signature=[tf.TensorSpec([None])])
def train_step(values):
    count.assign_add(1.0)
    grown = tf.while_loop(lambda x: tf.reduce_max(abs(x)) < 100.0, lambda x: (2.0 * x,), (values,))[0]  # not on zeros
    noise = generator.uniform(())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * grown) / count + noise
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    tf.py_function(lambda at: calls.append(float(at)), [count], [])
    tf.print("step", count, output_stream=sys.stderr)
    return loss

losses = []
for step in range(60):
    losses.append(float(train_step(tf.fill([4], 1.0 + step))))
    if sys.argv[1] == "compiled":
        from tidemill_tensorflow import compiler
        compiler._sessions[0].wait_for_background()
found = compiler._sessions[0].as_dict()["functions"] if sys.argv[1] == "compiled" else []
state = [int(each) for each in generator.state.numpy()]
print(json.dumps({"losses": losses, "calls": calls, "state": state, "count": float(count), "functions": found}))
"""


def test_a_variants_first_run_has_the_arguments_of_a_step_and_no_effect() -> None:
    both = []
    for script in [forked_scripts.start(STATEFUL, how) for how in ("plain", "compiled")]:
        ended = script.wait()
        steps = [line for line in ended.stderr.splitlines() if line.startswith("step ")]
        assert steps == [f"step {number}" for number in range(1, 61)]
        both.append(json.loads(ended.stdout))
    plain, compiled = both
    (function,) = compiled["functions"]
    assert function["shapes"][0]["steps_by_variant"].keys() & {"xla", "fused"}, "a variant was compiled"
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert (compiled["calls"], compiled["state"], compiled["count"]) == (plain["calls"], plain["state"], 60.0)
    assert plain["calls"] == [float(number) for number in range(1, 61)]
