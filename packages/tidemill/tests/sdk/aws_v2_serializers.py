"""Compares the serializers of tidemill's SDK with those of AWS's SDK v2; run in an environment with both."""

import inspect
import io
import sys
from typing import Any

import numpy as np
from google.protobuf import json_format, struct_pb2

sys.path.insert(0, sys.argv[1])

import sagemaker.deserializers as aws_deserializers
import sagemaker.serializers as aws_serializers

from tidemill.sdk import serializers as own

ARRAY = np.array([[1.5, 2.0], [3.0, 4.0]], dtype=np.float32)
BODIES: dict[str, list[Any]] = {
    "CSVSerializer": [[[1, 2], [3, 4]], [1, 2], "1,2", ARRAY],
    "IdentitySerializer": [b"x", "x"],
    "JSONLinesSerializer": [[{"a": 1}, [2]], "[1]"],
    "JSONSerializer": [{"instances": [1, 2.5]}, [1], "text", ARRAY, {"x": ARRAY}],
    "NumpySerializer": [ARRAY, [1, 2], [[1.0]], 3],
    "StringSerializer": ["text"],
}
REPLIES: dict[str, list[tuple[bytes, str]]] = {
    "BytesDeserializer": [(b"x", "a/b")],
    "CSVDeserializer": [(b"1,2\n3,4", "text/csv")],
    "JSONDeserializer": [(b'{"a": [1]}', "application/json")],
    "JSONLinesDeserializer": [(b"[1]\n{}", "application/jsonlines")],
    "NumpyDeserializer": [
        (b"1,2\n3,4", "text/csv"),
        (b"[[1, 2]]", "application/json"),
        (own.NumpySerializer().serialize(ARRAY), "application/x-npy"),
    ],
    "StreamDeserializer": [(b"x", "a/b")],
    "StringDeserializer": [(b"text", "text/plain")],
}


def arguments(kind: type) -> set[str]:
    return set(inspect.signature(kind).parameters)


def value_of(result: Any) -> Any:
    if isinstance(result, tuple):
        return result[0].read(), result[1]
    return result.tolist() if hasattr(result, "tolist") else result


def text_of(body: Any) -> Any:
    """Return a body without blanks between JSON's tokens and without a last line end, which no reader distinguishes."""
    body = body.encode() if isinstance(body, str) else body
    return body if body.startswith(b"\x93NUMPY") else body.replace(b" ", b"").rstrip(b"\n")


for name, examples in BODIES.items():
    mine, theirs = getattr(own, name), getattr(aws_serializers, name)
    assert arguments(mine) >= arguments(theirs), name
    assert mine().CONTENT_TYPE == theirs().CONTENT_TYPE, name
    assert mine(content_type="a/b").CONTENT_TYPE == mine(content_type="a/b").content_type == "a/b", name
    for example in examples:
        assert text_of(mine().serialize(example)) == text_of(theirs().serialize(example)), (name, example)
for name, replies in REPLIES.items():
    mine, theirs = getattr(own, name), getattr(aws_deserializers, name)
    assert arguments(mine) >= arguments(theirs), name
    accepted = theirs().ACCEPT
    assert (accepted if isinstance(accepted, str) else accepted[0]) == mine().ACCEPT, name
    assert mine(accept="a/b").ACCEPT == "a/b", name
    for body, content_type in replies:
        found = value_of(mine().deserialize(io.BytesIO(body), content_type))
        assert found == value_of(theirs().deserialize(io.BytesIO(body), content_type)), (name, content_type)

message = struct_pb2.Struct()
message["x"] = 1.5
assert own.JSONSerializer().serialize(message) == json_format.MessageToJson(message, indent=None)
assert own.JSONSerializer().serialize({"instances": [message]}) == '{"instances": [{"x": 1.5}]}'
assert struct_pb2.Struct.FromString(own.IdentitySerializer().serialize(message)) == message
print(f"{len(BODIES)} serializers and {len(REPLIES)} deserializers alike")
