"""Times of layers, measured for the automatic cut."""

import time
from pathlib import Path
from typing import Any

import ranks

NAPS_S = (0.015, 0.005, 0.005, 0.005)


def test_the_cut_goes_by_measured_times() -> None:
    for slowest, estimated, measured, message in ranks.run(2, profile_and_train, config={"auto_partition": True}):
        assert slowest > 2 * NAPS_S[0] * 1e6
        # By estimate four equal layers, two for each rank; in truth the first takes as long as the others.
        assert estimated == [0, 0, 1, 1]
        assert measured == [0, 1, 1, 1]
        assert "before the first step" in message


def profile_and_train() -> Any:
    """The time of the slowest layer in microseconds; where the layers go, on paper and in the step; the refusal."""
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

    x = tf.ones([16, 64])  # the same on both ranks
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


def test_every_kind_of_layer_is_measured() -> None:
    (units, times) = ranks.run(1, measure_all, config={"partitions": 1})[0]
    assert units
    assert {unit for unit in units if not times.get(unit)} == set()


def measure_all() -> tuple[list[str], dict[str, bool]]:
    """The layers of a model, and which of them took time forward and backward."""
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


def test_what_was_only_measured_or_planned_is_not_saved_empty(tmp_path: Path) -> None:
    for before, planned, after in ranks.run(2, save_too_early, str(tmp_path), config={"microbatches": 2}):
        assert set(before) == {"save_model", "save_weights", "get_weights", "checkpoint", "export"}
        assert before.pop("save_model").startswith("SMPUsageError: the model 'net' cannot be saved yet")
        for text in [*before.values(), planned]:
            assert "2 variables have no values yet (net/layer/kernel, net/layer/bias)" in text
            assert "run one step before" in text
        assert after == [(6, 4), (4,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mp_rank_0", "mp_rank_1", "planned.weights.h5"]


def save_too_early(directory: str) -> Any:
    """What is said before the first step, of a measured model and of one that rank 0 planned; shapes after it."""
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

    def said(call: Any) -> str:
        try:
            return f"nothing was raised: {call()}"
        except SMPError as error:
            return f"{type(error).__name__}: {error}"

    forget_the_step_before()
    x, net = tf.ones([8, models.FEATURES]), Net()
    manager = smp.CheckpointManager(tf.train.Checkpoint(model=net), directory)
    net.profile(x)
    before = {
        "save_model": said(lambda: net.save_model(f"{directory}/model")),
        "save_weights": said(lambda: net.save_weights(f"{directory}/too_early.weights.h5")),
        "get_weights": said(net.get_weights),
        "checkpoint": said(manager.save),
        "export": said(lambda: manager.export(f"{directory}/whole")),
    }
    paper = Net()
    if smp.rank() == 0:
        smp.plan(paper, x)
    planned = said(lambda: paper.save_weights(f"{directory}/planned.weights.h5"))
    smp.step(lambda x: paper(x))(x)
    paper.save_weights(f"{directory}/planned.weights.h5")
    return before, planned, [tuple(variable.shape) for variable in paper.variables]
