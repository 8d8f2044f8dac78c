"""Two replicas of two partitions, averaged by the library (`ddp`), train as one process on the whole batch."""

from typing import Any

import pytest

import ranks

CONFIG = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2, "horovod": True}
TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
OPTIMIZERS = ("adam", "momentum_clipped", "scaled", "averaging")


@pytest.mark.smp_first
@pytest.mark.parametrize("seeds", [pytest.param("same seed", marks=pytest.mark.matrix), "other seeds"])
def test_training_equals_one_process_on_the_whole_batch(seeds: str) -> None:
    results = ranks.run(4, train_both, ("adam",) if seeds == "other seeds" else OPTIMIZERS, seeds, config=CONFIG)
    for rank, result in enumerate(results):
        for name, (losses, plain_losses, gaps, weights) in result.items():
            assert losses == pytest.approx(plain_losses, rel=1e-5), f"{name} on rank {rank}"
            assert max(gaps.values()) < 2e-6, f"{name} on rank {rank}: {gaps}"
            assert set(gaps) == ({0, 1, 2} if rank % 2 == 0 else {3, 4})
            assert weights == results[rank % 2][name][3], f"{name}: replicas differ in some bit"


@pytest.mark.matrix
def test_optimizers_of_tf_keras_average_too() -> None:
    config = {"partitions": 1, "microbatches": 2, "ddp": True, "bind_cores": False}
    for losses, plain_losses, gaps in ranks.run(2, train_with_tf_keras, config=config, environment=TF_KERAS):
        assert losses == pytest.approx(plain_losses, rel=1e-5)
        assert max(gaps) < 2e-6


def test_different_batches_on_ranks_of_one_replica_are_an_error() -> None:
    results = ranks.run(4, feed_differently, config=CONFIG)
    assert results[:2] == ["", ""], "replica 0 has equal ones"
    for text in results[2:]:
        assert "SMPInputMismatchError: call 2 of forward: 'y' on rank 3 (partition 1 of replica 1) differs" in text
        assert "differs from that on rank 2 (partition 0 of replica 1)" in text
        assert "shard by smp.dp_rank()" in text


def test_called_eagerly_a_step_raises_the_exception_itself() -> None:
    assert ranks.run(4, feed_differently_eagerly, config=CONFIG) == ["", "", "{'x': 1}", "{'x': 1}"]


def test_inputs_are_not_compared_if_check_inputs_is_off() -> None:
    for total in ranks.run(4, feed_differently_unchecked, config=CONFIG):
        assert total > 0.0


# --- on the ranks -----------------------------------------------------------------------------------------------------


def _optimizer(name: str) -> Any:
    import keras

    o = keras.optimizers
    return {
        "adam": lambda: o.Adam(0.01),
        "momentum_clipped": lambda: o.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
        "scaled": lambda: o.LossScaleOptimizer(o.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
        "averaging": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    }[name]()


def _apply(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    del first_batch
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def train_both(names: tuple[str, ...], seeds: str, **changes: Any) -> Any:
    """Train with equal or different seeds. With different seeds, replicas start equal only if the library does it."""
    import hybrid
    import sessions
    import smdistributed.modelparallel.tensorflow as smp

    results = {}
    for name in names:
        with sessions.configured(ddp=True, horovod=False, **changes):
            net, losses = hybrid.train(_optimizer(name), _apply, seed=3 + (smp.dp_rank() if "other" in seeds else 0))
        weights, plain_losses = hybrid.train_plain(_optimizer(name))
        raw = [value.tobytes() for value in hybrid.held(net).values()]
        results[name] = losses, plain_losses, hybrid.differences(net, weights), raw
    return results


def train_with_tf_keras() -> Any:
    import tensorflow as tf

    import hybrid

    losses, plain_losses, gaps = [], [], []
    o, scaling = tf.keras.optimizers, tf.keras.mixed_precision.LossScaleOptimizer
    for kind in (
        lambda: o.Adam(0.01),
        lambda: o.legacy.Adam(0.01),
        lambda: scaling(o.Adam(0.01, global_clipnorm=0.5)),
        lambda: scaling(o.legacy.SGD(0.1)),
    ):
        net, mine = hybrid.train(kind(), _apply)
        weights, plain = hybrid.train_plain(kind())
        losses += mine
        plain_losses += plain
        gaps += hybrid.differences(net, weights).values()
    return losses, plain_losses, gaps


def _forward() -> Any:
    import hybrid
    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(hybrid.Net)()

    @smp.step
    def forward(x: Any, y: Any) -> Any:
        return models.loss_of(net, x, y)

    return forward


def feed_differently() -> str:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    forward = _forward()
    run = tf.function(lambda x, y: forward(x, y).reduce_mean())
    (x, y), *_ = models.batches(1, 8)
    run(tf.constant(x), tf.constant(y))
    try:
        run(tf.constant(x), tf.constant(y + (1.0 if smp.rank() == 3 else 0.0)))
    except tf.errors.OpError as error:
        return str(error)
    return ""


def feed_differently_eagerly() -> str:
    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.backend.exceptions import SMPInputMismatchError

    forward = _forward()
    (x, y), *_ = models.batches(1, 8)
    try:
        forward(x + (1.0 if smp.rank() == 2 else 0.0), y)
    except SMPInputMismatchError as error:
        return str({name: str(error).count(f"'{name}'") for name in ("x", "y") if f"'{name}'" in str(error)})
    return ""


def feed_differently_unchecked() -> float:
    import models
    import sessions
    import smdistributed.modelparallel.tensorflow as smp

    with sessions.configured(check_inputs=False):
        forward = _forward()
        (x, y), *_ = models.batches(1, 8)
        return float(forward(x + smp.rank(), y).reduce_mean())
