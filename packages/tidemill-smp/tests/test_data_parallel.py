"""Two replicas of two partitions, averaged by the library (`ddp`), train as one process on the whole batch."""

from typing import Any

import pytest

import ranks

CONFIG = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2, "horovod": True}
OPTIMIZERS = ("adam", "momentum_clipped", "scaled", "averaging")


@pytest.mark.parametrize("seeds", ["same seed", "other seeds"])
def test_training_equals_one_process_on_the_whole_batch(seeds: str) -> None:
    results = ranks.run(4, train_both, ("adam",) if seeds == "other seeds" else OPTIMIZERS, seeds, config=CONFIG)
    for rank, result in enumerate(results):
        for name, (losses, plain_losses, gaps, weights) in result.items():
            assert losses == pytest.approx(plain_losses, rel=1e-5), f"{name} on rank {rank}"
            assert max(gaps.values()) < 2e-6, f"{name} on rank {rank}: {gaps}"
            assert set(gaps) == ({0, 1, 2} if rank % 2 == 0 else {3, 4})
            assert weights == results[rank % 2][name][3], f"{name}: replicas differ in some bit"


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
    """With other seeds the replicas would begin with other weights, if these were not made equal."""
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
