"""TensorFlow Lite models, for `build_models`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef  # pyrefly: ignore[missing-import]
from tensorflow.lite.python import schema_py_generated as schema  # pyrefly: ignore[missing-import]

Tensors = dict[str, tf.Tensor]


class Lite(tf.Module):
    """Signatures of numbers, of strings and a scalar, of a variable that counts, and of a loop."""

    def __init__(self) -> None:
        self.weight = tf.Variable([[1.0], [2.0]])
        self.total = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def predict(self, x: tf.Tensor) -> Tensors:
        return {"y": x @ self.weight, "positive": tf.reduce_sum(x, axis=1) > 0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s"), tf.TensorSpec([], tf.int64, name="n")])
    def text(self, s: tf.Tensor, n: tf.Tensor) -> Tensors:
        return {"s": tf.identity(s), "n": n + 1}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="a")])
    def count(self, a: tf.Tensor) -> Tensors:
        return {"total": self.total.assign_add(a)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name=name) for name in "ab"])
    def products(self, a: tf.Tensor, b: tf.Tensor) -> Tensors:
        return {"total": self.total.assign_add(tf.reduce_sum(a * b))}


def save_lite(directory: Path) -> None:
    """Save the model with its signatures."""
    lite = Lite()
    saved = directory.parent / "lite.saved"
    signatures = {"serving_default": lite.predict, "text": lite.text, "count": lite.count, "products": lite.products}
    tf.saved_model.save(lite, str(saved), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved), signature_keys=list(signatures))
    converter.experimental_enable_resource_variables = True
    _write(directory / "1", converter.convert())


def save_both(directory: Path) -> None:
    """Save versions with both models, which differ: the SavedModel doubles, the other one triples."""
    for number in ("1", "2"):
        double = tf.function(lambda x: {"y": 2.0 * x}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        tf.saved_model.save(tf.Module(), str(directory / number), signatures=double)
    triple = _converted(lambda x: 3.0 * x, tf.TensorSpec([None], tf.float32, name="x"))
    _write(directory / "1", triple)
    _write(directory / "2", _with_signature_metadata(triple))


def save_quantized(directory: Path) -> None:
    """Save a network of 8-bit integers, and the answers of TensorFlow's own interpreter."""
    spec = tf.TensorSpec([None, 8], tf.float32, name="pixels")
    weight = tf.random.stateless_normal([8, 3], seed=(1, 2))
    rows = np.random.default_rng(0).random((16, 8), dtype=np.float32)
    content = _converted(
        lambda pixels: tf.nn.relu(pixels @ weight),
        spec,
        optimizations=[tf.lite.Optimize.DEFAULT],
        representative_dataset=lambda: ([rows[index : index + 1]] for index in range(len(rows))),
        inference_input_type=tf.uint8,
        inference_output_type=tf.uint8,
    )
    _write(directory / "1", content)
    pixels = (rows * 255).astype(np.uint8)
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
    interpreter.invoke()
    answers = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.savez(directory.parent / "lite_quantized.npz", rows=pixels, answers=answers)


def save_sequences(directory: Path) -> None:
    """Save an LSTM of Keras 2, whose fused operation keeps its state in tensors, and its answers."""
    import tf_keras

    tf_keras.utils.set_random_seed(3)
    layers = [tf_keras.layers.LSTM(4), tf_keras.layers.Dense(2)]
    model = tf_keras.Sequential([tf_keras.layers.InputLayer(batch_input_shape=(1, 5, 3)), *layers])
    _write(directory / "1", tf.lite.TFLiteConverter.from_keras_model(model).convert())
    rows = np.random.default_rng(1).random((3, 5, 3), dtype=np.float32)
    answers = np.concatenate([model(rows[index : index + 1]).numpy() for index in range(len(rows))])
    np.savez(directory.parent / "lite_sequences.npz", rows=rows, answers=answers)


def save_refused(directory: Path) -> None:
    """Save files that the wheel's interpreter cannot run, with other operations than its own, and damaged ones."""
    words = tf.TensorSpec([None], tf.string, name="s")
    both = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    content = _converted(lambda s: tf.strings.join([s, s]), words, supported_ops=both)
    (directory / "select.tflite").write_bytes(content)
    (directory / "custom.tflite").write_bytes(content.replace(b"FlexStringJoin", b"TideStringJoin"))
    (directory / "damaged.tflite").write_bytes(content[:100])
    whole = _converted(lambda x: tf.reduce_sum(x, axis=-1), tf.TensorSpec([None, None, None], tf.float32, name="x"))
    _write(directory / "lite_sum/1", whole)
    (directory / "unreadable.tflite").write_bytes(_named(whole, b"\xff"))
    (directory / "unnamed.tflite").write_bytes(_named(whole, None))
    (directory / "crashing.tflite").write_bytes(_changed(whole, lambda model: setattr(model, "subgraphs", None)))
    # It can be planned, but the sum writes numbers to where an array of strings has its offsets.
    in_run = _changed(whole, lambda model: setattr(model.subgraphs[0].tensors[-1], "type", schema.TensorType.STRING))
    (directory / "crashing_in_run.tflite").write_bytes(in_run)


def save_lite_models(directory: Path) -> None:
    """Save all models of this file below a directory."""
    save_lite(directory / "lite")
    save_both(directory / "lite_both")
    save_quantized(directory / "lite_quantized")
    save_sequences(directory / "lite_sequences")
    save_refused(directory)


def _write(directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.tflite").write_bytes(content)


def _converted(function: Any, spec: tf.TensorSpec, *, supported_ops: Any = None, **settings: Any) -> bytes:
    """Convert a function; such a model has no signatures, only names of tensors."""
    converter = tf.lite.TFLiteConverter.from_concrete_functions([tf.function(function).get_concrete_function(spec)])
    for name, value in settings.items():
        setattr(converter, name, value)
    if supported_ops is not None:
        converter.target_spec.supported_ops = supported_ops
    return converter.convert()


def _with_signature_metadata(content: bytes) -> bytes:
    """Add a signature in the form of TensorFlow Serving's tools: a map of SignatureDefs in the metadata."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    graph = model.subgraphs[0]
    definition = SignatureDef(method_name="tensorflow/serving/predict")
    given, answer = graph.inputs[0], graph.outputs[0]
    for infos, alias, number in ((definition.inputs, "number", given), (definition.outputs, "tripled", answer)):
        infos[alias].name = graph.tensors[number].name.decode()
        infos[alias].dtype = tf.float32.as_datatype_enum
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key("triple")
        builder.String(definition.SerializeToString().decode())
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(bytes(builder.Finish()), np.uint8)
    entry = schema.MetadataT()
    entry.name, entry.buffer = "signature_defs_metadata", len(model.buffers)

    def add(model: Any) -> None:
        model.buffers.append(buffer)
        model.metadata = [*(model.metadata or []), entry]

    return _changed(content, add)


def _named(content: bytes, name: bytes | None) -> bytes:
    """Give all tensors the same name, or none."""

    def rename(model: Any) -> None:
        for tensor in model.subgraphs[0].tensors:
            tensor.name = name

    return _changed(content, rename)


def _changed(content: bytes, change: Callable[[Any], object]) -> bytes:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    change(model)
    packer = flatbuffers.Builder(1024)
    packer.Finish(model.Pack(packer), b"TFL3")
    return bytes(packer.Output())
