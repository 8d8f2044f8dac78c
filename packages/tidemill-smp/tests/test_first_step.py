"""What happens before the first step: what is traced, how segments are ordered, and what rank 0 prints."""

from typing import Any

import ranks

CONFIG = {"microbatches": 2, "auto_partition": True, "measure_layers": True}


def test_the_first_step_builds_one_function_per_segment_and_orders_it_by_one_op() -> None:
    for traced, segments, waiting, effects in ranks.run(2, build, config=CONFIG):
        assert traced.count("smp_segment") == segments and traced.count("smp_step") == 1
        # One function computes the microbatch from the batch. To build another per layer takes longer than to run it.
        assert traced.count("smp_measured_layer") <= 1
        assert effects >= 4
        # If each output waits for each update of a moving average, TensorFlow optimizes mostly control edges.
        assert waiting and all(set(ops) <= {"finished", "NoOp"} for ops in waiting), waiting


def build() -> Any:
    """Return the names of traced functions, the number of segments, and for each the ops that wait for updates."""
    from unittest import mock

    import keras
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    layers = [layer for _ in range(6) for layer in (keras.layers.Dense(8), keras.layers.BatchNormalization())]
    net = smp.DistributedModel.wrap(keras.Sequential([keras.Input((8,)), *layers]))

    @smp.step
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x, training=True) ** 2)
        return tape.gradient(loss, net.trainable_variables), loss

    traced: list[str] = []
    original = func_graph.func_graph_from_py_func

    def tracing(name: str, *args: Any, **kwargs: Any) -> Any:
        traced.append(name)
        return original(name, *args, **kwargs)

    whole = tf.function(lambda x: step(x)[1].reduce_mean(), autograph=False)
    x = tf.random.stateless_uniform([8, 8], (1, 2))
    with mock.patch.object(func_graph, "func_graph_from_py_func", tracing):
        graph = whole.get_concrete_function(x).graph.as_graph_def()
    assert smp.rank() > 0 or engine().decided.times
    segments = [function for function in graph.library.function if "smp_segment" in function.signature.name]
    updates = {node.name for function in segments for node in function.node_def if node.op.startswith("Assign")}
    waiting = [
        [node.name for node in function.node_def if sum(name.lstrip("^") in updates for name in node.input) > 1]
        for function in segments
    ]
    return traced, len(segments), [ops for ops in waiting if ops], len(updates)


def test_rank_0_prints_what_it_does_until_the_first_step_has_run() -> None:
    first, second = ranks.run(2, report, config=CONFIG)
    (lines, is_over), (silent, _) = first, second
    assert silent == []
    assert all(line.startswith("smp: preparing the step 'forward': ") for line in lines)
    assert all(line.endswith(" s in total so far") for line in lines)
    assert any(": tracing the step for one microbatch (for " in line for line in lines)
    assert "TensorFlow finishes and optimizes the graph, and runs the first step" in lines[-1]
    assert is_over


def report() -> tuple[list[str], bool]:
    """Return the lines that this rank printed about a step that waits for them, and whether the report ended."""
    import threading
    from unittest import mock

    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import progress

    lines: list[str] = []
    traced, running = threading.Event(), threading.Event()
    reporters = []

    def say(line: str) -> None:
        lines.append(line)
        if "tracing the step" in line:
            traced.set()
        if "runs the first step" in line:
            running.set()

    def wait(event: threading.Event) -> None:
        if smp.rank() == 0:
            reporters.append(progress._local.progress.reporter) if not reporters else None
            assert event.wait(300), lines

    def waited(x: Any) -> Any:
        wait(running)
        return x

    class Waiting(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            result = tf.numpy_function(waited, [x], tf.float32)
            result.set_shape(x.shape)
            return result

    body = [keras.Input((4,)), Waiting(), keras.layers.Dense(4), keras.layers.Dense(4)]
    net = smp.DistributedModel.wrap(keras.Sequential(body))

    @smp.step
    def forward(x: Any) -> Any:
        wait(traced)
        return net(x)

    with mock.patch.multiple(progress, FIRST_S=0.05, GROWTH=1.0, say=say):
        tf.function(lambda x: forward(x).merge(), autograph=False)(tf.ones([4, 4]))
        for reporter in reporters:
            reporter.join(60)
    return lines, not any(reporter.is_alive() for reporter in reporters)
