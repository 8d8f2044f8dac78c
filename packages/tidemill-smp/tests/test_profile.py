"""Measured times of layers for automatic partitioning."""

import time
from pathlib import Path
from typing import Any

import pytest

import ranks
from smdistributed.modelparallel.tensorflow.memory import available_bytes

NAPS_S = (0.015, 0.005, 0.005, 0.005)


def test_the_cut_uses_measured_times() -> None:
    for slowest, estimated, measured, message in ranks.run(2, profile_and_train, config={"auto_partition": True}):
        assert slowest > 2 * NAPS_S[0] * 1e6
        # By estimate four equal layers, two per rank; in fact the first takes as long as the other three.
        assert estimated == [0, 0, 1, 1]
        assert measured == [0, 1, 1, 1]
        assert "before the first step" in message


def slept(x: Any, seconds: float) -> Any:
    """Return ``x``, and its gradient, after a sleep: a time that other load on the machine hardly changes."""
    import tensorflow as tf

    def nap(x: Any) -> Any:
        def sleep(value: Any) -> Any:
            time.sleep(seconds)
            return value

        result = tf.numpy_function(sleep, [x], x.dtype, stateful=False)  # so that it may run more often
        result.set_shape(x.shape)
        return result

    @tf.custom_gradient
    def sleepy(x: Any) -> Any:
        return nap(x), nap

    return sleepy(x)


def profile_and_train() -> Any:
    """Return the time of the slowest layer in microseconds, the planned and the actual placement, and the error."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured
    from smdistributed.modelparallel.backend.exceptions import SMPUsageError
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    class Sleepy(keras.layers.Dense):
        def call(self, x: Any) -> Any:
            return slept(super().call(x), NAPS_S[int(self.name[-1])])

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.body = [Sleepy(64, name=f"layer_{number}") for number in range(4)]

        def call(self, x: Any) -> Any:
            for layer in self.body:
                x = layer(x)
            return x

    def places(decisions: Any) -> list[int]:
        found = {name.rsplit("/", 1)[-1]: part for name, part in decisions.items()}
        return [found[f"layer_{number}"] for number in range(4)]

    x = tf.ones([16, 64])  # equal on both ranks
    with configured(microbatches=4, optimize="speed"):
        paper = smp.plan(Net(), x)
        net = Net()
        net.profile(x)
        net.profile(x)
        models.smp_steps(net, keras.optimizers.SGD(0.1), [(x, tf.zeros([16, 64]))])
        try:
            net.profile(x)
            message = ""
        except SMPUsageError as error:
            message = str(error)
        slowest = max(times.forward_us + (times.backward_us or 0.0) for times in engine().decided.times.values())
        decided = places(engine().decided.automatic)
    estimated = places(dict(zip([unit.name for unit in paper.graph.units], paper.assignment, strict=True)))
    return slowest, estimated, decided, message


@pytest.mark.smp_first
def test_the_cut_uses_times_measured_before_the_first_step_and_a_restart_repeats_it(tmp_path: Path) -> None:
    config = {"auto_partition": True, "optimize": "speed", "microbatches": 2}
    by_time, *_ = ranks.run(2, cut_of_unequal_layers, str(tmp_path), config={**config, "measure_layers": True})
    by_estimate, *_ = ranks.run(2, cut_of_unequal_layers, None, config=config)
    again = ranks.run(2, cut_of_unequal_layers, str(tmp_path), config=config)
    assert dict(by_time)["wide_0"] == 1, "the slow layer has a partition to itself"
    assert dict(by_estimate)["wide_0"] == 0
    assert again == [by_time] * 2, "the checkpoint's cut is repeated where there is nothing to measure by"
    other = ranks.run(2, cut_of_unequal_layers, str(tmp_path), config={**config, "optimize": "memory"})
    assert other != [by_time] * 2, "other options are another decision"


def cut_of_unequal_layers(directory: str | None) -> list[tuple[str, int]]:
    """Return the placement of layers in the first step, restored from and saved to `directory` if given."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from checkpoints import forget_the_step_before
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    class Slow(keras.layers.Layer):
        """A layer that takes far longer than its estimate, which depends on the number of elements."""

        def call(self, x: Any) -> Any:
            return slept(x, 0.1)

    class Wide(keras.layers.Layer):
        """A layer whose time is not lost in the slack by which cuts count as equally good."""

        def build(self, shape: Any) -> None:
            self.inner = self.add_weight(shape=(64, 512), name="inner")
            self.outer = self.add_weight(shape=(512, 64), name="outer")

        def call(self, x: Any) -> Any:
            return slept(x @ self.inner @ self.outer, 0.004)

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.slow = Slow(name="slow")
            self.body = [Wide(name=f"wide_{number}") for number in range(4)]

        def call(self, x: Any) -> Any:
            x = self.slow(x)
            for layer in self.body:
                x = layer(x)
            return x

    forget_the_step_before()
    net, x = Net(), tf.ones([8, 64, 64])
    manager = directory and smp.CheckpointManager(tf.train.Checkpoint(model=net), directory)
    if manager:
        manager.restore()
    models.smp_steps(net, keras.optimizers.SGD(0.1), [(x, tf.zeros([8, 64, 64]))])
    if manager and manager.latest_checkpoint is None:
        manager.save()
    return [(name.rsplit("/", 1)[-1], part) for name, part in engine().decided.automatic.items()]


def test_a_step_runs_on_the_estimate_when_layers_cannot_be_measured_and_a_measured_plan_fails() -> None:
    config = {"auto_partition": True, "optimize": "speed", "microbatches": 2, "measure_layers": True}
    first, second = ranks.run(2, train_with_failing_measurement, config=config)
    warning = (
        "smp: the layers could not be measured (ValueError: the ops of this layer do not run);"
        " automatic partitioning uses estimated times"
    )
    assert first.pop("warnings") == [warning], "rank 0 measures for all"
    assert second.pop("warnings") == []
    assert first == second == {"measured": [], "parts": {0, 1}, "asked": "the ops of this layer do not run"}


def train_with_failing_measurement() -> dict[str, Any]:
    """Return the log of the first step of a model whose layers cannot be imported, and their placement."""
    import logging
    from unittest import mock

    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.engine import profile
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="refused")
            self.body = [keras.layers.Dense(64, name=f"dense_{number}") for number in range(4)]

        def call(self, x: Any) -> Any:
            for layer in self.body:
                x = layer(x)
            return x

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    warnings: list[str] = []
    handler = Lines(logging.WARNING)
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    net, x = Net(), tf.ones([8, 64])
    refusing = mock.Mock(side_effect=ValueError("the ops of this layer do not run"))
    try:
        with mock.patch.object(profile, "execute", mock.Mock(execute=refusing)):
            try:
                smp.plan(Net(), x, measured=True)
                asked = "nothing was raised"
            except ValueError as error:
                asked = str(error).strip().rpartition("\n")[2].strip()
            models.smp_steps(net, keras.optimizers.SGD(0.1), [(x, tf.zeros([8, 64]))])
    finally:
        log.removeHandler(handler)
    places = {unit: part for unit, part in engine().decided.automatic.items() if unit.startswith("/refused/dense_")}
    measured, parts = sorted(places.keys() & engine().decided.times.keys()), set(places.values())
    return {"warnings": warnings, "measured": measured, "parts": parts, "asked": asked}


def test_layers_with_effects_and_what_depends_on_them_are_not_run_to_measure_them() -> None:
    calls, measured = ranks.run(1, measure_layers_that_reach_out, config={"partitions": 1})[0]
    assert calls == 0
    assert measured == {"plain", "printing", "checking"}, "a print or an assertion is left out, and the rest measured"


def measure_layers_that_reach_out() -> tuple[int, set[str]]:
    """Return how often Python was called, and which layers have times."""
    import keras
    import tensorflow as tf

    calls: list[int] = []

    def seen(x: Any) -> Any:
        calls.append(1)
        return x

    class Calling(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            result = tf.numpy_function(seen, [x], tf.float32)
            result.set_shape(x.shape)
            return result

    class Looping(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.while_loop(lambda count, _: count < 2, lambda count, x: (count + 1, Calling()(x)), (0, x))[1]

    class Printing(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            tf.py_function(calls.append, [1], [])
            tf.print("this is not printed")
            return x * 2.0

    class Checking(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            tf.debugging.assert_less(x, 1000.0)
            return x + 1.0

    names = ("plain", "printing", "checking", "calling", "looping", "after")
    kinds = (keras.layers.Dense, Printing, Checking, Calling, Looping, keras.layers.Dense)
    measured = times_of_layers(
        [
            kind(4, name=name) if kind is keras.layers.Dense else kind(name=name)
            for kind, name in zip(kinds, names, strict=True)
        ],
        tf.ones([4, 4]),
    )
    return len(calls), measured.keys() & set(names)


def times_of_layers(body: list[Any], x: Any) -> dict[str, Any]:
    """Return the measured times of layers that are called in turn, by name."""
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import planning
    from smdistributed.modelparallel.tensorflow.engine.profile import measure
    from smdistributed.modelparallel.tensorflow.engine.real_inputs import inputs_of
    from smdistributed.modelparallel.tensorflow.variables import Deferred

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.body = body

        def call(self, x: Any) -> Any:
            for layer in self.body:
                x = layer(x)
            return x

    deferred = Deferred()
    traced = planning.trace_model(Net(), (x,), 1, deferred=deferred)
    times = measure(traced, inputs_of(traced, [x], deferred.values()))
    return {name.rsplit("/", 1)[-1]: found for name, found in times.items()}


STATEFUL_STEPS = 3


def test_measuring_changes_no_state_of_the_script_and_runs_layers_only_on_the_batch() -> None:
    config = {"auto_partition": True, "optimize": "speed", "measure_layers": True}
    expected, *found = ranks.run(2, train_stateful_layers, config=config)[0]
    for name, how in zip(("smp.step in a tf.function", "smp.step called eagerly"), found, strict=True):
        assert how["measured"] >= {"doubling", "dense_0", "dense_1"}, name
        assert not how["measured"] & {"calling", "counted_loop"}, name
        assert how["losses"] == expected["losses"], name
        assert how["calls"] == expected["calls"] == STATEFUL_STEPS, name


def train_stateful_layers() -> list[dict[str, Any]]:
    """Train layers with counters, generators, Python and loops: by plain Keras, and with measured layers."""
    import keras
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    counts = {"calls": 0}

    def seen(x: Any) -> Any:
        counts["calls"] += 1
        return x

    def drawn(shape: Any, dtype: Any = None) -> Any:
        return np.random.normal(size=shape)

    class Counting(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x: Any) -> Any:
            self.count.assign_add(1.0)
            return x / self.count

    class Drawing(keras.layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.seeds = keras.random.SeedGenerator(3)

        def call(self, x: Any) -> Any:
            return x + keras.random.normal(tf.shape(x), seed=self.seeds)

    class Doubling(keras.layers.Layer):
        """Its loop never ends on zeros."""

        def call(self, x: Any) -> Any:
            return tf.while_loop(lambda y: tf.reduce_max(abs(y)) < 100.0, lambda y: (2.0 * y,), (x,))[0] / 100.0

    class CountedLoop(Counting):
        def call(self, x: Any) -> Any:
            self.count.assign_add(1.0)
            limit = tf.convert_to_tensor(self.count)
            return tf.while_loop(lambda n, _: n < limit, lambda n, y: (n + 1.0, 0.5 * y), (0.0, x))[1]

    class Calling(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            @tf.custom_gradient
            def called(x: Any) -> Any:
                result = tf.numpy_function(seen, [x], tf.float32)
                result.set_shape(x.shape)
                return result, lambda upstream: upstream

            return called(x)

    def make(kind: type) -> Any:
        class Net(kind):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(name="stateful")
                self.body = [
                    keras.layers.Dense(6, kernel_initializer=drawn, name="dense_0"),
                    Doubling(name="doubling"),
                    Counting(name="counting"),
                    Drawing(name="drawing"),
                    CountedLoop(name="counted_loop"),
                    keras.layers.Dense(6, kernel_initializer=keras.initializers.Identity(), name="dense_1"),
                    Calling(name="calling"),
                    keras.layers.Dense(models.CLASSES, kernel_initializer=keras.initializers.Ones(), name="last"),
                ]

            def call(self, x: Any) -> Any:
                for layer in self.body:
                    x = layer(x)
                return x

        np.random.seed(5)
        counts.update(calls=0)
        return Net()

    data = models.batches(STATEFUL_STEPS, 8)
    found = [{"losses": models.plain_steps(make(keras.Model), keras.optimizers.SGD(0.1), data), **counts}]
    for steps in (models.smp_steps, eager_steps):
        engine().decided.times.clear()
        losses = steps(make(smp.DistributedModel), keras.optimizers.SGD(0.1), data)
        # Each rank that holds a layer counts the calls of Python.
        totals = {name: sum(engine().session.world_group.allgather_objects(count)) for name, count in counts.items()}
        measured = {unit.rsplit("/", 1)[-1] for unit in engine().decided.times}
        found.append({"losses": losses, "measured": measured, **totals})
    return found


def test_without_values_or_memory_a_step_runs_on_estimates_and_takes_no_element_from_an_iterator() -> None:
    config = {"auto_partition": True, "optimize": "speed", "measure_layers": True}
    seen, measured, warnings, refused = ranks.run(2, train_without_values, config=config)[0]
    assert seen == [1.0, 2.0, 3.0], "each element once"
    assert measured == {"iterator": False, "little memory": False, "both": True}
    assert len(warnings) == 1 and "one process would need" in warnings[0]
    assert "smp.plan(measured=True): layers are measured on the batch, but it has a tf.TensorSpec" in refused


def train_without_values() -> tuple[list[float], dict[str, bool], list[str], str]:
    """Train on an iterator inside the function, with little memory, and on a batch. Return what was seen and measured.

    Also return the warnings, and the error of `smp.plan` for a batch without values.
    """
    import logging
    from unittest import mock

    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.backend.exceptions import SMPUsageError
    from smdistributed.modelparallel.tensorflow.engine import decisions
    from smdistributed.modelparallel.tensorflow.engine import engine as engines

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.body = [keras.layers.Dense(4, name="first"), keras.layers.Dense(4, name="second")]

        def call(self, x: Any) -> Any:
            for layer in self.body:
                x = layer(x)
            return x

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    warnings: list[str] = []
    handler = Lines(logging.WARNING)
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    measured: dict[str, bool] = {}

    def train(name: str, take: Any, source: Any, *, steps: int = 1) -> list[float]:
        engines.engine().decided.times.clear()
        net = Net()

        @smp.step
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(net(x))
            return tape.gradient(loss, net.trainable_variables), tf.reduce_mean(x)

        function = tf.function(lambda source: step(take(source))[1].reduce_mean())
        means = [float(function(source)) for _ in range(steps)]
        measured[name] = any("first" in unit for unit in engines.engine().decided.times)
        return means

    try:
        elements = iter(tf.data.Dataset.range(1, 10).map(lambda n: tf.fill([2, 4], tf.cast(n, tf.float32))))
        seen = train("iterator", next, elements, steps=3)
        with mock.patch.object(decisions, "available_bytes", return_value=10):
            train("little memory", tf.identity, tf.ones([2, 4]))
        train("both", lambda x: tf.concat([x[:1], x[1:] * 2.0], 0), tf.ones([2, 4]))
    finally:
        log.removeHandler(handler)
    try:
        smp.plan(Net(), tf.TensorSpec([2, 4]), measured=True)
        refused = "nothing was raised"
    except SMPUsageError as error:
        refused = str(error)
    return seen, measured, warnings, refused


def test_the_memory_left_is_that_of_the_machine_or_of_the_control_group(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    assert available_bytes(proc=proc, cgroups=groups) is None
    (proc / "self").mkdir(parents=True)
    (groups / "job").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 5 kB\n")
    (proc / "self/cgroup").write_text("0::/job\n")
    (groups / "job/memory.max").write_text("max\n")
    (groups / "job/memory.current").write_text("1000\n")
    assert available_bytes(proc=proc, cgroups=groups) == 5 * 1024
    (groups / "job/memory.max").write_text("4000\n")
    assert available_bytes(proc=proc, cgroups=groups) == 3000


def eager_steps(model: Any, optimizer: Any, data: Any) -> list[float]:
    """Train by a step that is called outside of every `tf.function`."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(model, x, y)
        return tape.gradient(loss, models.trained(model)), loss

    losses = []
    for x, y in data:
        grads, loss = forward_backward(tf.constant(x), tf.constant(y))
        optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], models.trained(model), strict=True))
        losses.append(float(loss.reduce_mean()))
    return losses


def test_every_kind_of_layer_is_measured() -> None:
    (units, times) = ranks.run(1, measure_all, config={"partitions": 1})[0]
    assert units
    assert {unit for unit in units if not times.get(unit)} == set()


def measure_all() -> tuple[list[str], dict[str, bool]]:
    """Return the layers of a model, and those with times of forward and backward pass."""
    import tensorflow as tf

    import models
    from smdistributed.modelparallel.tensorflow import planning
    from smdistributed.modelparallel.tensorflow.engine.profile import measure
    from smdistributed.modelparallel.tensorflow.engine.real_inputs import inputs_of
    from smdistributed.modelparallel.tensorflow.engine.units import unit_graph
    from smdistributed.modelparallel.tensorflow.variables import Deferred

    found: dict[str, bool] = {}
    units: list[str] = []
    for kind in (models.Language, models.Recurrent, models.Mixed, models.Branches):
        net = models.distributed(kind)(1)
        x, deferred = tf.random.uniform([8, models.FEATURES]), Deferred()
        traced = planning.trace_model(net, (x,), 2, deferred=deferred, training=True)
        units += [unit.name for unit in unit_graph(traced, []).units if unit.layer_path]
        times = measure(traced, inputs_of(traced, [x[:4]], deferred.values()))
        found |= {unit: each.forward_us > 0.0 for unit, each in times.items()}
    return units, found


def test_a_model_that_was_only_measured_or_planned_is_not_saved_without_values(tmp_path: Path) -> None:
    for before, planned, after in ranks.run(2, save_too_early, str(tmp_path), config={"microbatches": 2}):
        assert set(before) == {"save_model", "save_weights", "get_weights", "checkpoint", "export"}
        assert before.pop("save_model").startswith("SMPUsageError: the model 'net' cannot be saved yet")
        for text in [*before.values(), planned]:
            assert "2 variables have no values yet (net/layer/kernel, net/layer/bias)" in text
            assert "run one step before" in text
        assert after == [(6, 4), (4,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mp_rank_0", "mp_rank_1", "planned.weights.h5"]


def save_too_early(directory: str) -> Any:
    """Return the errors before the first step of a measured and of a planned model, and the shapes after it."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from checkpoints import forget_the_step_before
    from smdistributed.modelparallel.backend.exceptions import SMPError

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.layer, self.out = keras.layers.Dense(4, name="layer"), keras.layers.ReLU()

        def call(self, x: Any) -> Any:
            return self.out(self.layer(x))

    def error_of(call: Any) -> str:
        try:
            return f"nothing was raised: {call()}"
        except SMPError as error:
            return f"{type(error).__name__}: {error}"

    forget_the_step_before()
    x, net = tf.ones([8, models.FEATURES]), Net()
    manager = smp.CheckpointManager(tf.train.Checkpoint(model=net), directory)
    net.profile(x)
    before = {
        "save_model": error_of(lambda: net.save_model(f"{directory}/model")),
        "save_weights": error_of(lambda: net.save_weights(f"{directory}/too_early.weights.h5")),
        "get_weights": error_of(net.get_weights),
        "checkpoint": error_of(manager.save),
        "export": error_of(lambda: manager.export(f"{directory}/whole")),
    }
    paper = Net()
    if smp.rank() == 0:
        smp.plan(paper, x)
    planned = error_of(lambda: paper.save_weights(f"{directory}/planned.weights.h5"))
    smp.step(lambda x: paper(x))(x)
    paper.save_weights(f"{directory}/planned.weights.h5")
    return before, planned, [tuple(variable.shape) for variable in paper.variables]
