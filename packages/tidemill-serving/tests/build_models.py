"""Build the SavedModels of the tests: ``python build_models.py DIRECTORY``, in a process that has TensorFlow."""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from exported_models import save_exported
from kept_models import save_kept_models
from lite_models import save_lite_models
from others.current_models import MODELS
from others.recording import save_all
from typed_models import Mixed, save_examples, save_types, save_unusable

OTHERS = (
    *("text_classifier", "structured", "encoder", "bidirectional", "MobileNet"),
    *("module_tables", "module_types", "module_examples"),
)
"""Those of `current_models` that every run of the tests compares."""

v1 = tf.compat.v1
FLOATS = tf.TensorSpec([None], tf.float32, name="x")


class Linear(tf.Module):
    """y = 0.5 x + offset"""

    def __init__(self, offset: float) -> None:
        self.slope = tf.Variable(0.5)
        self.offset = tf.Variable(offset)

    @tf.function(input_signature=[FLOATS])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.slope * x + self.offset}


class TwoInputs(tf.Module):
    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="a"), tf.TensorSpec([None, 2], tf.int32, name="b")]
    )
    def predict(self, a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        total = tf.reduce_sum(b, axis=1)
        return {"scaled": a * tf.cast(total, tf.float32), "total": total}


class Text(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(text), "same": tf.identity(text), "same_bytes": tf.identity(text)}


class Words(tf.Module):
    """A look-up table: its file is an asset, and an initializer fills it."""

    def __init__(self, file: Path) -> None:
        self.asset = tf.saved_model.Asset(str(file))
        source = tf.lookup.TextFileInitializer(
            self.asset, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.table = tf.lookup.StaticHashTable(source, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def predict(self, word: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"id": self.table.lookup(word)}


class Spin(tf.Module):
    """Runs as long as requested, by repeating a matrix product."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="turns")])
    def predict(self, turns: tf.Tensor) -> dict[str, tf.Tensor]:
        state = tf.eye(256)
        for _ in tf.range(turns):
            state = tf.tanh(tf.matmul(state, state))
        return {"trace": tf.linalg.trace(state)}


class Checked(tf.Module):
    """Refuses negative numbers, and with them the whole batch."""

    @tf.function(input_signature=[FLOATS])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([tf.debugging.assert_non_negative(x, message="negative number")]):
            return {"root": tf.sqrt(x)}


class Mean(tf.Module):
    """Declares an answer by rows, but returns one number."""

    @tf.function(input_signature=[FLOATS])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        mean = tf.reshape(tf.reduce_mean(x), [-1])
        return {"mean": tf.ensure_shape(tf.gather(mean, tf.where(mean < 1e30)[:, 0]), [None])}


class Backwards(tf.Module):
    """An operation that TensorFlow does not implement for more than 8 dimensions."""

    @tf.function(input_signature=[FLOATS])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.reverse(x, [0])}


class NoRows(tf.Module):
    """Outputs that cannot be split into rows."""

    @tf.function(input_signature=[FLOATS])
    def scalar(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"mean": tf.reduce_mean(x)}

    @tf.function(input_signature=[FLOATS])
    def uneven(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"all": tf.identity(x), "rest": x[1:]}


def save_mlp(directory: Path) -> None:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.export(str(directory / "1"), verbose=False)
    rows = np.random.default_rng(0).random((40, 8), dtype=np.float32)
    np.savez(directory.parent / "mlp.npz", rows=rows, answers=model(rows).numpy())


def save_tensorflow_1(directory: Path) -> None:
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 1], name="x")
        slope = v1.get_variable("slope", initializer=0.5, use_resource=False)
        y = v1.identity(slope * x + 2.0, name="y")
        serialized = v1.placeholder(tf.string, [None], name="examples")
        features = v1.parse_example(serialized, {"x": v1.FixedLenFeature([1], tf.float32)})
        z = slope * features["x"] + 2.0
        scores = v1.concat([z, -z], axis=1)
        classes = v1.tile(v1.constant([["more", "less"]]), [v1.shape(z)[0], 1])
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(directory / "7"))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "serving_default": v1.saved_model.predict_signature_def({"x": x}, {"y": y}),
                "regress": v1.saved_model.regression_signature_def(serialized, z),
                "classify": v1.saved_model.classification_signature_def(serialized, classes, scores),
                "labels": v1.saved_model.classification_signature_def(serialized, classes, None),
            },
        )
        builder.save()


def save_classifier(directory: Path) -> None:
    """Save a model whose default signature classifies, as exporters of TensorFlow 1 wrote it."""
    with v1.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        features = v1.parse_example(serialized, {"inputs": v1.FixedLenFeature([2], tf.float32)})
        classes = v1.tile(v1.constant([["first", "second"]]), [v1.shape(serialized)[0], 1])
        signature = v1.saved_model.classification_signature_def(serialized, classes, features["inputs"])
        builder = v1.saved_model.Builder(str(directory / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={"serving_default": signature})
        builder.save()


def save_regressor(directory: Path) -> None:
    """Save a model whose default signature regresses."""
    with v1.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        features = v1.parse_example(serialized, {"inputs": v1.FixedLenFeature([1], tf.float32)})
        signature = v1.saved_model.regression_signature_def(serialized, 0.5 * features["inputs"] + 2.0)
        builder = v1.saved_model.Builder(str(directory / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={"serving_default": signature})
        builder.save()


def main(directory: Path) -> None:
    words = directory / "words.txt"
    words.write_text("ebb\nflow\nslack\n")

    def save(name: str, version: str, module: tf.Module) -> None:
        tf.saved_model.save(module, str(directory / name / version), signatures={"serving_default": module.predict})

    save("half_plus", "123", Linear(2.0))
    save("half_plus", "00000124", Linear(3.0))
    save("two_inputs", "1", TwoInputs())
    save("text", "1", Text())
    save("words", "1", Words(words))
    save("spin", "1", Spin())
    save("checked", "1", Checked())
    save("mean", "1", Mean())
    save("backwards", "1", Backwards())
    no_rows = NoRows()
    signatures = {"scalar": no_rows.scalar, "uneven": no_rows.uneven}
    tf.saved_model.save(no_rows, str(directory / "no_rows" / "1"), signatures=signatures)
    save("mixed", "1", Mixed())
    save_types(directory / "types")
    save_unusable(directory / "unusable")
    save_examples(directory / "examples")
    save_mlp(directory / "mlp")
    save_tensorflow_1(directory / "tensorflow_1")
    save_classifier(directory / "classifier")
    save_regressor(directory / "regressor")
    save_exported(directory, words)
    save_kept_models(directory)
    save_lite_models(directory)
    (directory / "others").mkdir()
    save_all(MODELS, str(directory / "others"), OTHERS)
    words.unlink()  # the SavedModel has its own copy


if __name__ == "__main__":
    main(Path(sys.argv[1]))
