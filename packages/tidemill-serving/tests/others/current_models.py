"""Models as other people write them, on the newest TensorFlow: ``python current_models.py DIRECTORY [NAME ...]``.

Architectures of Keras and tf_keras with random weights, layers for text and structured data, sequences, attention, and
modules of TensorFlow with tables and control flow. Nothing is downloaded.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))
from recording import record, save_all

layers = keras.layers
WORDS = ["ebb", "flow", "slack", "spring", "neap"]
SENTENCES = np.array(["ebb and flow", "the spring tide", "slack", ""], object)
APPLICATIONS = {
    "DenseNet121": 32, "EfficientNetB0": 32, "EfficientNetV2B0": 32, "MobileNet": 32, "MobileNetV2": 32,
    "MobileNetV3Small": 32, "MobileNetV3Large": 32, "NASNetMobile": 32, "ResNet50": 32, "ResNet50V2": 32,
    "VGG16": 32, "Xception": 71, "InceptionV3": 75, "InceptionResNetV2": 75, "ConvNeXtTiny": 32,
}  # fmt: skip
"""Classes of keras.applications, with the smallest size of images that they take."""


def rows(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def export(directory: str, name: str, model: Any, feeds: dict[str, Any]) -> None:
    model.export(os.path.join(directory, name, "1"), **({"verbose": False} if isinstance(model, keras.Model) else {}))
    record(directory, name, feeds)


def only_input(model: Any, array: Any) -> dict[str, Any]:
    return {model.inputs[0].name.partition(":")[0]: array}


# Architectures


def application(package: Any, title: str, size: int, directory: str, name: str) -> None:
    package.utils.set_random_seed(1)
    top = {"include_top": False, "pooling": "avg"} if title.startswith("VGG") else {"classes": 10}
    model = getattr(package.applications, title)(weights=None, input_shape=(size, size, 3), **top)
    export(directory, name, model, only_input(model, 255 * rows(2, size, size, 3)))


def legacy_application(title: str, size: int, directory: str, name: str) -> None:
    import tf_keras

    application(tf_keras, title, size, directory, name)


# Text and structured data


def text_classifier(directory: str, name: str) -> None:
    keras.utils.set_random_seed(2)
    vectorize = layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(list(SENTENCES))
    text = keras.Input((1,), dtype="string", name="text")
    embedded = layers.Embedding(vectorize.vocabulary_size(), 8, mask_zero=True)(vectorize(text))
    model = keras.Model(text, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(embedded)))
    export(directory, name, model, {"text": SENTENCES[:, None]})


def text_tfidf(directory: str, name: str) -> None:
    vectorize = layers.TextVectorization(output_mode="tf_idf", ngrams=2)
    vectorize.adapt(list(SENTENCES))
    text = keras.Input((1,), dtype="string", name="text")
    model = keras.Model(text, vectorize(text))
    export(directory, name, model, {"text": SENTENCES[:, None]})


def structured(directory: str, name: str) -> None:
    """Save a model of several named inputs, each prepared by a layer with a table or learned statistics."""
    keras.utils.set_random_seed(3)
    age = keras.Input((1,), name="age")
    town = keras.Input((1,), dtype="string", name="town")
    shoe = keras.Input((1,), dtype="int64", name="shoe")
    normalize = layers.Normalization()
    normalize.adapt(10 * rows(50, 1))
    parts = [
        normalize(age),
        layers.Discretization([2.0, 5.0], output_mode="one_hot")(age),
        layers.StringLookup(vocabulary=WORDS, output_mode="one_hot")(town),
        layers.Hashing(4, output_mode="one_hot")(town),
        layers.IntegerLookup(vocabulary=[40, 41, 42], output_mode="one_hot")(shoe),
        layers.CategoryEncoding(50, output_mode="one_hot")(shoe),
    ]
    score = layers.Dense(2)(layers.Concatenate()([layers.Flatten()(part) for part in parts]))
    model = keras.Model([age, town, shoe], {"score": score, "class": layers.Softmax()(score)})
    feeds = {"age": 10 * rows(3, 1), "town": np.array([["ebb"], ["neap"], ["Paris"]], object)}
    export(directory, name, model, {**feeds, "shoe": np.array([[40], [43], [42]])})


def recommender(directory: str, name: str) -> None:
    keras.utils.set_random_seed(4)
    user, item = (keras.Input((), dtype="string", name=each) for each in ("user", "item"))
    vectors = [
        layers.Embedding(8, 6)(layers.StringLookup(vocabulary=vocabulary, num_oov_indices=2)(given))
        for given, vocabulary in ((user, WORDS), (item, ["a", "b"]))
    ]
    model = keras.Model([user, item], layers.Dot(axes=1)(vectors))
    feeds = {"user": np.array(["ebb", "nobody"], object), "item": np.array(["b", "c"], object)}
    export(directory, name, model, feeds)


# Sequences, attention, images


def sequence(kind: str, directory: str, name: str) -> None:
    keras.utils.set_random_seed(5)
    given = keras.Input((None, 5), name="steps")
    x = {
        "lstm": lambda: layers.LSTM(6)(layers.LSTM(6, return_sequences=True)(layers.Masking()(given))),
        "gru": lambda: layers.GRU(6, reset_after=False, return_sequences=True)(given),
        "bidirectional": lambda: layers.Bidirectional(layers.LSTM(4), merge_mode="concat")(given),
        "simple_rnn": lambda: layers.TimeDistributed(layers.Dense(3))(
            layers.SimpleRNN(4, return_sequences=True)(given)
        ),
        "convolutions": lambda: layers.GlobalMaxPooling1D()(
            layers.SeparableConv1D(4, 3, padding="same", dilation_rate=2)(layers.Conv1D(8, 2, padding="causal")(given))
        ),
    }[kind]()
    export(directory, name, keras.Model(given, x), {"steps": rows(3, 7, 5)})


def conv_lstm(directory: str, name: str) -> None:
    keras.utils.set_random_seed(6)
    given = keras.Input((3, 8, 8, 1), name="frames")
    model = keras.Model(given, layers.ConvLSTM2D(2, 3, padding="same")(given))
    export(directory, name, model, {"frames": rows(2, 3, 8, 8, 1)})


def encoder(directory: str, name: str) -> None:
    """Save two layers of a transformer, with a mask that depends on the tokens."""
    keras.utils.set_random_seed(7)
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(20, 16)(tokens)
    mask = keras.ops.not_equal(tokens, 0)[:, None, :]
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 4)(x, x, attention_mask=mask)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
    export(directory, name, keras.Model(tokens, x), {"tokens": np.array([[3, 4, 5, 0], [7, 0, 0, 0]], np.int32)})


def autoencoder(directory: str, name: str) -> None:
    keras.utils.set_random_seed(8)
    given = keras.Input((16, 16, 3), name="image")
    x = layers.GroupNormalization(2)(layers.Conv2D(4, 3, strides=2, padding="same")(layers.Rescaling(1 / 255)(given)))
    x = layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="sigmoid")(layers.BatchNormalization()(x))
    export(directory, name, keras.Model(given, layers.Resizing(24, 24)(x)), {"image": 255 * rows(2, 16, 16, 3)})


class Pictures(tf.Module):
    """Decodes JPEGs in the graph."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def predict(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        def decode(content: tf.Tensor) -> tf.Tensor:
            return tf.image.resize(tf.io.decode_jpeg(content, channels=3), [8, 8]) / 255.0

        images = tf.map_fn(decode, image_bytes, fn_output_signature=tf.TensorSpec([8, 8, 3], tf.float32))
        return {"mean": tf.reduce_mean(images, [1, 2]), "image": images}


def pictures(directory: str, name: str) -> None:
    module = Pictures()
    tf.saved_model.save(module, os.path.join(directory, name, "1"), signatures=module.predict)
    encoded = [tf.io.encode_jpeg((255 * rows(12, 10, 3, seed=seed)).astype(np.uint8)).numpy() for seed in range(2)]
    record(directory, name, {"image_bytes": np.array(encoded, object)})


# Modules of TensorFlow: a function makes the signature


def module(make: Callable[[tf.Module], tuple[Any, dict[str, Any]]], directory: str, name: str) -> None:
    root = tf.Module()
    function, feeds = make(root)
    tf.saved_model.save(root, os.path.join(directory, name, "1"), signatures=function)
    record(directory, name, feeds)


def signature(**inputs: Any) -> Callable[[Any], Any]:
    specs = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in inputs.items()]
    return tf.function(input_signature=specs)


def tables(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    file = os.path.join(os.path.dirname(__file__), "words.txt")
    source = tf.lookup.TextFileInitializer(file, tf.string, 0, tf.int64, 1, delimiter="\t")
    root.words = tf.lookup.StaticVocabularyTable(source, 2)
    root.mutable = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "none")
    root.mutable.insert(tf.constant([1, 2], tf.int64), tf.constant(["one", "two"]))

    @signature(word=([None], tf.string))
    def predict(word: tf.Tensor) -> dict[str, tf.Tensor]:
        numbers = root.words.lookup(word)
        return {"number": numbers, "text": root.mutable.lookup(numbers)}

    return predict, {"word": np.array(["ebb", "neap", "unknown", ""], object)}


def ragged(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    @signature(text=([None], tf.string))
    def predict(text: tf.Tensor) -> dict[str, tf.Tensor]:
        words = tf.strings.split(text)
        return {"words": words.to_tensor(""), "values": words.values, "splits": words.row_splits}

    return predict, {"text": SENTENCES}


def sparse(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    @signature(indices=([None, 2], tf.int64), values=([None], tf.float32), size=([2], tf.int64))
    def predict(indices: tf.Tensor, values: tf.Tensor, size: tf.Tensor) -> dict[str, tf.Tensor]:
        doubled = tf.sparse.map_values(lambda each: 2 * each, tf.SparseTensor(indices, values, size))
        return {"dense": tf.sparse.to_dense(doubled), "values": doubled.values}

    return predict, {"indices": np.array([[0, 1], [2, 0]]), "values": rows(2), "size": np.array([3, 2])}


def types(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    kinds = {"half": tf.float16, "brain": tf.bfloat16, "double": tf.float64, "byte": tf.uint8, "short": tf.int16}

    @signature(x=([None, None], tf.float32), flag=([], tf.bool))
    def predict(x: tf.Tensor, flag: tf.Tensor) -> dict[str, tf.Tensor]:
        cast = {name: tf.cast(100 * x, dtype) for name, dtype in kinds.items()}
        return {**cast, "flipped": ~flag, "whole": tf.cast(x, tf.int64) - 2**40}

    return predict, {"x": rows(2, 3), "flag": np.array(True)}


def loops(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    root.start = tf.Variable(rows(4))

    @signature(steps=([], tf.int32), x=([None, 4], tf.float32))
    def predict(steps: tf.Tensor, x: tf.Tensor) -> dict[str, tf.Tensor]:
        states = tf.TensorArray(tf.float32, size=steps, element_shape=[None, 4])
        state = x + root.start
        for step in tf.range(steps):
            if step % 2 == 0:
                state = tf.sin(state)
            else:
                state *= 1.5
            states = states.write(step, state)
        return {"states": states.stack(), "best": tf.math.top_k(state, 2).indices}

    return predict, {"steps": np.array(5, np.int32), "x": rows(3, 4)}


def no_inputs(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    root.weights = tf.Variable(rows(3))
    return tf.function(lambda: {"weights": root.weights.read_value()}, input_signature=[]), {}


def examples(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    features = {"x": tf.io.FixedLenFeature([2], tf.float32), "tags": tf.io.VarLenFeature(tf.string)}

    @signature(examples=([None], tf.string))
    def predict(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, features)
        return {"sum": tf.reduce_sum(parsed["x"], 1), "tags": tf.sparse.to_dense(parsed["tags"], "")}

    def example(x: list[float], *tags: bytes) -> bytes:
        lists = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
            "tags": tf.train.Feature(bytes_list=tf.train.BytesList(value=tags)),
        }
        return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()

    return predict, {"examples": np.array([example([1, 2], b"a", b"b"), example([3, 4])], object)}


def compiled(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    """Return a function that XLA compiles, as exporters of other frameworks write them."""
    root.weights = tf.Variable(rows(4, 3))
    inner = tf.function(lambda x: tf.nn.softmax(tf.tanh(x @ root.weights)), jit_compile=True)
    outer = tf.function(lambda x: {"y": inner(x)}, input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    return outer, {"x": rows(2, 4)}


def spectrogram(root: tf.Module) -> tuple[Any, dict[str, Any]]:
    @signature(wave=([None, 64], tf.float32))
    def predict(wave: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"magnitude": tf.abs(tf.signal.stft(wave, 16, 8))}

    return predict, {"wave": rows(2, 64)}


SEQUENCES = ("lstm", "gru", "bidirectional", "simple_rnn", "convolutions")
MODULES = (tables, ragged, sparse, types, loops, no_inputs, examples, compiled, spectrogram)
LEGACY = {"MobileNetV2": 32, "DenseNet121": 32, "EfficientNetB0": 32}
MODELS: dict[str, Callable[[str, str], None]] = {
    **{each.__name__: each for each in (text_classifier, text_tfidf, structured, recommender)},
    **{each.__name__: each for each in (conv_lstm, encoder, autoencoder, pictures)},
    **{kind: partial(sequence, kind) for kind in SEQUENCES},
    **{f"module_{each.__name__}": partial(module, each) for each in MODULES},
    **{title: partial(application, keras, title, size) for title, size in APPLICATIONS.items()},
    **{f"tf_keras_{title}": partial(legacy_application, title, size) for title, size in LEGACY.items()},
}

if __name__ == "__main__":
    save_all(MODELS, sys.argv[1], sys.argv[2:])
