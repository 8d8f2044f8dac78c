"""`DistributedModel` beyond equal training: placement of variables, fit, wrapping, hooks, and errors."""

import re
from pathlib import Path
from typing import Any

import pytest

import ranks

pytestmark = pytest.mark.smp_first

MANUAL = {"auto_partition": False, "default_partition": 0, "microbatches": 4}
AUTOMATIC = {"microbatches": 4}


def test_a_rank_has_only_its_own_variables_and_names_the_owners_of_the_others() -> None:
    for rank, (remote, errors) in enumerate(ranks.run(2, holdings, config=MANUAL)):
        other = 1 - rank
        assert remote == {0: [4, 5, 6, 7, 8, 9], 1: [0, 1, 2, 3]}[rank]
        assert set(errors) == {"numpy", "read", "assign", "assign_add", "convert", "save", "load"}
        for text in errors.values():
            assert re.search(rf"held by rank {other} \(partition {other}\)", text)


def holdings() -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    import models
    from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    net = models.distributed(models.Chain)(2)
    models.smp_steps(net, keras.optimizers.Adam(), models.batches(1, 8))
    remote = [number for number, variable in enumerate(net.variables) if is_remote(variable)]
    one = net.variables[remote[0]]
    calls = {
        "numpy": lambda: one.numpy(),
        "read": lambda: one.value.read_value(),
        "assign": lambda: one.assign(np.zeros(one.shape)),
        "assign_add": lambda: one.value.assign_add(np.zeros(one.shape, "float32")),
        "convert": lambda: tf.convert_to_tensor(one) + 1.0,
        "save": lambda: tf.train.Checkpoint(one=one).write("/tmp/never-written"),
        "load": lambda: net.set_weights([np.zeros(v.shape) for v in net.variables]),
    }
    errors = {}
    for name, call in calls.items():
        try:
            call()
        except SMPRemoteVariableError as error:
            errors[name] = str(error)
        else:
            errors[name] = f"nothing was raised for {one!r} ({type(one.value)})"
    return remote, errors


def test_a_large_remote_variable_takes_no_memory() -> None:
    grown = ranks.run(2, memory_of_large_layer, config=MANUAL)
    assert grown[0] < 50  # MB; the layer of partition 1 has 256 MB, and its optimizer's slots twice that
    assert grown[1] > 200


def memory_of_large_layer() -> float:
    import resource

    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    class Wide(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = keras.layers.Dense(8192, use_bias=False), keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            with smp.partition(1):
                return self.narrow(self.wide(x))

    net, optimizer = Wide(), keras.optimizers.Adam()

    @smp.step
    def forward_backward(x: Any) -> Any:
        loss = tf.reduce_mean(net(x))
        return optimizer.get_gradients(loss, net.trainable_variables)

    @tf.function
    def train(x: Any) -> None:
        grads = [grad.accumulate() for grad in forward_backward(x)]
        optimizer.apply_gradients(zip(grads, net.trainable_variables, strict=True))

    train(tf.ones([4, 8]))
    models_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    second, optimizer = Wide(), keras.optimizers.Adam()
    net = second

    @smp.step
    def again(x: Any) -> Any:
        loss = tf.reduce_mean(second(x))
        return optimizer.get_gradients(loss, second.trainable_variables)

    @tf.function
    def train_again(x: Any) -> None:
        grads = [grad.accumulate() for grad in again(x)]
        optimizer.apply_gradients(zip(grads, second.trainable_variables, strict=True))

    train_again(tf.ones([4, 8192]))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - models_before) / 1024


@pytest.mark.parametrize(
    "config", [pytest.param(MANUAL, id="manual", marks=pytest.mark.matrix), pytest.param(AUTOMATIC, id="automatic")]
)
def test_fit_evaluate_and_predict_equal_those_of_the_plain_model(config: dict[str, Any]) -> None:
    results = ranks.run(2, fit_both, config=config)
    for distributed, plain in results:
        assert distributed["history"]["loss"] == pytest.approx(plain["history"]["loss"], rel=1e-5)
        assert distributed["history"]["val_mae"] == pytest.approx(plain["history"]["val_mae"], rel=1e-5)
        assert distributed["evaluate"] == pytest.approx(plain["evaluate"], rel=1e-5)
        assert distributed["predict"] == pytest.approx(plain["predict"], rel=1e-4, abs=1e-6)
        assert distributed["predict"].shape == (19, 4)


def fit_both() -> Any:
    import keras
    import numpy as np

    import models

    random = np.random.RandomState(0)
    x, y = random.randn(64, models.FEATURES).astype("float32"), random.randn(64, models.CLASSES).astype("float32")

    def run(model: Any) -> dict[str, Any]:
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, validation_data=(x[:32], y[:32]), verbose=0)
        return {
            "history": history.history,
            "evaluate": model.evaluate(x, y, batch_size=16, verbose=0),
            "predict": model.predict(x[:19], batch_size=16, verbose=0),
        }

    keras.utils.set_random_seed(5)
    distributed = run(models.distributed(models.Skips)(2))
    keras.utils.set_random_seed(5)
    return distributed, run(models.Skips(2))


@pytest.mark.parametrize(
    ("config", "rules"), [(AUTOMATIC, None), (MANUAL, {"late*": 1, "head": 1})], ids=["automatic", "rules"]
)
def test_a_functional_model_with_weights_is_wrapped(config: dict[str, Any], rules: dict[str, int] | None) -> None:
    held = []
    for losses, plain_losses, remote in ranks.run(2, wrap_functional, rules, config=config):
        assert losses == pytest.approx(plain_losses, rel=1e-5)
        held.append(remote)
    assert all(remote for remote in held)
    if rules:
        assert held[1] == ["dense/bias", "dense/kernel"]


def wrap_functional(rules: dict[str, int] | None) -> Any:
    import keras

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    def build() -> Any:
        keras.utils.set_random_seed(2)
        inputs = keras.Input([models.FEATURES])
        first = keras.layers.Dense(8, activation="tanh", name="dense")(inputs)
        x = keras.layers.Dense(8, activation="tanh", name="late_1")(first)
        x = keras.layers.Dense(8, activation="tanh", name="late_2")(x) + first
        return keras.Model(inputs, keras.layers.Dense(models.CLASSES, name="head")(x))

    data = models.batches(5, 16)
    net = smp.DistributedModel.wrap(build(), rules)
    losses = models.smp_steps(net, keras.optimizers.Adam(0.01), data)
    plain_losses = models.plain_steps(build(), keras.optimizers.Adam(0.01), data)
    return losses, plain_losses, sorted(v.path for v in net.variables if is_remote(v))


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="keras"),
        pytest.param({"TF_USE_LEGACY_KERAS": "1"}, id="tf_keras", marks=pytest.mark.matrix),
    ],
)
def test_a_wrapped_model_lists_its_layers_and_variables_like_the_model_itself(environment: dict[str, str]) -> None:
    for plain, before, after in ranks.run(2, describe_models, environment=environment):
        assert before == plain
        assert after == plain


def describe_models() -> Any:
    """Return the description of a plain model, and of the wrapped model before and after its first step."""
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    def build() -> Any:
        inputs = tf.keras.Input([6], name="rows")
        first = tf.keras.layers.Dense(5, name="first")(inputs)
        return tf.keras.Model(inputs, tf.keras.layers.Dense(3, name="head")(first), name="net")

    def describe(model: Any) -> Any:
        lines: list[str] = []
        model.summary(print_fn=lambda line, line_break=False: lines.append(line))
        shapes = tuple(model.input_shape), tuple(model.output_shape)
        head = model.get_layer("head")
        return model.count_params(), [one.name for one in model.layers], head.units, shapes, "\n".join(lines)

    net = smp.DistributedModel.wrap(build(), {"head": 1})
    before = describe(net)
    net.compile(tf.keras.optimizers.SGD(0.1), loss="mse")
    net.fit(np.ones([8, 6], "float32"), np.ones([8, 3], "float32"), batch_size=8, verbose=0)
    return describe(build()), before, describe(net)


def test_weights_are_loaded_in_a_post_partition_hook() -> None:
    for calls, equal in ranks.run(2, load_in_hook, config=MANUAL):
        assert calls == [True]
        assert equal


def load_in_hook() -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import session
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    session.set_current(__import__("dataclasses").replace(session.current()))  # a new engine, nothing is partitioned
    plain = models.Chain(2)
    plain(np.zeros((4, models.FEATURES), "float32"))
    weights, net, calls = plain.get_weights(), models.distributed(models.Chain)(2), []

    @smp.register_post_partition_hook
    def load() -> None:
        calls.append(tf.executing_eagerly())
        net.set_weights(weights)

    models.smp_steps(net, keras.optimizers.SGD(0.0), models.batches(1, 8))
    return calls, all(is_remote(v) or np.array_equal(v, w) for v, w in zip(net.variables, weights, strict=True))


def test_a_step_called_eagerly_and_an_evaluation_step_give_the_same_loss() -> None:
    for training, evaluation, eager, merged in ranks.run(2, evaluate_same, config=MANUAL):
        assert training == evaluation == eager
        assert merged == (16, 4)


def evaluate_same() -> Any:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(models.Chain)(2)

    @smp.step
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        return tape.gradient(loss, net.trainable_variables), loss

    @smp.step
    def evaluate(x: Any, y: Any) -> Any:
        return models.loss_of(net, x, y), net(x)

    @tf.function
    def both(x: Any, y: Any) -> Any:
        return train(x, y)[1].reduce_mean()

    (x, y) = models.batches(1, 16)[0]
    training = float(both(x, y))
    evaluation = tf.function(lambda a, b: evaluate(a, b)[0].reduce_mean())(x, y)
    loss, outputs = evaluate(x, y)
    return training, float(evaluation), float(loss.reduce_mean()), tuple(outputs.merge().shape)


MISTAKES = {
    "eager functions": ("SMPUsageError", r"run_functions_eagerly"),
    "unknown option": ("SMPUsageError", r"split_inputs.*allowed are"),
    "compiled step": ("SMPUsageError", r"set_jit"),
    "model outside": ("SMPUsageError", r"called outside a function decorated with @smp.step"),
    "step in step": ("SMPUsageError", r"called inside another"),
    "no such partition": ("SMPPartitionError", r"smp.partition\(2\).*allowed are 0 to 1"),
    "indivisible": ("SMPSplitError", r"drop_remainder=True"),
    "no gradient": ("ValueError", r"has no gradient with respect to .*unused"),
    "different steps": ("SMPPlanMismatchError", r"First difference"),
    "jit": ("SMPUsageError", r"set_jit"),
    "wrap twice": ("SMPUsageError", r"DistributedModel already"),
}


def test_usage_errors_are_raised_on_every_rank() -> None:
    for found in ranks.run(2, make_mistakes, config=MANUAL):
        assert set(found) == set(MISTAKES)
        for name, (kind, text) in MISTAKES.items():
            assert found[name][0] == kind, (name, found[name])
            assert re.search(text, found[name][1], re.DOTALL), (name, found[name])


def make_mistakes() -> dict[str, tuple[str, str]]:
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.backend.exceptions as smp_exceptions
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(models.Chain)(2)
    x = tf.ones([8, models.FEATURES])

    @smp.step
    def forward(x: Any) -> Any:
        return net(x)

    @smp.step
    def nested(x: Any) -> Any:
        return forward(x)

    class Misplaced(smp.DistributedModel):
        def call(self, x: Any) -> Any:
            with smp.partition(2):
                return x + 1.0

    misplaced = Misplaced()

    @smp.step
    def outside_range(x: Any) -> Any:
        return misplaced(x)

    @smp.step
    def unconnected(x: Any) -> Any:
        unused = tf.Variable(1.0, name="unused") if not kept else kept[0]
        kept.append(unused)
        return keras.optimizers.Adam().get_gradients(tf.reduce_mean(net(x)), [unused])

    kept: list[Any] = []

    @smp.step
    def by_rank(x: Any) -> Any:
        return net(x) * float(smp.rank()) if smp.rank() else tf.sin(net(x))

    def eagerly() -> None:
        tf.config.run_functions_eagerly(True)
        try:
            forward(x)
        finally:
            tf.config.run_functions_eagerly(False)

    calls = {
        "eager functions": eagerly,
        "unknown option": lambda: smp.step(split_inputs=["x"]),
        "compiled step": lambda: smp.step(jit_compile=True),
        "model outside": lambda: net(x),
        "step in step": lambda: nested(x),
        "no such partition": lambda: outside_range(x),
        "indivisible": lambda: forward(x[:7]),
        "no gradient": lambda: unconnected(x),
        "different steps": lambda: by_rank(x),
        "jit": lambda: net.compile(jit_compile=True),
        "wrap twice": lambda: smp.DistributedModel.wrap(net),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except (smp_exceptions.SMPError, ValueError) as error:
            found[name] = (type(error).__name__, str(error))
        smp.barrier()
    return found


def test_a_model_is_planned_without_values() -> None:
    (text,) = ranks.run(1, plan_alone, config={"partitions": 1})
    assert "3 partitions, 4 microbatches" in text
    assert "speed-up" in text


def plan_alone() -> str:
    import numpy as np

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(models.Skips)(1)
    batch = np.zeros((16, models.FEATURES), "float32")
    return str(smp.plan(net, batch, partitions=3, microbatches=4, optimize="speed"))


def test_objects_with_their_own_slicing_may_differ_between_microbatches() -> None:
    for sums, outputs, shapes in ranks.run(2, slice_objects, config=MANUAL):
        assert sums == [0.0, 8.0, 16.0, 24.0]
        assert outputs == [0, 1, 2, 3]
        assert shapes == [(1, 6), (2, 6), (3, 6), (4, 6)]


def slice_objects() -> Any:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(models.Chain)(2)

    class Ragged:
        """Splits into pieces of different sizes, with a Python number."""

        def smp_slice(self, num_mb: int, mb: int, axis: int) -> Any:
            assert (num_mb, axis) == (4, 0)
            return {"x": tf.fill([mb + 1, models.FEATURES], float(mb)), "number": mb}

    @smp.step
    def forward(piece: Any, y: Any) -> Any:
        outputs = net(piece["x"])
        return tf.reduce_sum(y) * float(piece["number"]) + 0.0 * tf.reduce_sum(outputs), piece["x"], piece["number"]

    sums, x, _ = forward(Ragged(), tf.ones([32]))
    numbers = [int(tensor[0, 0]) for tensor in x.outputs]
    return [float(tensor) for tensor in sums.outputs], numbers, [tuple(tensor.shape) for tensor in x.outputs]


def test_a_signature_without_batch_size_serves_every_size() -> None:
    for traces, shapes, message in ranks.run(2, vary_batch_size, config=MANUAL):
        assert traces == 1
        assert shapes == [(8, 4), (12, 4), (16, 4)]
        assert "drop_remainder=True" in message


def vary_batch_size() -> Any:
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net, traces = models.distributed(models.Chain)(2), []
    signature = [tf.TensorSpec([None, models.FEATURES], tf.float32)]

    @tf.function(input_signature=signature)
    @smp.step(input_signature=signature)
    def forward(x: Any) -> Any:
        traces.append(1)
        return net(x)

    shapes = [tuple(forward(np.zeros((size, models.FEATURES))).merge().shape) for size in (8, 12, 16)]
    try:
        forward(np.zeros((10, models.FEATURES)))
    except tf.errors.InvalidArgumentError as error:
        message = str(error)
    return len(traces), shapes, message


def test_functions_inside_the_model_may_span_partitions() -> None:
    for losses, plain_losses, remote in ranks.run(2, nest_functions, config=MANUAL):
        assert losses == pytest.approx(plain_losses, rel=1e-6)
        assert remote == 2


def nest_functions() -> Any:
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    class Nested(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = keras.layers.Dense(8), keras.layers.Dense(models.CLASSES)

        def call(self, x: Any) -> Any:
            return self.whole(x)

        @tf.function
        def whole(self, x: Any) -> Any:
            x = self.first(x)
            if tf.reduce_sum(x) > 0.0:
                x = x * 2.0
            with smp.partition(1):
                return self.last(x)

    data = models.batches(3, 16)
    keras.utils.set_random_seed(2)
    net = models.distributed(Nested)()
    losses = models.smp_steps(net, keras.optimizers.Adam(0.01), data)
    keras.utils.set_random_seed(2)
    plain = Nested()
    plain.first.build([None, models.FEATURES])
    plain.last.build([None, 8])
    plain_losses = models.plain_steps(plain, keras.optimizers.Adam(0.01), data, pieces=4)
    return losses, plain_losses, sum(map(is_remote, net.variables))


def test_the_memory_of_remote_variables_of_a_wrapped_model_is_freed() -> None:
    for rank, alive in enumerate(ranks.run(2, free_wrapped, config=MANUAL)):
        assert alive == {"first": rank == 0, "last": rank == 1}


def free_wrapped() -> dict[str, bool]:
    import gc
    import time
    import weakref

    import keras

    import models
    import smdistributed.modelparallel.tensorflow as smp

    inputs = keras.Input([models.FEATURES])
    first = keras.layers.Dense(8, name="first")
    last = keras.layers.Dense(models.CLASSES, name="last")
    net = smp.DistributedModel.wrap(keras.Model(inputs, last(first(inputs))), {"last": 1})
    handles = {layer.name: weakref.ref(layer.kernel.value.handle) for layer in (first, last)}
    models.smp_steps(net, keras.optimizers.Adam(), models.batches(2, 16))
    end_s = time.monotonic() + 30
    while True:
        gc.collect()
        alive = {name: handle() is not None for name, handle in handles.items()}
        if not all(alive.values()) or time.monotonic() > end_s:
            return alive
        time.sleep(0.1)  # the thread that reports on the first step does not let go of it at once


def test_the_parts_of_a_step_are_compiled_by_xla() -> None:
    environment = {"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=2"}
    for losses, plain_losses, clusters in ranks.run(2, compile_with_xla, config=MANUAL, environment=environment):
        assert losses == pytest.approx(plain_losses, rel=1e-4)
        assert clusters > 0


def compile_with_xla() -> Any:
    import keras
    import tensorflow as tf
    from tensorflow.python.eager import context

    import models

    keras.utils.set_random_seed(4)
    plain_losses = models.plain_steps(models.Skips(2), keras.optimizers.SGD(0.05), models.batches(3, 16))
    tf.config.optimizer.set_jit(True)
    context.context().enable_graph_collection()
    try:
        keras.utils.set_random_seed(4)
        net = models.distributed(models.Skips)(2)
        losses = models.smp_steps(net, keras.optimizers.SGD(0.05), models.batches(3, 16))
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_graph_collection()
        tf.config.optimizer.set_jit(False)
    graphs = [graph for function in metadata.function_graphs for graph in function.partition_graphs]
    return losses, plain_losses, sum(node.op == "_XlaRun" for graph in graphs for node in graph.node)


def test_a_shared_weight_is_sent_once_per_step() -> None:
    (sends_0, receives_0), (sends_1, receives_1) = ranks.run(2, count_messages, config=MANUAL)
    # To partition 1: the weight, and the activations of 4 microbatches. Back: per microbatch the gradients of the
    # activation and of the weight, and the loss.
    assert sends_0 == receives_1 == 1 + 4
    assert sends_1 == receives_0 == 3 * 4


def count_messages() -> tuple[int, int]:
    """Return the number of tensors that this rank sends and receives in a step."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    class Tied(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(models.FEATURES, use_bias=False)

        def call(self, x: Any) -> Any:
            x = self.layer(x)
            with smp.partition(1):
                return tf.matmul(x, self.layer.kernel, transpose_b=True)

    net = Tied()

    @smp.step
    def forward_backward(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x) ** 2.0)
        return tape.gradient(loss, net.trainable_variables), loss

    with configured(microbatches=4):
        train = tf.function(lambda x: forward_backward(x)[1].reduce_mean())
        concrete = train.get_concrete_function(tf.ones([8, models.FEATURES]))
        train(tf.ones([8, models.FEATURES]))
    kinds = [op.type for op in concrete.graph.get_operations()]
    return sum("Send" in kind for kind in kinds), sum("Receive" in kind for kind in kinds)


def test_tensorflow_can_optimize_a_step() -> None:
    for output_text in ranks.run(2, step_with_stderr, config=MANUAL):
        assert "topological" not in output_text


def step_with_stderr() -> str:
    """Train a model with casts, loops and functions, and return the messages of TensorFlow's runtime."""
    import os
    import tempfile

    import keras

    import models

    with tempfile.TemporaryFile("w+") as captured:
        stderr = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            models.smp_steps(models.distributed(models.Language)(2), keras.optimizers.SGD(0.1), models.batches(2, 16))
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        captured.seek(0)
        return captured.read()


def test_weights_are_read_back_from_one_file(tmp_path: Path) -> None:
    for wrapped, subclassed in ranks.run(2, write_and_read_weights, str(tmp_path), config=MANUAL):
        assert wrapped == subclassed == 0.0


def write_and_read_weights(directory: str) -> list[float]:
    """Return the gap between the losses of a model with loaded weights and of the model that saved them."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    def wrapped() -> Any:
        inputs = keras.Input([models.FEATURES])
        first = keras.layers.Dense(8, name="first")
        last = keras.layers.Dense(models.CLASSES, name="last")
        return smp.DistributedModel.wrap(keras.Model(inputs, last(first(inputs))), {"last": 1})

    def prediction(net: Any) -> Any:
        forward = smp.step(lambda x: net(x, training=False))
        return tf.function(lambda x: forward(x).merge())(tf.ones([8, models.FEATURES]))

    gaps = []
    for make in (wrapped, lambda: models.distributed(models.Chain)(2)):
        net, path = make(), f"{directory}/{len(gaps)}.weights.h5"
        models.smp_steps(net, keras.optimizers.SGD(0.1), models.batches(2, 16))
        net.save_weights(path)
        smp.barrier()
        fresh = make()
        prediction(fresh)  # partitions the model; a subclassed one gets its variables
        fresh.load_weights(path)
        gaps.append(float(tf.reduce_max(tf.abs(prediction(net) - prediction(fresh)))))
    return gaps


def test_a_weight_that_is_on_all_ranks_has_one_value() -> None:
    first, second = ranks.run(2, use_outside_call, config=MANUAL)
    assert first == second


def use_outside_call() -> list[float]:
    """Train a model with an unseeded random weight that the step uses outside the model's call."""
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.add_weight(shape=(4,), initializer="random_normal")
            self.layer = keras.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.layer(x)

    keras.utils.set_random_seed(100 + smp.rank())
    net = Net()

    @smp.step
    def forward(x: Any) -> Any:
        return tf.reduce_sum(net(x) * net.scale)

    forward(tf.ones([4, 4]))
    return net.scale.numpy().tolist()


def test_arguments_without_effect_are_reported() -> None:
    quiet = {**MANUAL, "pipeline": "_only_forward"}
    with ranks.Job(1, {"partitions": 1, **quiet}) as job:
        (messages,) = job.call(set_idle_options)
        assert "means 'interleaved' here" in job.output()
    assert messages == ["smp.step: autograph: without effect on a step; leave it out"]


def set_idle_options() -> list[str]:
    import logging

    import smdistributed.modelparallel.tensorflow as smp

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    smp.step(autograph=False, input_signature=None)(lambda x: x)
    log.removeHandler(handler)
    return messages


def test_gradients_of_unconnected_variables_are_none_on_all_ranks() -> None:
    for outputs, means, loss in ranks.run(2, leave_a_layer_out, config=MANUAL):
        assert outputs == [None] * 4
        assert means == [None]
        assert loss > 0.0


def leave_a_layer_out() -> Any:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net, unused = models.distributed(models.Chain)(2), tf.Variable(1.0)

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        return {"grads": tape.gradient(loss, [unused]), "loss": loss}

    @smp.step
    def returns_nothing(x: Any) -> None:
        net(x)

    x, y = models.batches(1, 8)[0]
    found = forward_backward(tf.constant(x), tf.constant(y))
    assert returns_nothing(tf.constant(x)) is None
    grads = found["grads"]
    return grads[0].outputs, [grad.accumulate() for grad in grads], float(found["loss"].reduce_mean())
