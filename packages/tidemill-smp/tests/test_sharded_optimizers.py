"""Replicas that shard the slots of an optimizer (`shard_optimizer_state`) train as Keras does in one process.

They are bit-equal to replicas that keep all slots.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {
    "auto_partition": False,
    "default_partition": 0,
    "microbatches": 2,
    "ddp": True,
    "shard_optimizer_state": True,
    "bind_cores": False,
}
TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
OPTIMIZERS = ("adam", "momentum_clipped", "scaled_clipped", "averaging", "accumulating_clipped", "clipped_by_hand")
OTHERS = (
    "weight_decay_clipped_each",
    "scaled",
    "averaging_to_the_end",
    "accumulating",
    "accumulating_averaging",
    "nadam",
    "adafactor",
    "several",
    "plain",
)
NORM_OF_KERAS = ("momentum_clipped", "scaled_clipped", "accumulating_clipped", "several")
"""Without partitions and sharding Keras computes the norm, in a different order."""


@pytest.mark.parametrize(
    ("partitions", "optimizers"),
    [
        (1, ("adam", "momentum_clipped", "schedule_free")),
        (2, OPTIMIZERS),
        pytest.param(1, (*OPTIMIZERS[2:], *OTHERS), marks=pytest.mark.matrix),
        pytest.param(2, OTHERS, marks=pytest.mark.matrix),
    ],
    ids=["one partition", "two partitions", "one partition, others", "two partitions, others"],
)
def test_weights_equal_those_of_keras_and_of_replicas_that_keep_all_slots(
    partitions: int, optimizers: tuple[str, ...]
) -> None:
    results = ranks.run(2 * partitions, train_both, optimizers, config={**CONFIG, "partitions": partitions})
    for rank, result in enumerate(results):
        for name, (whole, shared, plain_losses, gaps) in result.items():
            assert shared["losses"] == pytest.approx(plain_losses, rel=1e-5), f"{name} on rank {rank}"
            assert max(gaps.values()) < 2e-6, f"{name} on rank {rank}: {gaps}"
            if partitions == 1 and name in NORM_OF_KERAS:
                for one, other in zip(whole["weights"], shared["weights"], strict=True):
                    assert one == pytest.approx(other, abs=1e-6), f"{name} on rank {rank}"
            else:
                assert whole["raw"] == shared["raw"], f"{name} on rank {rank}"
            assert shared["raw"] == results[rank % partitions][name][1]["raw"], f"{name}: replicas differ in some bit"
            assert whole["iterations"] == shared["iterations"]
            assert whole["losses"] == pytest.approx(shared["losses"], rel=1e-6)


@pytest.mark.parametrize("partitions", [1, 2])
def test_each_slot_is_on_one_replica_and_each_has_about_half_of_the_bytes(partitions: int) -> None:
    results = ranks.run(2 * partitions, slots_held, config={**CONFIG, "partitions": partitions})
    for partition in range(partitions):
        first, second = results[partition], results[partition + partitions]
        mine, others = set(first["held"]), set(second["held"])
        assert not mine & others
        assert mine | others == set(first["of_partition"]) == set(second["of_partition"])
        whole = sum(first["of_partition"].values())
        for result in (first, second):
            assert sum(result["held"].values()) == pytest.approx(whole / 2, rel=0.15)
            assert result["resident"] == result["held"], "what is remote has no memory"
        peer = f"rank {partition + partitions} (partition {partition} of replica 1)"
        assert all(f"held by {peer}" in text for text in first["refusals"])
        assert first["refusals"]


def test_optimizers_of_tf_keras_shard_their_slots_too() -> None:
    config = {**CONFIG, "partitions": 1}
    for rank, result in enumerate(ranks.run(2, train_with_tf_keras, config=config, environment=TF_KERAS)):
        for name, (gap, held) in result["trained"].items():
            assert gap[0] <= (1e-7 if "clipped" in name else 0.0), f"{name} on rank {rank}: not as without sharding"
            assert gap[1] < 2e-6, f"{name} on rank {rank}: not as in one process"
            assert 0 < held[0] < held[1], f"{name} on rank {rank}"
        averaged, nadam, scaled = result["refused"]
        assert "LossScaleOptimizer of Keras 2 would need the gradients of all" in scaled
        assert "cannot shard the averages of weights (use_ema)" in averaged
        assert "cannot shard the product of rates that Nadam of Keras 2 keep" in nadam


def test_a_model_trains_by_fit_and_is_saved_whole(tmp_path: Path) -> None:
    config = {**CONFIG, "partitions": 2, "microbatches": 1}
    results = ranks.run(4, fit_and_save, str(tmp_path), config=config)
    shared, whole, files = (results[0][name] for name in ("shared", "whole", "slots"))
    assert shared == whole
    assert shared[:2] == shared[2:], "replicas are equal"
    assert files["shared"] == files["whole"], "a file has the slots of all replicas"
    assert len(files["shared"]) == 2 + 3 * 5, "iteration, rate, and three of each variable"


def test_an_optimizer_built_before_the_model_is_partitioned_frees_slots_of_other_replicas() -> None:
    results = ranks.run(2, build_early, config={**CONFIG, "partitions": 1})
    for counts, raw, gap in results:
        assert gap < 2e-6, "as in one process"
        assert counts["whole"] == (5, 0)
        assert raw == results[0][1]
        assert raw["shared"] == raw["whole"]
    (first, others), (second, rest) = (counts["shared"] for counts, _, _ in results)
    assert (first, others) == (rest, second)
    assert first + second == 5
    assert min(first, second) > 0


def test_variables_without_gradients_and_replicas_with_nothing_to_update_are_passed_over() -> None:
    results = ranks.run(2, train_few, config={**CONFIG, "partitions": 1})
    for rank, result in enumerate(results):
        for name, (whole, shared, gap) in result.items():
            assert gap < 2e-6, f"{name} on rank {rank}: not as in one process"
            assert whole == shared, f"{name} on rank {rank}"
            assert shared == results[0][name][1]


def test_an_optimizer_that_cannot_be_sharded_is_refused() -> None:
    for in_step, own in ranks.run(2, refused, config={**CONFIG, "partitions": 1}):
        assert "apply_gradients was called inside an smp.step, and 'ddp' is True" in in_step
        assert "Own keeps" in own
        assert "of shape (3,), which is not a slot of one variable" in own
        assert "create slots with add_variable_from_reference" in own


def test_variables_are_sharded_by_bytes() -> None:
    import tensorflow as tf

    from smdistributed.modelparallel.tensorflow.optimizers.slots import Sharding

    group = SimpleNamespace(rank=0, size=3)
    sharding = Sharding(cast("Any", SimpleNamespace(dp_group=group)))
    variables = [tf.Variable(tf.zeros(size)) for size in (5, 100, 40, 60, 5, 40)]
    sharding.assign_owners(variables)
    assert [sharding.owner(variable) for variable in variables] == [1, 0, 2, 1, 1, 2], "100, 60 + 5 + 5, 40 + 40"
    later = tf.Variable(tf.zeros(50))
    sharding.assign_owners([*variables, later])
    assert sharding.owner(later) == 1, "which had least"
    assert sharding.owner(variables[0]) == 1, "and what is given out stays"


# --- on the ranks -----------------------------------------------------------------------------------------------------


def _optimizer(name: str) -> Any:
    import keras

    o = keras.optimizers
    several = {"head/.*": o.Adam(0.01, global_clipnorm=0.5)}
    return {
        "adam": lambda: o.Adam(0.01),
        "clipped_by_hand": lambda: o.Adam(0.01),
        "momentum_clipped": lambda: o.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
        "weight_decay_clipped_each": lambda: o.AdamW(0.01, weight_decay=0.1, clipnorm=0.1),
        "scaled": lambda: o.LossScaleOptimizer(o.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
        "scaled_clipped": lambda: o.LossScaleOptimizer(
            o.SGD(0.1, momentum=0.9, global_clipnorm=0.5), initial_scale=8.0, dynamic_growth_steps=2
        ),
        "averaging": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        "averaging_to_the_end": lambda: o.Adam(0.01, use_ema=True, ema_momentum=0.5),
        "accumulating": lambda: o.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
        "accumulating_clipped": lambda: o.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.05),
        "accumulating_averaging": lambda: o.SGD(
            0.1, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2
        ),
        "nadam": lambda: o.Nadam(0.01),
        "adafactor": lambda: o.Adafactor(0.01),
        "schedule_free": lambda: o.ScheduleFreeAdamW(0.01),
        "several": lambda: o.MultiOptimizer(o.OptimizerMap(o.SGD(0.1, momentum=0.9), several)),
        "plain": lambda: o.SGD(0.1),
    }[name]()


def _apply(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    del first_batch
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def _apply_clipped(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    import smdistributed.modelparallel.tensorflow as smp

    _apply(model, optimizer, smp.clip_by_global_norm(grads, 0.05)[0], first_batch)


def _apply_clipped_plainly(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    import tensorflow as tf

    _apply(model, optimizer, tf.clip_by_global_norm(grads, 0.05)[0], first_batch)


def _finish(model: Any, optimizer: Any) -> None:
    optimizer.finalize_variable_values(model.trainable_variables)


def train_both(names: tuple[str, ...]) -> Any:
    return {name: (_trained(name, shared=False), *_trained_as_plainly(name)) for name in names}


def _trained_as_plainly(name: str) -> tuple[dict[str, Any], list[float], dict[int, float]]:
    """Train with sharding; return the losses of plain Keras, and the gaps to its weights by index."""
    import numpy as np

    import hybrid

    shared = _trained(name, shared=True)
    weights, losses = hybrid.train_plain(
        _optimizer(name),
        _apply_clipped_plainly if name == "clipped_by_hand" else _apply,
        finish=_finish if name == "averaging_to_the_end" else None,
    )
    pairs = zip(shared["places"], shared["weights"], strict=True)
    return shared, losses, {place: float(np.abs(value - weights[place]).max()) for place, value in pairs}


def _trained(name: str, *, shared: bool) -> dict[str, Any]:
    import hybrid
    import sessions

    with sessions.configured(shard_optimizer_state=shared):
        optimizer = _optimizer(name)
        net, losses = hybrid.train(optimizer, _apply_clipped if name == "clipped_by_hand" else _apply)
        if name == "averaging_to_the_end":
            _finish(net, optimizer)
        weights = list(hybrid.held(net).values())
        return {
            "places": list(hybrid.held(net)),
            "losses": losses,
            "weights": weights,
            "raw": [value.tobytes() for value in weights],
            "iterations": int(optimizer.iterations),
        }


def slots_held() -> dict[str, Any]:
    import tensorflow as tf

    import checkpoints
    from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError
    from smdistributed.modelparallel.tensorflow.variables import is_remote, tensorflow_variable

    training = checkpoints.Training()
    training.run_to(1)
    model, optimizer = training.model, training.optimizer
    of_partition, held, resident, refusals = {}, {}, {}, []
    for variable, *both in zip(model.trainable_variables, optimizer._momentums, optimizer._velocities, strict=True):
        for slot in map(tensorflow_variable, () if is_remote(variable) else both):
            size = slot.shape.num_elements() * slot.dtype.size
            of_partition[slot.name] = size
            if tf.raw_ops.VarIsInitializedOp(resource=slot.handle):
                resident[slot.name] = size
            if not is_remote(slot):
                held[slot.name] = size
                continue
            with pytest.raises(SMPRemoteVariableError) as refusal:
                slot.numpy()
            refusals.append(str(refusal.value))
    return {"of_partition": of_partition, "held": held, "resident": resident, "refusals": refusals}


def train_with_tf_keras() -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    import hybrid
    import sessions
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    o, trained = tf.keras.optimizers, {}
    kinds = {
        "adam": lambda: o.Adam(0.01),
        "clipped": lambda: o.Adam(0.01, global_clipnorm=0.5),
        "legacy adam": lambda: o.legacy.Adam(0.01),
        "legacy clipped": lambda: o.legacy.Adam(0.01, global_clipnorm=0.5),
        "legacy momentum": lambda: o.legacy.SGD(0.1, momentum=0.9),
    }
    for name, kind in kinds.items():
        weights = []
        for shared in (False, True):
            optimizer = kind()
            with sessions.configured(shard_optimizer_state=shared):
                net, _ = hybrid.train(optimizer, _apply)
            weights.append(hybrid.held(net))
        whole = max(float(np.max(np.abs(value - weights[1][at]))) for at, value in weights[0].items())
        gap = whole, max(hybrid.differences(net, hybrid.train_plain(kind())[0]).values())
        variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        trained[name] = gap, (sum(not is_remote(variable) for variable in variables), len(variables))
    refusals = []
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    for kind in (lambda: o.Adam(0.01, use_ema=True), lambda: o.Nadam(0.01), lambda: scaling(o.Adam(0.01))):
        with pytest.raises(Exception, match="SMPUsageError") as refusal:
            hybrid.train(kind(), _apply)
        refusals.append(str(refusal.value))
    return {"trained": trained, "refused": refusals}


def fit_and_save(directory: str) -> dict[str, Any]:
    import keras
    import numpy as np

    import hybrid
    import models
    import sessions
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    class Described(hybrid.Net):
        def get_config(self) -> dict[str, Any]:
            return {}

    result: dict[str, Any] = {"slots": {}}
    (x, y), *_ = models.batches(1, 16)
    for name in ("whole", "shared"):
        with sessions.configured(shard_optimizer_state=name == "shared"):
            keras.utils.set_random_seed(3)
            model = models.distributed(Described)()
            model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5), "mse")
            model.fit(hybrid.share(x), hybrid.share(y), batch_size=4, epochs=2, verbose=0, shuffle=False)
            path = Path(directory) / f"{name}.keras"
            model.save(path)
        mine = [np.asarray(one).tobytes() for one in model.trainable_variables if not is_remote(one)]
        result[name] = smp.allgather(mine, smp.WORLD)
        if smp.rank() == 0:
            result["slots"][name] = _slots_in(path)
    return result


def _slots_in(path: Path) -> dict[str, bytes]:
    """Return the variables of the optimizer in a .keras file."""
    import io
    import zipfile

    import h5py

    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        return {name: values[()].tobytes() for name, values in file["optimizer/vars"].items()}


def build_early() -> Any:
    import keras

    import hybrid
    import models
    import sessions
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    class Built(hybrid.Net):
        def __init__(self) -> None:
            super().__init__()
            self.embedding.build(None)
            self.body.build((None, models.FEATURES))
            self.head.build((None, 8))
            optimizer.build([*self.embedding.weights, *self.body.weights, *self.head.weights])

    raw, counts = {}, {}
    for name in ("whole", "shared"):
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        with sessions.configured(shard_optimizer_state=name == "shared"):
            net, _ = hybrid.train(optimizer, _apply, kind=Built)
        raw[name] = [value.tobytes() for value in hybrid.held(net).values()]
        remote = [is_remote(slot) for slot in optimizer.momentums]
        counts[name] = remote.count(False), remote.count(True)
    weights, _ = hybrid.train_plain(keras.optimizers.SGD(0.1, momentum=0.9))
    return counts, raw, max(hybrid.differences(net, weights).values())


def _apply_without_one(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    _apply(model, optimizer, [grads[0], None, *grads[2:]], first_batch)


def _apply_one(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    del first_batch
    optimizer.apply_gradients([(grads[1], model.trainable_variables[1])])


def train_few() -> Any:
    import keras

    import hybrid
    import sessions

    o = keras.optimizers
    cases = {
        "without one, averaging": (
            _apply_without_one,
            lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        ),
        "one, nadam": (_apply_one, lambda: o.Nadam(0.01)),
        "one, scaled": (_apply_one, lambda: o.LossScaleOptimizer(o.Adam(0.01, clipnorm=0.1), initial_scale=8.0)),
        "one, accumulating": (_apply_one, lambda: o.Adam(0.01, gradient_accumulation_steps=2, use_ema=True)),
    }
    results = {}
    for name, (apply, make) in cases.items():
        raw = []
        for shared in (False, True):
            with sessions.configured(shard_optimizer_state=shared):
                net, _ = hybrid.train(make(), apply)
            raw.append([value.tobytes() for value in hybrid.held(net).values()])
        weights, _ = hybrid.train_plain(make(), apply)
        results[name] = *raw, max(hybrid.differences(net, weights).values())
    return results


def refused() -> tuple[str, str]:
    import keras
    import tensorflow as tf

    import checkpoints
    import hybrid
    import models
    import smdistributed.modelparallel.tensorflow as smp

    class Own(keras.optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.sums = self.add_variable((3,), name="sums")

    with pytest.raises(Exception, match="SMPUsageError") as own:
        hybrid.train(Own(0.1, momentum=0.9), _apply)

    training = checkpoints.Training()
    model, optimizer = training.model, training.optimizer

    @smp.step
    def update(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(model, x, y)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    (x, y), *_ = models.batches(1, 8)
    with pytest.raises(Exception, match="apply_gradients") as in_step:
        update(x, y)
    return str(in_step.value), str(own.value)
