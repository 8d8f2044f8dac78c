"""SavedModels for element types, ranks and kinds of tensors, for `build_models`."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel  # pyrefly: ignore[missing-import]

Tensors = dict[str, tf.Tensor]
PLAIN_TYPES = (
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    *(tf.bool, tf.string),
)
RANKED_TYPES = (tf.float32, tf.bool, tf.string)
RANKS = (0, 1, 2, 3, 4)
TYPES_WITHOUT_JSON = (tf.complex64, tf.complex128, tf.qint8, tf.quint16, tf.variant, tf.resource)


def save_types(directory: Path) -> None:
    """Save one signature per type that returns its input, of unknown rank (``bool``) or of fixed rank (``bool_2``)."""
    signatures = {dtype.name: _same(tf.TensorSpec(None, dtype, name="x")) for dtype in PLAIN_TYPES}
    for dtype in RANKED_TYPES:
        for rank in RANKS:
            signatures[f"{dtype.name}_{rank}"] = _same(tf.TensorSpec([None] * rank, dtype, name="x"))
    tf.saved_model.save(tf.Module(), str(directory / "1"), signatures=signatures)


class Mixed(tf.Module):
    """Inputs and outputs of several types and ranks, with names that JSON must escape."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.bool, name="flag"),
            tf.TensorSpec([None, None], tf.int64, name="counts"),
            tf.TensorSpec([None], tf.string, name="name"),
        ]
    )
    def predict(self, flag: tf.Tensor, counts: tf.Tensor, name: tf.Tensor) -> Tensors:
        return {"flag": tf.identity(flag), "counts": tf.identity(counts), "name": tf.identity(name), 'a "b"': ~flag}


def save_unusable(directory: Path) -> None:
    """Save signatures that JSON cannot represent, and one that it can."""
    floats = tf.TensorSpec([None], tf.float32, name="x")
    signatures = {"serving_default": _same(floats)}
    for dtype in TYPES_WITHOUT_JSON:
        signatures[dtype.name] = _same(tf.TensorSpec([None], dtype, name="x"))
    outputs: dict[str, Callable[[tf.Tensor], object]] = {
        "complex_output": lambda x: tf.complex(x, x),
        "ragged": lambda x: tf.RaggedTensor.from_row_lengths(x, [tf.size(x)]),
        "sparse": tf.sparse.from_dense,
    }
    for name, output in outputs.items():
        signatures[name] = _concrete(lambda x, output=output: {"y": output(x)}, floats)
    signatures["no_outputs"] = _concrete(lambda x: {}, floats)
    tf.saved_model.save(tf.Module(), str(directory / "1"), signatures=signatures)
    _add_sparse_input(directory / "1" / "saved_model.pb")


def save_examples(directory: Path) -> None:
    """Save signatures that parse Examples, as TensorFlow 2 exports them: with the method name of predict."""
    examples = tf.TensorSpec([None], tf.string, name="examples")
    floats = tf.TensorSpec([None], tf.float32, name="x")

    def parse(serialized: tf.Tensor) -> Tensors:
        features = {
            "decimal": tf.io.FixedLenFeature([], tf.float32, 0.0),
            "whole": tf.io.FixedLenFeature([], tf.int64, 0),
            "text": tf.io.FixedLenFeature([], tf.string, ""),
        }
        return tf.io.parse_example(serialized, features)

    def total(serialized: tf.Tensor) -> tf.Tensor:
        parsed = parse(serialized)
        lengths = tf.strings.length(parsed["text"])
        return parsed["decimal"] + tf.cast(parsed["whole"], tf.float32) + tf.cast(lengths, tf.float32)

    def scores(serialized: tf.Tensor) -> tf.Tensor:
        return tf.stack([total(serialized), -total(serialized)], axis=1)

    def classes(serialized: tf.Tensor) -> tf.Tensor:
        return tf.tile([["more", "less"]], [tf.size(serialized), 1])

    functions: dict[str, Callable[[tf.Tensor], Tensors]] = {
        "regress": lambda serialized: {"outputs": total(serialized)},
        "regress_column": lambda serialized: {"outputs": total(serialized)[:, None], "text": parse(serialized)["text"]},
        "regress_whole": lambda serialized: {"outputs": parse(serialized)["whole"]},
        "regress_wide": lambda serialized: {"outputs": scores(serialized)},
        "regress_mean": lambda serialized: {"outputs": tf.reduce_mean(total(serialized))},
        "regress_text": lambda serialized: {"outputs": parse(serialized)["text"]},
        "classify": lambda serialized: {"classes": classes(serialized), "scores": scores(serialized)},
        "classes": lambda serialized: {"classes": classes(serialized)},
        "scores": lambda serialized: {"scores": tf.cast(scores(serialized), tf.float64)},
        "numbered": lambda serialized: {"classes": tf.cast(scores(serialized), tf.int64), "scores": scores(serialized)},
        "uneven": lambda serialized: {"classes": classes(serialized)[:, :1], "scores": scores(serialized)},
        "flat": lambda serialized: {"scores": total(serialized)},
        "other": lambda serialized: {"y": total(serialized)},
    }
    signatures = {name: _concrete(function, examples) for name, function in functions.items()}
    signatures["numbers"] = _concrete(lambda x: {"outputs": tf.identity(x)}, floats)
    two = tf.function(lambda a, b: {"outputs": total(a) + total(b)})
    signatures["two"] = two.get_concrete_function(a=examples, b=examples)
    tf.saved_model.save(tf.Module(), str(directory / "1"), signatures=signatures)


def _add_sparse_input(file: Path) -> None:
    """Add a signature with a sparse input, which only TensorFlow 1 declares: TensorFlow 2 splits it into its parts."""
    saved = SavedModel.FromString(file.read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    signatures["sparse_input"].CopyFrom(signatures["serving_default"])
    sparse = signatures["sparse_input"].inputs["s"]
    sparse.CopyFrom(signatures["sparse"].outputs["y"])
    file.write_bytes(saved.SerializeToString())


def _same(spec: tf.TensorSpec) -> tf.types.experimental.ConcreteFunction:
    return _concrete(lambda x: {"y": tf.identity(x)}, spec)


def _concrete(function: Callable[[tf.Tensor], object], spec: tf.TensorSpec) -> tf.types.experimental.ConcreteFunction:
    return tf.function(function).get_concrete_function(spec)
