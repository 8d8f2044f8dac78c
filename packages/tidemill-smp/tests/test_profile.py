"""Times of layers, measured for the automatic cut."""

import time
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
