"""Optimizers of tf_keras on two partitions behave as on the plain model."""

from collections.abc import Callable
from typing import Any

import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 1}
TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}


@pytest.mark.parametrize("frozen", [None, "head"], ids=["all", "frozen_head"])
def test_weights_equal_those_of_the_unpartitioned_model(frozen: str | None) -> None:
    results = ranks.run(2, train_all, frozen, config=CONFIG, environment=TF_KERAS)
    for result in results:
        assert set(result) == {*MODERN, *LEGACY}
    for name in results[0]:
        held = [result[name] for result in results]
        assert sum(own for own, _, _ in held) == 4, "each rank holds its own"
        assert all(gap < 1e-6 for _, gap, _ in held), f"{name}: {held}"
        assert all(moved > 1e-4 for _, _, moved in held[: 1 if frozen else 2]), f"{name} trains"


def test_nadam_is_refused_if_it_sees_only_a_part_of_the_variables() -> None:
    for error in ranks.run(2, train_by_nadam, config=CONFIG, environment=TF_KERAS, check=False):
        assert "Nadam of Keras 2 depends on the number of variables" in error.text
        assert "use tf.keras.optimizers.legacy.Nadam" in error.text


def train_by_nadam() -> None:
    train_both(lambda o: o.Nadam(0.01), None)


def train_all(frozen: str | None) -> dict[str, tuple[int, float, float]]:
    kinds = MODERN | LEGACY
    return {name: train_both(kind, frozen, is_spoilt="infinite" in name) for name, kind in kinds.items()}


def train_both(kind: Callable[[Any], Any], frozen: str | None, *, is_spoilt: bool = False) -> tuple[int, float, float]:
    """Return the number of local variables, their gaps to the plain model, and their largest change by training."""
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    random = np.random.RandomState(0)
    x, y = random.randn(32, 8).astype("float32"), random.randn(32, 3).astype("float32")
    if is_spoilt:
        x[9, 0] = np.inf

    def build() -> Any:
        keras = tf.keras
        keras.utils.set_random_seed(3)
        inputs = keras.Input([8])
        body = keras.layers.Dense(16, "tanh", name="body")(inputs)
        return keras.Model(inputs, keras.layers.Dense(3, name="head", trainable=frozen != "head")(body))

    first = build().get_weights()
    plain, net = build(), smp.DistributedModel.wrap(build(), {"head": 1})
    for model in (plain, net):
        model.compile(kind(tf.keras.optimizers), "mse")
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    held = [(i, mine.numpy()) for i, mine in enumerate(net.variables) if not is_remote(mine)]
    whole = plain.get_weights()
    if is_spoilt:
        assert float(net.optimizer.loss_scale) == float(plain.optimizer.loss_scale)
    gap = max(float(np.max(np.abs(value - whole[i]))) for i, value in held)
    return len(held), gap, max(float(np.max(np.abs(value - first[i]))) for i, value in held)


def scaled(optimizer: Any) -> Any:
    import tensorflow as tf

    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=2)


MODERN: dict[str, Callable[[Any], Any]] = {
    "clipped by the global norm": lambda o: o.Adam(0.01, global_clipnorm=0.05),
    "clipped by norms": lambda o: o.SGD(0.1, clipnorm=0.05),
    "averages written at the end": lambda o: o.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "averages written now and then": lambda o: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    "scaled": lambda o: scaled(o.Adam(0.01)),
    "scaled and clipped, an infinite batch": lambda o: scaled(o.SGD(0.1, global_clipnorm=0.05)),
    "weight decay": lambda o: o.AdamW(0.01, weight_decay=0.1),
}
LEGACY: dict[str, Callable[[Any], Any]] = {
    "legacy, clipped by the global norm": lambda o: o.legacy.SGD(0.1, momentum=0.9, global_clipnorm=0.05),
    "legacy, scaled, an infinite batch": lambda o: scaled(o.legacy.SGD(0.1, momentum=0.9)),
    "legacy nadam": lambda o: o.legacy.Nadam(0.01),
    "legacy adam": lambda o: o.legacy.Adam(0.01, amsgrad=True),
}
