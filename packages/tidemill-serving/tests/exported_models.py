"""SavedModels as different exporters write them, for `build_models`."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SHARD_BYTES = 4096


class Sharded(tf.Module):
    """Variables whose values are in several files."""

    def __init__(self) -> None:
        self.rows = [tf.Variable(tf.range(512, dtype=tf.float32) + index) for index in range(6)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="index")])
    def predict(self, index: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sum": tf.add_n([tf.gather(row, index) for row in self.rows])}


def save_sharded(directory: Path) -> None:
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=SHARD_BYTES)
    options = tf.saved_model.SaveOptions(experimental_sharding_callback=policy)
    module = Sharded()
    tf.saved_model.save(module, str(directory / "1"), signatures=module.predict, options=options)
    shards = list((directory / "1" / "variables").glob("variables.data-*"))
    assert len(shards) > 1, shards


def save_tf_keras(directory: Path) -> None:
    """Save a model of Keras 2 and its answers."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    dense = tf_keras.layers.Dense
    model = tf_keras.Sequential([dense(4, activation="tanh", input_shape=(3,)), dense(2)])
    model.export(str(directory / "1"))
    rows = np.random.default_rng(0).random((5, 3), dtype=np.float32)
    np.savez(directory.parent / "tf_keras.npz", rows=rows, answers=model(rows).numpy())


def save_frozen(directory: Path) -> None:
    """Save a graph of TensorFlow 1 whose variables were converted to constants."""
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        y = v1.multiply(v1.constant(3.0), x, name="y")
        v1.saved_model.simple_save(session, str(directory / "1"), {"x": x}, {"y": y})


def save_legacy_table(directory: Path, words: Path) -> None:
    """Save a table of TensorFlow 1, filled from an asset by the legacy init op."""
    with v1.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None], name="word")
        file = tf.constant(str(words), name="words")
        source = tf.lookup.TextFileInitializer(
            file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )  # which adds the file to the collection of assets
        table = tf.lookup.StaticHashTable(source, -1)
        signature = v1.saved_model.predict_signature_def({"word": word}, {"id": table.lookup(word)})
        builder = v1.saved_model.Builder(str(directory / "1"))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={"serving_default": signature},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            legacy_init_op=v1.tables_initializer(),
        )
        builder.save()


class Counter(tf.Module):
    """Stores its inputs: state that outlives a run."""

    def __init__(self) -> None:
        self.text = tf.Variable("", shape=tf.TensorShape(None), dtype=tf.string)
        self.total = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def keep(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        self.text.assign(text)
        return {"kept": self.text.read_value()}

    @tf.function(input_signature=[])
    def read(self) -> dict[str, tf.Tensor]:
        return {"kept": self.text.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def add(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"total": self.total.assign_add(x)}


def save_counter(directory: Path) -> None:
    counter = Counter()
    signatures = {"keep": counter.keep, "read": counter.read, "add": counter.add}
    tf.saved_model.save(counter, str(directory / "1"), signatures=signatures)


def save_exported(directory: Path, words: Path) -> None:
    """Save all models of this file below a directory."""
    save_sharded(directory / "sharded")
    save_tf_keras(directory / "tf_keras")
    save_frozen(directory / "frozen")
    save_legacy_table(directory / "legacy_table", words)
    save_counter(directory / "counter")
