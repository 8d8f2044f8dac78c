"""Losses and metrics of `fit`, `evaluate` and batches equal those of plain Keras on the whole batch, in float64.

Microbatches and replicas have different numbers of masked entries, sums of weights and rows, so that the mean of their
means is not the mean.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import parity
import ranks
import sessions
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import forget_the_step_before
from smdistributed.modelparallel.tensorflow.batch_loss import BatchLoss
from smdistributed.modelparallel.tensorflow.engine.batch_sums import is_known_ahead
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, Tracer
from smdistributed.modelparallel.tensorflow.variables import is_remote
from test_fit_replicas import CONFIG as REPLICAS

keras = tf.keras
IS_KERAS_2 = keras.Model.__module__.startswith("tf_keras")
BATCH, BATCHES, LENGTH = 24, 2, 6
TOLERANCE = 1e-12
"""Of float64: only the order of additions differs."""


@pytest.mark.matrix
def test_named_losses_of_microbatches_are_divided_once() -> None:
    environment = {"SMP_TRANSPORT": "python"}
    check(ranks.run(2, train_named, 4, "simple", config=parity.MANUAL, environment=environment))


@pytest.mark.smp_first
def test_named_losses_of_replicas_are_divided_once() -> None:
    check(ranks.run(4, train_named, 2, "interleaved", config=REPLICAS))


@pytest.mark.matrix
def test_named_losses_of_replicas_are_divided_once_by_tf_keras() -> None:
    config = {"partitions": 1, "microbatches": 2, "ddp": True, "bind_cores": False}
    check(ranks.run(2, train_named, 2, "interleaved", config=config, environment={"TF_USE_LEGACY_KERAS": "1"}))


def test_losses_without_a_reduction_are_summed() -> None:
    check(ranks.run(2, train_unreduced, config=parity.MANUAL, environment={"SMP_TRANSPORT": "python"}))


def test_losses_of_unknown_divisors_are_averaged_and_reported_once() -> None:
    results = ranks.run(2, train_unknown, config=parity.MANUAL, environment={"SMP_TRANSPORT": "python"})
    check([result for result, _ in results])
    (first, second) = (lines for _, lines in results)
    assert [line.partition(": what it")[0] for line in first] == [
        "smp: the loss 'scalar'",
        "smp: Own.compute_loss",
        "smp: what the layer 'adding' passes to add_loss",
    ]
    assert second == []


def test_a_divisor_that_depends_on_random_numbers_is_that_of_the_microbatch() -> None:
    session: Any = SimpleNamespace(
        config=SimpleNamespace(microbatches=2, ddp=False), placement=SimpleNamespace(rank=0), dp_group=None
    )
    state, scale = Tracer(), tf.Variable([2.0, 0.5])
    graph = MarkingGraph("step", tracer=state)
    with graph.as_default(), sessions.logged() as lines:
        rows = tf.compat.v1.placeholder(tf.float32, [2])
        batch = BatchLoss(rows, state, session, set())
        known = tf.reduce_sum(tf.cast(rows * scale > 1.0, tf.float32))
        drawn = tf.reduce_sum(tf.cast(rows > tf.random.uniform([2]), tf.float32))
        with tf.name_scope("dropping"):
            shares = [batch.share(tf.constant(6.0), divisor) for divisor in (known, drawn, drawn)]
    assert is_known_ahead(known) and not is_known_ahead(drawn)
    assert [part.op.inputs[0] is known for part, _ in state.sums] == [True]
    assert shares[1].op.type == "DivNoNan" and shares[1].op.inputs[1] is drawn
    assert [line.partition(",")[0] for line in lines] == [
        "smp: the loss 'dropping': what it is divided by is not known"
    ]


def check(results: list[Any]) -> None:
    """Compare the results of all ranks with those of plain Keras, which the last rank has trained."""
    held: dict[int, Any] = {}
    _, (plain, weights) = results[-1]
    for rank, ((mine, part), _) in enumerate(results):
        assert mine.keys() == plain.keys()
        for name, values in plain.items():
            assert mine[name] == pytest.approx(values, rel=TOLERANCE, abs=TOLERANCE), f"{name} on rank {rank}"
        held |= part
    assert held.keys() == weights.keys()
    for place, value in weights.items():
        np.testing.assert_allclose(held[place], value, rtol=TOLERANCE, atol=TOLERANCE)


# --- on the ranks -----------------------------------------------------------------------------------------------------


def train_named(microbatches: int, pipeline: str) -> Any:
    """Train a model with an output for each kind of loss, on unequal shares of the rows if there are replicas."""
    with (
        in_float64(),
        sessions.configured(microbatches=microbatches, pipeline=pipeline, ddp=smp.dp_size() > 1, horovod=False),
    ):
        rows = np.arange(BATCHES * BATCH).reshape(BATCHES, BATCH)
        share = np.split(rows, [16], 1)[smp.dp_rank()] if smp.dp_size() > 1 else rows
        last = smp.mp_size() - 1
        mine = fit_named(smp.DistributedModel.wrap(named_model(), {"tokens": last, "mean": last, "*": 0}), share)
        return mine, fit_named(named_model(), rows) if smp.rank() == smp.size() - 1 else None


def named_model() -> Any:
    forget_the_step_before()
    keras.utils.set_random_seed(3)
    layers = keras.layers
    ids, x = keras.Input([LENGTH], dtype="int32", name="ids"), keras.Input([5], name="x")
    tokens = layers.Dense(3, activation="softmax", name="tokens")(layers.Embedding(11, 8, mask_zero=True)(ids))
    body = layers.Dense(8, activation="tanh", kernel_regularizer="l2", activity_regularizer="l2")(x)
    heads = {name: layers.Dense(2, activation="sigmoid", name=name)(body) for name in ("total", "weighted", "mean")}
    return keras.Model({"ids": ids, "x": x}, {"tokens": tokens, **heads})


def fit_named(model: Any, rows: Any) -> Any:
    losses, metrics = keras.losses, keras.metrics
    weighting = {} if IS_KERAS_2 else {"reduction": "mean_with_sample_weight"}
    model.compile(
        keras.optimizers.SGD(0.1),
        loss={
            "tokens": losses.SparseCategoricalCrossentropy(ignore_class=0),
            "total": losses.MeanSquaredError(reduction="sum"),
            "weighted": losses.MeanSquaredError(**weighting),
            "mean": "binary_crossentropy",
        },
        loss_weights={"tokens": 1.0, "total": 0.1, "weighted": 2.0, "mean": 0.5},
        metrics={
            "tokens": ["accuracy", metrics.MeanIoU(3, name="iou", sparse_y_pred=False)],
            "mean": [metrics.AUC(name="auc")],
        },
        weighted_metrics={"mean": [metrics.AUC(name="wauc")], "weighted": [metrics.RootMeanSquaredError(name="rmse")]},
    )
    x, y, weights = (
        {name: value[rows.reshape(-1)] for name, value in part.items()} for part in named_data(BATCHES * BATCH)
    )
    size = rows.shape[1]
    history = model.fit(x, y, sample_weight=weights, batch_size=size, epochs=2, shuffle=False, verbose=0).history
    after = model.evaluate(x, y, sample_weight=weights, batch_size=size, verbose=0, return_dict=True)
    if smp.dp_size() > 1:
        first = [{name: value[:size] for name, value in part.items()} for part in (x, y, weights)]
        in_list = IS_KERAS_2 and dict(enumerate(model.test_on_batch(*first)))
        history |= _prefixed("batch", in_list or model.train_on_batch(*first, return_dict=True))
    return history | _prefixed("after", after), _held(model)


def named_data(count: int) -> Any:
    random = np.random.RandomState(0)
    ids = random.randint(1, 11, (count, LENGTH))
    for row, length in enumerate(random.randint(1, LENGTH + 1, count)):
        ids[row, length:] = 0
    ids[: BATCH // 4] = 0  # a microbatch without an entry
    y = {"tokens": random.randint(0, 3, (count, LENGTH)), "mean": random.randint(0, 2, (count, 2)).astype("float64")}
    y |= {name: random.randn(count, 2) for name in ("total", "weighted")}
    weights = {name: random.rand(count) ** 3 for name in ("total", "weighted", "mean")}
    return {"ids": ids, "x": random.randn(count, 5)}, y, {"tokens": random.rand(count, LENGTH), **weights}


def train_unreduced() -> Any:
    """Train with a loss object that returns one value per row."""
    loss = keras.losses.MeanSquaredError(reduction="none")
    with in_float64(), sessions.configured(microbatches=4):
        mine = fit_chain(smp.DistributedModel, loss)
        return mine, fit_chain(keras.Model, loss) if smp.rank() == 1 else None


def train_unknown() -> Any:
    """Train on a sum that a layer adds, and on means that the library cannot know as such; return also what it logs."""
    with in_float64(), sessions.configured(microbatches=4), sessions.logged() as lines:
        mine = fit_unknown(smp.DistributedModel)
        return (mine, fit_unknown(keras.Model) if smp.rank() == 1 else None), lines


def fit_unknown(base: Any) -> Any:
    def scalar(y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(y - y_pred))

    class Own(base):  # type: ignore[misc]
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return 2.0 * super().compute_loss(*args, **kwargs)

    return fit_chain(Own, scalar, lambda x: tf.reduce_sum(x, -1), tf.reduce_mean)


def fit_chain(base: Any, loss: Any, *added: Callable[[Any], Any]) -> Any:
    """Train a chain of layers, of which one adds losses."""
    forget_the_step_before()
    keras.utils.set_random_seed(3)

    class Adding(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            for function in added:
                self.add_loss(function(tf.square(x)))
            return x

    class Net(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.adding = keras.layers.Dense(8, activation="tanh"), Adding(name="adding")
            self.head = keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            x = self.adding(self.body(x))
            with smp.partition(1):
                return self.head(x)

    Net.__name__ = base.__name__
    model = Net()
    model.compile(keras.optimizers.SGD(0.01), loss)
    random = np.random.RandomState(0)
    x, y = random.randn(24, 5), random.randn(24, 2)
    history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    return history | _prefixed("after", model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)), _held(model)


def _prefixed(prefix: str, results: dict[Any, Any]) -> dict[str, list[float]]:
    return {f"{prefix}_{name}": [float(value)] for name, value in results.items()}


def _held(model: Any) -> dict[int, Any]:
    return {place: np.array(one) for place, one in enumerate(model.trainable_variables) if not is_remote(one)}


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    before = keras.backend.floatx()
    keras.backend.set_floatx("float64")
    try:
        yield
    finally:
        keras.backend.set_floatx(before)
