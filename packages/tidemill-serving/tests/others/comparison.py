"""Compare what a server answers about recorded models with what Python's TensorFlow answered.

Each model is asked by REST in JSON, in columns and (where every tensor has a first dimension of the same size) in rows;
by REST as arrays of NumPy, where it has one input and one output of numbers; and by gRPC.
"""

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import ml_dtypes
import numpy as np

from tidemill_serving.engine.wheel import open_wheel

open_wheel()  # so that the messages are imported without TensorFlow
from tensorflow.core.framework import tensor_pb2, types_pb2  # noqa: E402
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc  # noqa: E402

Array = np.ndarray[Any, Any]
Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 300
RELATIVE, ABSOLUTE = 2e-5, 2e-6
"""Allowed differences: other versions of TensorFlow, and other batches, add in another order."""


@dataclass(frozen=True)
class Recorded:
    """A model and its answers, as `recording.store` has written them."""

    name: str
    made_by: str
    signature: str
    feeds: Mapping[str, Array]
    answers: Mapping[str, Array]

    @classmethod
    def read(cls, file: Path) -> "Recorded":
        with np.load(file, allow_pickle=True) as stored:
            feeds, answers = (
                {name[len(kind) :]: stored[name] for name in stored.files if name.startswith(kind)}
                for kind in ("in:", "out:")
            )
            return cls(file.stem, str(stored["made_by"]), str(stored["signature"]), feeds, answers)


@dataclass(frozen=True)
class Difference:
    """The largest difference of the answers of a model by one protocol, relative to the tolerance; 0: the same bits."""

    share: float

    def __str__(self) -> str:
        return "bits" if self.share == 0 else f"{self.share:.1g}"


def compare(server: Server, recorded: Recorded) -> dict[str, Difference]:
    """Ask a server about a model in all ways that fit.

    Returns:
        The difference by the name of the way.

    Raises:
        AssertionError: An answer differs by more than the tolerance, or is an error.
    """
    found = {"gRPC": _difference(recorded, _by_grpc(server, recorded))}
    if all(array.dtype.kind != "c" for array in (*recorded.feeds.values(), *recorded.answers.values())):
        found["JSON columns"] = _difference(recorded, _by_columns(server, recorded))
        if _has_rows(recorded):
            found["JSON rows"] = _difference(recorded, _by_rows(server, recorded))
    only = [*recorded.feeds.values(), *recorded.answers.values()]
    plain = all(array.dtype.kind in "fiub" for array in only) and recorded.signature == "serving_default"
    if plain and (len(recorded.feeds), len(recorded.answers)) == (1, 1):
        found["npy"] = _difference(recorded, _by_npy(server, recorded))
    return found


def _by_grpc(server: Server, recorded: Recorded) -> dict[str, Array]:
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = recorded.name, recorded.signature
    for alias, array in recorded.feeds.items():
        request.inputs[alias].CopyFrom(_proto(array))
    with grpc.insecure_channel(
        f"127.0.0.1:{server.grpc_port}", options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        reply = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=DEADLINE_S)
    return {alias: _array(reply.outputs[alias], recorded.answers[alias].dtype) for alias in reply.outputs}


def _proto(array: Array) -> Any:
    proto = tensor_pb2.TensorProto()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype.kind == "O":
        proto.dtype = types_pb2.DT_STRING
        proto.string_val.extend([each if isinstance(each, bytes) else each.encode() for each in array.ravel().tolist()])
        return proto
    names = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF"}
    proto.dtype = types_pb2.DataType.Value(f"DT_{names.get(array.dtype.name, array.dtype.name.upper())}")
    proto.tensor_content = array.tobytes()
    return proto


def _array(proto: Any, dtype: Any) -> Array:
    """Return the array of a TensorProto with typed values, which is of the type that was recorded."""
    shape = [dim.size for dim in proto.tensor_shape.dim]
    fields = ("float", "double", "int", "int64", "uint32", "uint64", "bool", "string", "half", "scomplex", "dcomplex")
    values = next((list(found) for field in fields if (found := getattr(proto, f"{field}_val"))), [])
    if proto.dtype in (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16):
        kind = np.float16 if proto.dtype == types_pb2.DT_HALF else ml_dtypes.bfloat16
        return np.array(values, np.uint16).view(kind).reshape(shape)
    if proto.dtype == types_pb2.DT_STRING:
        return _objects(values, shape)
    if dtype.kind == "c":
        return np.array(values, np.float32 if dtype.itemsize == 8 else np.float64).view(dtype).reshape(shape)
    return np.array(values, dtype).reshape(shape)


def _by_columns(server: Server, recorded: Recorded) -> dict[str, Array]:
    inputs = {alias: _json(array) for alias, array in recorded.feeds.items()}
    body = {"signature_name": recorded.signature, "inputs": inputs}
    answer = server.predict(recorded.name, body)
    assert answer.status == 200, answer.body
    outputs = answer.json["outputs"]
    if len(recorded.answers) == 1:
        outputs = dict.fromkeys(recorded.answers, outputs)
    return {alias: _from_json(outputs[alias], recorded.answers[alias]) for alias in recorded.answers}


def _by_rows(server: Server, recorded: Recorded) -> dict[str, Array]:
    size = len(next(iter(recorded.feeds.values())))
    instances = [{alias: _json(array[row]) for alias, array in recorded.feeds.items()} for row in range(size)]
    answer = server.predict(recorded.name, {"signature_name": recorded.signature, "instances": instances})
    assert answer.status == 200, answer.body
    predictions = answer.json["predictions"]
    if len(recorded.answers) == 1:
        (alias,) = recorded.answers
        predictions = [{alias: each} for each in predictions]
    return {
        alias: _from_json([row[alias] for row in predictions], expected) for alias, expected in recorded.answers.items()
    }


def _by_npy(server: Server, recorded: Recorded) -> dict[str, Array]:
    (given,), (alias,) = recorded.feeds.values(), recorded.answers
    body = io.BytesIO()
    np.save(body, given)
    named = {"X-Amzn-SageMaker-Custom-Attributes": f"tfs-model-name={recorded.name}"}
    headers = {"Content-Type": "application/x-npy", "Accept": "application/x-npy", **named}
    answer = server.request("POST", "/invocations", body.getvalue(), headers)
    assert answer.status == 200, answer.body
    return {alias: np.load(io.BytesIO(answer.body))}


def _has_rows(recorded: Recorded) -> bool:
    arrays = [*recorded.feeds.values(), *recorded.answers.values()]
    sizes = {array.shape[0] if array.ndim else None for array in arrays}
    return bool(recorded.feeds) and len(sizes) == 1 and None not in sizes


def _json(array: Any) -> Any:
    """Return JSON's form of an array; bytes that are no text are encoded."""
    if isinstance(array, np.ndarray) and array.dtype.kind != "O":
        return array.tolist()
    if isinstance(array, np.ndarray) and array.ndim:
        return [_json(each) for each in array]
    value = array.item() if isinstance(array, np.ndarray) else array
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value.item() if isinstance(value, np.generic) else value


def _from_json(value: Any, expected: Array) -> Array:
    if expected.dtype.kind != "O":
        return np.array(value, expected.dtype)
    flat: list[bytes] = []

    def collect(each: Any) -> None:
        if isinstance(each, list):
            for inner in each:
                collect(inner)
        else:
            flat.append(base64.b64decode(each["b64"]) if isinstance(each, dict) else each.encode())

    collect(value)
    return _objects(flat, expected.shape)


def _objects(values: list[bytes], shape: Any) -> Array:
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array.reshape(shape)


def _difference(recorded: Recorded, answers: Mapping[str, Array]) -> Difference:
    assert sorted(answers) == sorted(recorded.answers)
    return Difference(max((_share(recorded.answers[alias], answers[alias], alias) for alias in answers), default=0.0))


def _share(expected: Array, got: Array, alias: str) -> float:
    assert got.shape == expected.shape, (alias, got.shape, expected.shape)
    if expected.dtype.kind in "OiubS":
        np.testing.assert_array_equal(got, expected, err_msg=alias)
        return 0.0
    # Relative to the largest number of the answer: what small ones are the difference of has the size of that.
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    wide, other = expected.astype(kind), got.astype(kind)
    np.testing.assert_array_equal(np.isnan(other), np.isnan(wide), err_msg=alias)
    wide, other = np.nan_to_num(wide), np.nan_to_num(other)
    resolution = max(RELATIVE, 2 * float(np.finfo(expected.dtype).eps))
    largest = float(np.max(np.abs(wide), initial=0.0))
    difference = float(np.max(np.abs(wide - other), initial=0.0))
    share = difference / (ABSOLUTE + resolution * largest)
    assert math.isfinite(share) and share <= 1, f"{alias}: differs by {difference} of {largest}"
    return share
