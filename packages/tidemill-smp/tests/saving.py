"""Functions that the tests of saved models run on the ranks."""

import contextlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import models
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import forget_the_step_before
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPUsageError
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import BundleWriter
from smdistributed.modelparallel.tensorflow.variables import is_remote

L = tf.keras.layers
BATCH = 8
ROWS = 5
"""Number of rows with which saved models are called: different from those of a batch and a microbatch."""


class Twins(models.Chain):
    """A model with a float64 input and two outputs."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        y = super().call(x, training=training)
        return y, tf.reduce_sum(y, -1)


def functional() -> Any:
    """A Functional model with two inputs, one of them without a name in the script."""
    x, scale = tf.keras.Input([models.FEATURES], name="x"), tf.keras.Input([1], name="scale")
    y = L.Dense(8, activation="tanh", name="first")(x)
    y = L.LayerNormalization(name="second")(y * scale)
    return tf.keras.Model([x, scale], L.Dense(models.CLASSES, name="third")(y), name="functional")


def sequential() -> Any:
    """A Sequential model that is built when it is called."""
    layers = [L.Dense(8, activation="tanh", name="first"), L.Dropout(0.1), L.BatchNormalization(name="second")]
    return tf.keras.Sequential([*layers, L.Dense(models.CLASSES, name="third")], name="sequential")


SUBCLASSED = {"chain": models.Chain, "language": models.Language, "twins": Twins}
WRAPPED = {"functional": functional, "sequential": sequential}
KINDS = (*SUBCLASSED, *WRAPPED)


def plain(kind: str) -> Any:
    """Return the plain model."""
    return SUBCLASSED[kind](smp.mp_size()) if kind in SUBCLASSED else WRAPPED[kind]()


def distributed(kind: str) -> Any:
    """Return the distributed model."""
    forget_the_step_before()
    tf.keras.utils.set_random_seed(3)
    if kind in SUBCLASSED:
        return models.distributed(SUBCLASSED[kind])(smp.mp_size())
    last = smp.mp_size() - 1
    return smp.DistributedModel.wrap(WRAPPED[kind](), {"second": last // 2, "third": last})


def inputs(kind: str, rows: int, seed: int) -> list[np.ndarray]:
    """Return the inputs of the model."""
    random = np.random.RandomState(seed)
    x = random.randn(rows, models.FEATURES).astype("float64" if kind == "twins" else "float32")
    return [x, random.rand(rows, 1).astype("float32")] if kind == "functional" else [x]


def trained(kind: str, num_steps: int = 2) -> Any:
    """Return a model after some steps."""
    model, optimizer = distributed(kind), tf.keras.optimizers.SGD(0.1)

    @smp.step
    def forward_backward(*parts: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(list(parts) if len(parts) > 1 else parts[0], training=True)
            loss = tf.add_n([tf.reduce_mean(tf.square(output)) for output in tf.nest.flatten(outputs)])
        return tape.gradient(loss, model.trainable_variables), loss

    for number in range(num_steps):
        grads, _ = forward_backward(*(tf.constant(part) for part in inputs(kind, BATCH, number)))
        means = [grad.accumulate() for grad in grads]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
    return model


def written(kind: str, directory: str) -> dict[str, Any]:
    """Train, and save in all formats; return the values on this rank, by name of the variable."""
    model, path = trained(kind), Path(directory)
    model.save_model(path / "saved")
    model.save_weights(path / "model.weights.h5")
    if kind in WRAPPED:
        model.save(path / "model.keras")
        model.save_keras(str(path / "again.keras"))
    return {str(place): np.array(v) for place, v in enumerate(model.variables) if not is_remote(v)}


def answers(kind: str, weights: dict[str, Any], directory: str) -> dict[str, Any]:
    """In one process: return the plain model's outputs with those weights, and after loading them from the file."""
    model = plain(kind)
    given = [tf.constant(part) for part in inputs(kind, ROWS, 99)]
    given = given if len(given) > 1 else given[0]
    model(given)  # builds
    for place, variable in enumerate(model.variables):
        variable.assign(weights[str(place)])
    expected = [np.array(part) for part in tf.nest.flatten(model(given, training=False))]
    other = plain(kind)
    other(given)
    other.load_weights(Path(directory) / "model.weights.h5")
    loaded = [np.array(part) for part in tf.nest.flatten(other(given, training=False))]
    return {"expected": expected, "loaded": loaded}


def not_described(directory: str) -> list[str]:
    """Try to save models that can never be saved, or not yet; return the errors."""
    model = distributed("chain")
    messages = []
    for attempt in (
        lambda: model.save_model(directory),
        lambda: trained("chain", 1).save_keras(f"{directory}/model.keras"),
        lambda: trained("chain", 1).save_keras(f"{directory}/model.h5"),
        lambda: trained("chain", 1).save_weights(f"{directory}/model.h5"),
    ):
        try:
            attempt()
        except SMPUsageError as error:
            messages.append(str(error))
    assert not Path(directory).exists()
    return messages


def failing(directory: str) -> list[str]:
    """Save to an impossible path; return the errors, and check that the ranks are still in step."""
    model, file = trained("sequential", 1), Path(directory, f"file{smp.rank()}")
    file.write_text("in the way")
    smp.barrier()
    blocked = str(Path(directory, "file0"))
    messages = []
    for attempt in (
        lambda: model.save_model(f"{blocked}/saved"),
        lambda: model.export(f"{blocked}/saved"),
        lambda: model.save(f"{blocked}/model.keras"),
        lambda: model.save_weights(f"{blocked}/model.weights.h5"),
    ):
        try:
            attempt()
        except SMPCheckpointError as error:
            messages.append(str(error))
    model.save_model(f"{directory}/saved")
    return messages


def interrupted(directory: str) -> tuple[str, list[str]]:
    """Replace a SavedModel, and fail when nearly all is written; return the errors and the remaining files."""
    model = trained("chain", 1)
    model.save_model(directory)
    if smp.rank() == 0:
        Path(directory, "code.py").write_text("stays")
    smp.barrier()
    before = {path: path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}
    smp.barrier()
    fault = mock.patch.object(BundleWriter, "close", side_effect=OSError(28, "No space left on device"))
    try:
        with fault if smp.rank() == 0 else contextlib.nullcontext():
            model.save_model(directory)
    except SMPCheckpointError as error:
        after = {path: path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}
        assert after == before, "the SavedModel that was there is as it was"
        smp.barrier()
        model.save_model(directory)
        return str(error), sorted(path.name for path in Path(directory).iterdir())
    raise AssertionError


def listed() -> tuple[list[Any], list[str], list[str]]:
    """Return the specs of variables before and after partitioning, and the local variables."""
    model = distributed("chain")
    assert model.all_variable_specs() == []
    model = trained("chain", 1)
    here = [variable.path for variable in smp.local_variables(model)]
    return model.all_variable_specs(), here, [variable.path for variable in model.variables]


def loaded_in_a_job(directory: str) -> list[Any]:
    """Load a SavedModel with Keras in a rank, as scripts do at their end."""
    given = [tf.constant(part) for part in inputs("twins", ROWS, 99)]
    function = tf.keras.models.load_model(directory).signatures["serving_default"]
    outputs = function(*given)
    return [outputs[name].numpy() for name in sorted(outputs)]


def refuse_all(cases: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, str]]:
    model, texts = distributed("chain"), []
    for method, given in cases:
        try:
            getattr(model, method)(**given)
        except Exception as error:  # noqa: BLE001
            texts.append((type(error).__name__, str(error)))
    return texts


def save_again(directory: str) -> tuple[list[str], list[str], list[str]]:
    """Save three times: to a new path, over it, and with overwrite=False."""
    model, root = trained("sequential", 1), Path(directory)

    def stamps() -> dict[str, int]:
        smp.barrier()
        found = {path.name: path.stat().st_mtime_ns for path in sorted(root.iterdir())}
        smp.barrier()
        return found

    def save(**options: Any) -> None:
        model.save(root / "model.keras", **options)
        model.save_weights(root / "model.weights.h5", **options)
        model.save(root / "saved", save_format="tf", include_optimizer=False, **options)

    save(overwrite=False)
    first = stamps()
    save()
    second = stamps()
    texts = []
    for attempt in (
        lambda: model.save(root / "model.keras", False),
        lambda: model.save_keras(root / "model.keras", overwrite=False),
        lambda: model.save_weights(root / "model.weights.h5", overwrite=False),
        lambda: model.save(root / "saved", overwrite=False),
    ):
        try:
            attempt()
        except SMPCheckpointError as error:
            texts.append(str(error))
    third = stamps()
    return (
        [name for name in first if first[name] != second[name]],
        [name for name in second if second[name] == third[name]],
        texts,
    )
