"""`fit` with two replicas and two partitions: callbacks on all ranks get the logs of one process on all data."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import models
import ranks
import sessions
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import forget_the_step_before
from smdistributed.modelparallel.backend.exceptions import SMPUsageError

pytestmark = pytest.mark.smp_long

CONFIG = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2, "horovod": True}
KERASES = pytest.mark.parametrize("environment", [{}, {"TF_USE_LEGACY_KERAS": "1"}], ids=["keras", "tf_keras"])
BATCH, EPOCHS = 16, 8


@KERASES
def test_callbacks_decide_as_in_one_process(environment: dict[str, str]) -> None:
    results = ranks.run(4, logs_of_callbacks, config=CONFIG, environment=environment)
    (plain,) = [plain for _, plain in results if plain]
    assert len(plain["loss"]) < EPOCHS, "early stopping has a part in it"
    assert plain["rates"][-1] < plain["rates"][0], "and the learning rate"
    for rank, (mine, _) in enumerate(results):
        assert mine == results[0][0], f"rank {rank} got other logs"
        assert mine.keys() == plain.keys()
        for name, values in plain.items():
            assert mine[name] == pytest.approx(values, rel=1e-4), name


@pytest.mark.parametrize("moment", ["batch", "epoch"])
def test_a_callback_that_stops_one_rank_stops_all(moment: str) -> None:
    assert ranks.run(4, stopped_by_one, moment, config=CONFIG) == [(2, 5 if moment == "batch" else 6)] * 4


def test_logs_of_a_custom_train_step_are_averaged() -> None:
    histories, lines = zip(*ranks.run(4, logs_of_own_train_step, config=CONFIG), strict=True)
    assert histories == ({"replica": [0.5], "parts": [[0.5, 1.0]]},) * 4
    assert ["Own.train_step is the script's own" in line for line in lines[0]] == [True], "once, on rank 0"
    assert lines[1:] == ([], [], [])


def test_replicas_that_train_independently_get_their_own_logs() -> None:
    losses = ranks.run(4, independent_logs, config=CONFIG)
    assert losses[0] == losses[1] != losses[2] == losses[3]


def test_different_numbers_of_batches_are_refused() -> None:
    for rank, message in enumerate(ranks.run(4, given_too_few, config=CONFIG)):
        assert "{'rank 0': 3, 'rank 1': 3, 'rank 2': 2, 'rank 3': 2}" in message, f"rank {rank}"
        assert "steps_per_epoch" in message


# --- on the ranks -----------------------------------------------------------------------------------------------------


class Net(tf.keras.Model):
    """A model with a metric in each partition, and one of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Measured("body"), Measured("head")

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.body(x)
        with smp.partition(smp.mp_size() - 1):
            return self.head(x)


class Measured(tf.keras.layers.Layer):
    """A dense layer with a metric of its mean output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(models.CLASSES, activation="tanh")
        self.size = tf.keras.metrics.Mean(name=f"size_of_{name}")

    def call(self, x: Any) -> Any:
        x = self.dense(x)
        self.size.update_state(tf.abs(x))
        return x


def logs_of_callbacks() -> Any:
    """Return the logs of callbacks in a job that stops early; on one rank also those of plain Keras on all data."""
    with sessions.configured(ddp=True, horovod=False):
        mine = _fit_logs(models.distributed(Net), slice(smp.dp_rank(), None, smp.dp_size()))
    smp.barrier()
    return mine, _fit_logs(Net, slice(None)) if smp.rank() == 3 else None


def _fit_logs(kind: Any, rows: slice) -> dict[str, list[float]]:
    forget_the_step_before()
    tf.keras.utils.set_random_seed(3)
    model = kind()
    metrics = ["mae", tf.keras.metrics.AUC(name="auc"), tf.keras.metrics.RootMeanSquaredError(name="rmse")]
    model.compile(tf.keras.optimizers.Adam(0.05), "mse", metrics=metrics)
    rates: list[float] = []
    callbacks = [
        tf.keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        tf.keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.5),
        tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: rates.append(float(np.asarray(model.optimizer.learning_rate)))
        ),
    ]
    train, test = (_dataset(seed, rows) for seed in (1, 2))
    history = model.fit(train, epochs=EPOCHS, validation_data=test, callbacks=callbacks, verbose=0).history
    after = model.evaluate(test, verbose=0, return_dict=True)
    lists = {name: values for name, values in history.items() if name not in ("lr", "learning_rate")}
    lists |= {f"after_{name}": [value] for name, value in after.items()}
    return {name: [float(value) for value in values] for name, values in lists.items()} | {"rates": rates}


def _dataset(seed: int, rows: slice) -> tf.data.Dataset:
    """Return this replica's part of each batch."""

    def batches() -> Iterator[Any]:
        random = np.random.RandomState(seed)
        for _ in range(3):
            x = random.randn(BATCH, models.FEATURES).astype("float32")
            yield x[rows], (random.rand(BATCH, models.CLASSES) > 0.5).astype("float32")[rows]

    x, y = (np.concatenate(arrays) for arrays in zip(*batches(), strict=True))
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x) // 3)


def stopped_by_one(moment: str) -> tuple[int, int]:
    """Stop on the last rank only, in its second epoch; return the number of epochs begun and batches done."""
    seen = {"epochs": 0, "batches": 0}

    class Stop(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            seen["epochs"] += 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if moment == "epoch" and epoch == 1 and smp.rank() == 3:
                self.model.stop_training = True

    class StopAtBatch(Stop):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if moment == "batch" and seen["epochs"] == 2 and batch == 1 and smp.rank() == 3:
                self.model.stop_training = True

    class Counted(models.distributed(models.Chain)):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            counter.assign_add(1)
            return super().train_step(data)

    counter = tf.Variable(0, trainable=False)
    with sessions.configured(ddp=True, horovod=False):
        forget_the_step_before()
        model = Counted(smp.mp_size())
        model.compile("sgd", "mse")
        # Only one rank has a callback with batch hooks.
        stop = StopAtBatch() if moment == "batch" and smp.rank() == 3 else Stop()
        model.fit(_dataset(1, slice(smp.dp_rank(), None, 2)), None, None, EPOCHS, 0, [stop])
    return seen["epochs"], int(counter)


def logs_of_own_train_step() -> Any:
    class Own(models.distributed(models.Chain)):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            super().train_step(data)
            replica = tf.constant(float(smp.dp_rank()))
            return {"replica": replica, "parts": tf.stack([replica, 1.0])}

    with sessions.configured(ddp=True, horovod=False):
        forget_the_step_before()
        model = Own(smp.mp_size())
        model.compile("sgd", "mse")
        with sessions.logged() as lines:
            model.fit(_dataset(1, slice(smp.dp_rank(), None, 2)), verbose=0)
            history = model.fit(_dataset(1, slice(smp.dp_rank(), None, 2)), verbose=0).history
    return json.loads(json.dumps(history, default=np.ndarray.tolist)), lines


def independent_logs() -> float:
    with sessions.configured(horovod=False):
        forget_the_step_before()
        tf.keras.utils.set_random_seed(3)
        model = models.distributed(models.Chain)(smp.mp_size())
        model.compile("sgd", "mse")
        return float(model.fit(_dataset(1, slice(smp.dp_rank(), None, 2)), verbose=0).history["loss"][0])


def given_too_few() -> str:
    with sessions.configured(ddp=True, horovod=False):
        forget_the_step_before()
        model = models.distributed(models.Chain)(smp.mp_size())
        model.compile("sgd", "mse")
        try:
            model.fit(_dataset(1, slice(None)).take(3 - smp.dp_rank()), verbose=0)
        except SMPUsageError as error:
            return str(error)
    raise AssertionError
