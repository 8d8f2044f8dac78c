"""SavedModels that must be left alone when they are loaded, or that loaders restore differently, for `build_models`."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DT_FLOAT  # pyrefly: ignore[missing-import]

v1 = tf.compat.v1
FLOATS = tf.TensorSpec([None], tf.float32, name="x")
DRAWS = 3


class Kept(tf.Module):
    """A weight with a training step, a counter, a seeded generator, and a loop that does not end on zeros."""

    def __init__(self) -> None:
        self.weight = tf.Variable(8.0)
        self.count = tf.Variable(0)
        self.generator = tf.random.Generator.from_seed(7)

    @tf.function(input_signature=[FLOATS])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.weight + 0.0 * x}

    @tf.function(input_signature=[FLOATS])
    def train(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.weight - x) ** 2)
        self.weight.assign_sub(0.1 * tape.gradient(loss, self.weight))
        return {"loss": tf.identity(loss)}

    @tf.function(input_signature=[FLOATS])
    def tick(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"count": tf.fill(tf.shape(x), self.count.assign_add(1))}

    @tf.function(input_signature=[FLOATS])
    def draw(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"drawn": self.generator.uniform(tf.shape(x))}

    @tf.function(input_signature=[FLOATS])
    def grow(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        while tf.reduce_max(tf.abs(x)) < 100.0:
            x *= 2.0
        return {"y": x}


def save_kept(directory: Path) -> None:
    """Save the model, and the first numbers of its generator."""
    kept = Kept()
    signatures = {
        "serving_default": kept.predict,
        **{name: getattr(kept, name) for name in ("train", "tick", "draw", "grow")},
    }
    tf.saved_model.save(kept, str(directory / "1"), signatures=signatures)
    draws = [kept.draw(tf.zeros([1]))["drawn"].numpy() for _ in range(DRAWS)]
    np.savez(directory.parent / "kept.npz", draws=draws)


def save_keras_objects(directory: Path) -> None:
    """Save a model of Keras 3 by ``tf.saved_model.save``, and its answers."""
    keras.utils.set_random_seed(2)
    layers = keras.layers
    text = keras.Input((5,), dtype="int64")
    words = layers.LSTM(3)(layers.Embedding(11, 4)(text))
    scaled = layers.Dropout(0.5)(layers.BatchNormalization()(words))
    model = keras.Model(text, layers.Dense(2)(scaled))
    for weight in model.weights:  # initial values could hide a variable that is not restored
        if "seed" not in weight.path:
            weight.assign(weight + 0.25)
    tf.saved_model.save(model, str(directory / "1"))
    rows = np.random.default_rng(0).integers(0, 11, (4, 5))
    np.savez(directory.parent / "keras_objects.npz", rows=rows, answers=model(rows).numpy())


def save_half_plus_three(directory: Path) -> None:
    """Save y = x / 2 + 3 with signatures that declare their serialized examples as floats."""
    with v1.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, name="tf_example")
        x = v1.parse_example(serialized, {"x": v1.FixedLenFeature([1], tf.float32)})["x"]
        slope, offset = (v1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", 3.0)))
        y = v1.add(slope * x, offset, name="y")
        session.run(v1.global_variables_initializer())
        regress = v1.saved_model.regression_signature_def(serialized, y)
        classify = v1.saved_model.classification_signature_def(serialized, None, y)
        for signature in (regress, classify):
            signature.inputs["inputs"].dtype = DT_FLOAT
        builder = v1.saved_model.Builder(str(directory / "00000123"))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "serving_default": v1.saved_model.predict_signature_def({"x": x}, {"y": y}),
                "regress_x_to_y": regress,
                "classify_x_to_y": classify,
                "tensorflow/serving/regress": regress,
                "tensorflow/serving/classify": classify,
            },
        )
        builder.save()


def save_kept_models(directory: Path) -> None:
    """Save all models of this file below a directory."""
    save_kept(directory / "kept")
    save_keras_objects(directory / "keras_objects")
    save_half_plus_three(directory / "half_plus_three")
