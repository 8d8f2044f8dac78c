"""Measured times of layers for automatic partitioning."""

import time
from pathlib import Path
from typing import Any

import ranks

NAPS_S = (0.015, 0.005, 0.005, 0.005)


def test_the_cut_uses_measured_times() -> None:
    for slowest, estimated, measured, message in ranks.run(2, profile_and_train, config={"auto_partition": True}):
        assert slowest > 2 * NAPS_S[0] * 1e6
        # By estimate four equal layers, two per rank; in fact the first takes as long as the other three.
        assert estimated == [0, 0, 1, 1]
        assert measured == [0, 1, 1, 1]
        assert "before the first step" in message


def profile_and_train() -> Any:
    """Return the time of the slowest layer in microseconds, the planned and the actual placement, and the error."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured
    from smdistributed.modelparallel.backend.exceptions import SMPUsageError
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    def nap(x: Any, seconds: float) -> Any:
        def sleep(value: Any) -> Any:
            time.sleep(seconds)
            return value

        result = tf.numpy_function(sleep, [x], x.dtype)
        result.set_shape(x.shape)
        return result

    class Sleepy(keras.layers.Dense):
        def call(self, x: Any) -> Any:
            seconds = NAPS_S[int(self.name[-1])]

            @tf.custom_gradient
            def sleepy(x: Any) -> Any:
                return nap(x, seconds), lambda upstream: nap(upstream, seconds)

            return sleepy(super().call(x))

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
        slowest = max(times.forward_us + times.backward_us for times in engine().times.values())
        decided = places(engine().decisions)
    estimated = places(dict(zip([unit.name for unit in paper.graph.units], paper.assignment, strict=True)))
    return slowest, estimated, decided, message


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
        """A layer with far more work than its estimate, which depends on the number of elements."""

        def call(self, x: Any) -> Any:
            for _ in range(40):
                x = tf.linalg.inv(x + 10.0 * tf.eye(64))
            return x

    class Wide(keras.layers.Layer):
        """A layer whose time is not lost in the slack by which cuts count as equally good."""

        def build(self, shape: Any) -> None:
            self.inner = self.add_weight(shape=(64, 512), name="inner")
            self.outer = self.add_weight(shape=(512, 64), name="outer")

        def call(self, x: Any) -> Any:
            return x @ self.inner @ self.outer

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
    return [(name.rsplit("/", 1)[-1], part) for name, part in engine().decisions.items()]


def test_a_step_runs_on_the_estimate_when_layers_cannot_be_measured_and_a_measured_plan_fails() -> None:
    config = {"auto_partition": True, "optimize": "speed", "microbatches": 2, "measure_layers": True}
    first, second = ranks.run(2, train_with_failing_measurement, config=config)
    warning = (
        "smp: the layers could not be measured (ValueError: the graph of this layer cannot be imported);"
        " automatic partitioning uses estimated times"
    )
    assert first.pop("warnings") == [warning], "rank 0 measures for all"
    assert second.pop("warnings") == []
    assert first == second == {"measured": [], "parts": {0, 1}, "asked": "the graph of this layer cannot be imported"}


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
    refusing = mock.Mock(side_effect=ValueError("the graph of this layer cannot be imported"))
    try:
        with mock.patch.object(profile, "importer", mock.Mock(import_graph_def=refusing)):
            try:
                smp.plan(Net(), x, measured=True)
                asked = "nothing was raised"
            except ValueError as error:
                asked = str(error).strip().rpartition("\n")[2].strip()
            models.smp_steps(net, keras.optimizers.SGD(0.1), [(x, tf.zeros([8, 64]))])
    finally:
        log.removeHandler(handler)
    places = {unit: part for unit, part in engine().decisions.items() if unit.startswith("/refused/dense_")}
    measured, parts = sorted(places.keys() & engine().times.keys()), set(places.values())
    return {"warnings": warnings, "measured": measured, "parts": parts, "asked": asked}


def test_layers_with_effects_outside_the_graph_are_measured_only_on_request() -> None:
    (calls_before, quiet, calls_after, asked) = ranks.run(1, measure_layers_that_reach_out, config={"partitions": 1})[0]
    assert calls_before == 0 and quiet == {"plain"}
    assert calls_after > 0 and asked >= {"plain", "calling", "looping"}


def measure_layers_that_reach_out() -> tuple[int, set[str], int, set[str]]:
    """Return how often Python was called, and which layers have times: measured by default, and on request."""
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import planning
    from smdistributed.modelparallel.tensorflow.engine.profile import measure

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

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.plain = keras.layers.Dense(4, name="plain")
            self.calling, self.looping = Calling(name="calling"), Looping(name="looping")

        def call(self, x: Any) -> Any:
            return self.looping(self.calling(self.plain(x)))

    traced = planning.trace_model(Net(), (tf.ones([4, 4]),), 1)
    layers = {"plain", "calling", "looping"}
    quiet = {name.rsplit("/", 1)[-1] for name in measure(traced, reaching_out=False)} & layers
    before = len(calls)
    asked = {name.rsplit("/", 1)[-1] for name in measure(traced)} & layers
    return before, quiet, len(calls), asked


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
    from smdistributed.modelparallel.tensorflow.engine.units import unit_graph

    found: dict[str, bool] = {}
    units: list[str] = []
    for kind in (models.Language, models.Recurrent, models.Mixed, models.Branches):
        net = models.distributed(kind)(1)
        traced = planning.trace_model(net, (tf.zeros([8, models.FEATURES]),), 2, training=True)
        units += [unit.name for unit in unit_graph(traced, []).units if unit.layer_path]
        found |= {unit: times.forward_us > 0.0 for unit, times in measure(traced).items()}
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
