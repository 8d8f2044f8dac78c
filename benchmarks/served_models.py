"""Build the models of `serving_models.py`, with random weights, the requests, and TensorFlow's own answers to them.

    .venvs/tf-2.21/bin/python benchmarks/served_models.py DIRECTORY [CASE ...] [--layers 2]

Nothing is downloaded. A case is a model with requests; several cases may share a model. ``DIRECTORY/MODEL/1`` is the
SavedModel, ``DIRECTORY/CASE.json`` has the instances of the requests and what `tf.saved_model.load` answers to each
alone. What exists already is kept.
"""

import argparse
import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from compiler_models import lstm, recommender
from serving_models import CASES, RELATIVE_TOLERANCE

SIDE = 224
TOKENS = 128
VOCABULARY, WIDTH, HEADS = 30522, 768, 12  # as BERT-base
RAGGED_TOKENS = (16, 32, 48, 64, 80, 96, 112, 128)


def half_plus_two(layers: int) -> tf.Module:
    """0.5 * x + 2."""
    module = tf.Module()
    module.a, module.b = tf.Variable(0.5), tf.Variable(2.0)

    def compute(x: Any) -> Any:
        return module.a * x + module.b

    return _served(module, compute, x=tf.TensorSpec([None], tf.float32))


def mobilenet(layers: int) -> tf.Module:
    """MobileNetV2, images of 224 x 224 x 3 numbers."""
    return _of_images(keras.applications.MobileNetV2(weights=None, classifier_activation=None))


def mobilenet_jpeg(layers: int) -> tf.Module:
    """MobileNetV2, which decodes and resizes JPEG images in its graph."""
    return _of_jpeg(keras.applications.MobileNetV2(weights=None, classifier_activation=None))


def resnet50(layers: int) -> tf.Module:
    """ResNet50, which decodes and resizes JPEG images in its graph."""
    return _of_jpeg(keras.applications.ResNet50(weights=None, classifier_activation=None))


def encoder(layers: int) -> tf.Module:
    """Blocks of BERT-base's size over masked tokens; the answer is the tanh of a dense layer on the first token."""
    module = tf.Module()
    parts = keras.layers
    module.words, module.positions = parts.Embedding(VOCABULARY, WIDTH), parts.Embedding(512, WIDTH)
    module.pool = parts.Dense(WIDTH, activation="tanh")
    module.norm = parts.LayerNormalization()
    module.attention = [parts.MultiHeadAttention(HEADS, WIDTH // HEADS) for _ in range(layers)]
    module.inner = [parts.Dense(4 * WIDTH, activation="gelu") for _ in range(layers)]
    module.outer = [parts.Dense(WIDTH) for _ in range(layers)]
    module.norms = [(parts.LayerNormalization(), parts.LayerNormalization()) for _ in range(layers)]

    def encode(input_ids: Any, attention_mask: Any) -> Any:
        hidden = module.words(input_ids) + module.positions(tf.range(tf.shape(input_ids)[1]))[None]
        hidden = module.norm(hidden)
        mask = tf.cast(attention_mask, tf.bool)[:, None, :]
        blocks = zip(module.attention, module.inner, module.outer, module.norms, strict=True)
        for attention, inner, outer, (first, second) in blocks:
            hidden = first(hidden + attention(hidden, hidden, attention_mask=mask))
            hidden = second(hidden + outer(inner(hidden)))
        return module.pool(hidden[:, 0])

    ids = tf.TensorSpec([None, None], tf.int32)
    return _served(module, encode, input_ids=ids, attention_mask=ids)


def embedding_recommender(layers: int) -> tf.Module:
    """Twenty ids of one embedding table and one of another, then dense layers."""
    model = recommender().model
    ids, user = tf.TensorSpec([None, 20], tf.int32), tf.TensorSpec([None, 1], tf.int32)
    module = tf.Module()
    module.model = model

    def score(items: Any, user: Any) -> Any:
        return model({"items": items, "user": user})

    return _served(module, score, items=ids, user=user)


def lstm_classifier(layers: int) -> tf.Module:
    """Two LSTMs of 64 over 50 positions of 32 numbers."""
    module = tf.Module()
    module.model = lstm().model
    return _served(module, module.model, x=tf.TensorSpec([None, 50, 32], tf.float32))


MODELS: dict[str, Callable[[int], tf.Module]] = {
    "half_plus_two": half_plus_two,
    "mobilenet": mobilenet,
    "mobilenet_jpeg": mobilenet_jpeg,
    "resnet50": resnet50,
    "encoder": encoder,
    "recommender": embedding_recommender,
    "lstm": lstm_classifier,
}


def _served(module: tf.Module, function: Callable[..., Any], **specs: tf.TensorSpec) -> tf.Module:
    """Add a function to a module, as its signature ``serving_default`` with the output ``y``."""

    def serve(**inputs: Any) -> dict[str, Any]:
        return {"y": function(*(inputs[name] for name in specs))}

    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    module.serve = tf.function(serve).get_concrete_function(**named)
    return module


def _of_images(model: Any) -> tf.Module:
    module = tf.Module()
    module.model = model
    return _served(module, model, x=tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))


def _of_jpeg(model: Any) -> tf.Module:
    module = tf.Module()
    module.model = model

    def decoded(content: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(content, channels=3), (SIDE, SIDE)) / 127.5 - 1.0

    def classify(image_bytes: Any) -> Any:
        return model(tf.map_fn(decoded, image_bytes, fn_output_signature=tf.TensorSpec([SIDE, SIDE, 3], tf.float32)))

    return _served(module, classify, image_bytes=tf.TensorSpec([None], tf.string))


def _pictures(side: int, count: int) -> Any:
    """Return smooth random pictures, whose JPEG files are about as long as those of photographs."""
    coarse = np.random.default_rng(0).random((count, 14, 14, 3))
    fine = np.random.default_rng(1).random((count, side // 2, side // 2, 3))
    parts = [tf.image.resize(each, (side, side), "bicubic").numpy() for each in (coarse, fine)]
    return np.clip(255 * (0.8 * parts[0] + 0.2 * parts[1]), 0, 255).astype(np.uint8)


def _numbers_of_pictures() -> list[Any]:
    instances: list[Any] = (_pictures(SIDE, 4).astype(np.float32) / np.float32(255)).astype(float).tolist()
    return instances


def _jpeg_of_pictures() -> list[Any]:
    files = [tf.io.encode_jpeg(picture).numpy() for picture in _pictures(256, 8)]
    return [{"b64": base64.b64encode(content).decode()} for content in files]


def _tokens(lengths: tuple[int, ...]) -> list[Any]:
    generator = np.random.default_rng(0)
    return [
        {"input_ids": generator.integers(1, VOCABULARY, length).tolist(), "attention_mask": [1] * length}
        for length in lengths
    ]


def _choices() -> list[Any]:
    generator = np.random.default_rng(0)
    return [
        {"items": generator.integers(0, 20000, 20).tolist(), "user": generator.integers(0, 5000, 1).tolist()}
        for _ in range(8)
    ]


def _sequences() -> list[Any]:
    instances: list[Any] = np.random.default_rng(0).normal(size=(8, 50, 32)).round(4).tolist()
    return instances


INSTANCES: dict[str, Callable[[], list[Any]]] = {
    "half_plus_two": lambda: [float(value) for value in range(8)],
    "mobilenet_json": _numbers_of_pictures,
    "mobilenet_npy": _numbers_of_pictures,
    "mobilenet_jpeg": _jpeg_of_pictures,
    "resnet50": _jpeg_of_pictures,
    "encoder": lambda: _tokens((TOKENS,) * 8),
    "encoder_ragged": lambda: _tokens(RAGGED_TOKENS),
    "recommender": _choices,
    "lstm": _sequences,
}
"""By case, a function that returns the instances of its requests, each as its JSON."""


def build(directory: Path, name: str, *, layers: int) -> None:
    """Write the model and the requests of a case, unless they exist.

    Args:
        directory: Holds all models and cases.
        name: Name of the case.
        layers: Number of the encoder's blocks.
    """
    model, file = directory / CASES[name] / "1", directory / f"{name}.json"
    if not (model / "saved_model.pb").exists():
        keras.utils.set_random_seed(0)
        module = MODELS[CASES[name]](layers)
        tf.saved_model.save(module, str(model), signatures={"serving_default": module.serve})
    if not file.exists():
        instances = INSTANCES[name]()
        expected = _answers(model, instances)
        difference = np.abs(expected - expected[0])[1:].max() / np.abs(expected).max()
        assert difference > 10 * RELATIVE_TOLERANCE, f"{name}: the answers hardly differ, so they would prove nothing"
        file.write_text(json.dumps({"instances": instances, "expected": expected.tolist()}))


def _answers(model: Path, instances: list[Any]) -> Any:
    """Return TensorFlow's answer to each instance alone."""
    loaded = tf.saved_model.load(str(model))
    run = loaded.signatures["serving_default"]
    specs = run.structured_input_signature[1]
    answers = []
    for instance in instances:
        values = instance if len(specs) > 1 else {next(iter(specs)): instance}
        feeds = {name: tf.constant([_value(values[name])], specs[name].dtype) for name in specs}
        answers.append(run(**feeds)["y"].numpy()[0])
    return np.array(answers)


def _value(value: Any) -> Any:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def main() -> None:
    """Build the named cases, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("cases", nargs="*", help=f"default: {' '.join(CASES)}")
    parser.add_argument("--layers", type=int, default=2, help="blocks of the encoder; 12 as BERT-base (default: 2)")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    for name in given.cases or CASES:
        build(given.directory, name, layers=given.layers)


if __name__ == "__main__":
    main()
