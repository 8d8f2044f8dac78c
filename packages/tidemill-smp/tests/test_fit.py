"""`fit` and `evaluate` call the model like Keras's loops, and pass masks and logits to losses and metrics."""

from typing import Any

import pytest

import ranks

CONFIG = {"partitions": 2, "microbatches": 1, "auto_partition": False, "default_partition": 0}
TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
MODELS = ("wrapped", "untold", "saturated", "raw", "binary", "masked", "named")


@pytest.mark.parametrize(
    ("model", "environment"),
    [
        *(
            pytest.param(model, None, id=model, marks=pytest.mark.smp_first if model in ("wrapped", "named") else ())
            for model in MODELS
        ),
        *(
            pytest.param(model, TF_KERAS, id=f"{model}-tf_keras", marks=() if model == "named" else pytest.mark.matrix)
            for model in MODELS
        ),
    ],
)
def test_fit_and_evaluate_equal_those_of_keras(model: str, environment: dict[str, str] | None) -> None:
    for distributed, plain in ranks.run(2, both, model, config=CONFIG, environment=environment):
        assert distributed.keys() == plain.keys()
        for name, values in plain.items():
            assert distributed[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("environment", [None, TF_KERAS], ids=["keras", "tf_keras"])
def test_only_the_first_rank_prints(environment: dict[str, str] | None) -> None:
    first, second = ranks.run(2, printed_output, config=CONFIG, environment=environment)
    assert "mae" in first
    assert second == ""


def printed_output() -> str:
    import contextlib
    import io

    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    model = functional(tf.keras, smp)
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = rows_of_bits(np.random.RandomState(0))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model.fit(x, y, batch_size=8, verbose=2)
        model.evaluate(x, y, batch_size=8, verbose=1)
        model.predict(x, batch_size=8, verbose=1)
    return printed.getvalue()


def both(name: str) -> list[dict[str, list[float]]]:
    """Train a model of that name with plain Keras and with the library, one microbatch per batch."""
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    make, loss, metrics, data = CASES[name]
    results = []
    for distributed in (True, False):
        tf.keras.utils.set_random_seed(3)
        model = make(tf.keras, smp if distributed else None)
        model.compile(tf.keras.optimizers.SGD(0.05), loss=loss, metrics=metrics)
        x, y = data(np.random.RandomState(0))
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        after = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
        results.append({**history, **{f"after_{key}": [value] for key, value in after.items()}})
    return results


def functional(keras: Any, smp: Any) -> Any:
    """Return a model whose batch normalization needs `training`, which is no named argument of the wrapper's `call`."""
    inputs = keras.Input([8])
    x = keras.layers.BatchNormalization()(keras.layers.Dense(16)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(x))
    return smp.DistributedModel.wrap(model, {"head": 1}) if smp else model


def subclassed(activation: Any) -> Any:
    """Return a model whose `call` has no `training`: tf_keras still passes it to the layers, Keras 3 does not."""

    def make(keras: Any, smp: Any) -> Any:
        class Net(smp.DistributedModel if smp else keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.norm = keras.layers.Dense(16), keras.layers.BatchNormalization()
                self.last = keras.layers.Dense(3, activation=activation and activation())

            def call(self, x: Any) -> Any:
                x = self.norm(self.first(x))
                if smp is None:
                    return self.last(x)
                with smp.partition(1):
                    return self.last(x)

        return Net()

    return make


def of_sequences(keras: Any, smp: Any) -> Any:
    """Return a model that propagates the mask of its embedding to the loss and the metrics."""
    inputs = keras.Input([6], dtype="int32")
    x = keras.layers.Embedding(11, 8, mask_zero=True)(inputs)
    x = keras.layers.LSTM(8, return_sequences=True)(x)
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="head")(x))
    return smp.DistributedModel.wrap(model, {"head": 1}) if smp else model


def of_two_heads(keras: Any, smp: Any) -> Any:
    """Return a model with a list of outputs, which dictionaries of losses, metrics and targets name."""
    inputs = keras.Input([8])
    outputs = [keras.layers.Dense(3, name=name)(inputs) for name in ("second", "first")]
    model = keras.Model(inputs, outputs)
    return smp.DistributedModel.wrap(model, {"first": 1, "*": 0}) if smp else model


def rows(random: Any) -> tuple[Any, Any]:
    """Return large inputs, for which softmax is 0 or 1, and targets."""
    return 30 * random.randn(32, 8).astype("float32"), random.randint(0, 3, 32)


def rows_of_bits(random: Any) -> tuple[Any, Any]:
    return random.randn(32, 8).astype("float32"), random.randint(0, 2, (32, 3)).astype("float32")


def large_rows_of_bits(random: Any) -> tuple[Any, Any]:
    x, y = rows_of_bits(random)
    return 30 * x, y


def sequences(random: Any) -> tuple[Any, Any]:
    x = random.randint(1, 11, (32, 6))
    for row, length in enumerate(random.randint(1, 7, 32)):
        x[row, length:] = 0
    return x, random.randint(0, 3, (32, 6))


def rows_by_name(random: Any) -> tuple[Any, Any]:
    x, first = rows_of_bits(random)
    return x, {"first": first, "second": random.randn(32, 3).astype("float32")}


def softmax() -> Any:
    import tensorflow as tf

    return tf.nn.softmax  # Keras does not attach logits to its result, and checks the type of the op


CROSS_ENTROPY = "sparse_categorical_crossentropy"
CASES: dict[str, Any] = {
    "wrapped": (functional, "mse", ["mae"], rows_of_bits),
    "untold": (subclassed(None), "mse", ["mae"], rows_of_bits),
    "saturated": (subclassed(lambda: "softmax"), CROSS_ENTROPY, [CROSS_ENTROPY, "accuracy"], rows),
    "raw": (subclassed(softmax), CROSS_ENTROPY, [CROSS_ENTROPY], rows),
    "binary": (subclassed(lambda: "sigmoid"), "binary_crossentropy", ["binary_crossentropy"], large_rows_of_bits),
    "masked": (of_sequences, CROSS_ENTROPY, ["accuracy"], sequences),
    "named": (of_two_heads, {"first": "mse", "second": "mae"}, {"first": ["mae"], "second": ["mse"]}, rows_by_name),
}
