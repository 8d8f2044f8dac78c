"""Serializers of TensorFlow Serving's messages, with the names of version 1 of AWS's SDK.

Endpoints of the kind ``python`` read and write these messages: in protobuf's binary form (`tf_serializer`,
`tf_deserializer`), or in protobuf's JSON (`tf_json_serializer`, `tf_json_deserializer`). Deserializers return messages
of the package tensorflow-serving-api, which they import when they are called.

Example:
    >>> from tidemill.sdk import Predictor
    >>> predictor = Predictor("digits", session, tf_serializer, tf_deserializer)  # doctest: +SKIP
    >>> predictor.predict(predict_request).outputs["y"].float_val  # doctest: +SKIP
"""

import importlib
from collections.abc import Iterator
from typing import Any

from tidemill.sdk.content_types import CONTENT_TYPE_OCTET_STREAM
from tidemill.sdk.serializers import (
    BytesDeserializer,
    CSVSerializer,
    IdentitySerializer,
    JSONDeserializer,
    JSONSerializer,
)

_APIS = "tensorflow_serving.apis"
_REQUESTS = ("PredictRequest", "ClassificationRequest", "MultiInferenceRequest", "RegressionRequest")
_PREDICTION = "PredictResponse"
_RESPONSES = (
    ("predict_pb2", _PREDICTION),
    ("classification_pb2", "ClassificationResponse"),
    ("inference_pb2", "MultiInferenceResponse"),
    ("regression_pb2", "RegressionResponse"),
)
_TENSOR = "tensorflow.TensorProto"


class _RequestSerializer(IdentitySerializer):
    """Serializes a request message in its binary form."""

    CONTENT_TYPE = CONTENT_TYPE_OCTET_STREAM

    def serialize(self, data: Any) -> bytes:
        """Return the bytes of a message.

        Raises:
            ValueError: ``data`` is not a request message of TensorFlow Serving.
        """
        kind = getattr(getattr(data, "DESCRIPTOR", None), "name", type(data).__name__)
        if kind not in _REQUESTS:
            raise ValueError(f"tf_serializer takes a message of {', '.join(_REQUESTS)}, but got {kind}")
        return bytes(data.SerializeToString())


class _ResponseDeserializer(BytesDeserializer):
    """Parses the binary form of a response message.

    The bytes do not name their kind: the first kind without unknown fields is returned.
    """

    ACCEPT = CONTENT_TYPE_OCTET_STREAM

    def deserialize(self, stream: Any, content_type: str = "") -> Any:
        """Return the response message.

        Raises:
            ValueError: The bytes are no response message of TensorFlow Serving.
            ImportError: The package tensorflow-serving-api is not installed.
        """
        content = stream.read()
        for kind in _response_classes():
            message = _parsed(kind, content)
            if message is not None:
                return message
        names = ", ".join(name for _, name in _RESPONSES)
        raise ValueError(f"the answer ({content_type or 'no content type'}, {len(content)} bytes) is none of {names}")


class _JSONMessageDeserializer(JSONDeserializer):
    """Parses protobuf's JSON of a response message or a TensorProto, and any other JSON."""

    def deserialize(self, stream: Any, content_type: str = "") -> Any:
        """Return the message, or the JSON value if it is no message.

        Raises:
            ImportError: The package tensorflow-serving-api is not installed.
        """
        document = super().deserialize(stream, content_type)
        if not isinstance(document, dict):
            return document
        kinds = (*_response_classes(), importlib.import_module("tensorflow.core.framework.tensor_pb2").TensorProto)
        json_format = importlib.import_module("google.protobuf.json_format")
        for kind in kinds:
            try:
                return json_format.ParseDict(document, kind())
            except json_format.ParseError:
                continue
        return document


class _TensorCSVSerializer(CSVSerializer):
    """Serializes a TensorProto as CSV, and everything that `CSVSerializer` takes."""

    def serialize(self, data: Any) -> str:
        """Return the rows as CSV without a final line feed, or a text unchanged."""
        if getattr(getattr(data, "DESCRIPTOR", None), "full_name", "") != _TENSOR:
            return super().serialize(data)
        values = _decoded(importlib.import_module("tensorflow").make_ndarray(data).tolist())
        return super().serialize(values if isinstance(values, list) else [values])


def _response_classes() -> Iterator[Any]:
    for module, name in _RESPONSES:
        try:
            yield getattr(importlib.import_module(f"{_APIS}.{module}"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"the answer is a message of TensorFlow Serving, whose classes are not installed ({error}): install"
                " tensorflow-serving-api, or use json_deserializer"
            ) from error


def _parsed(kind: Any, content: bytes) -> Any:
    """Return the message of a kind, or None if the bytes do not fit the kind."""
    try:
        message = kind.FromString(content)
    except Exception:  # noqa: BLE001  # the module of protobuf's DecodeError depends on its implementation
        return None
    known = kind()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():
        return None
    if kind.DESCRIPTOR.name == _PREDICTION and not all(tensor.dtype for tensor in message.outputs.values()):
        return None  # a classification, whose bytes also fit a map of empty tensors
    return message


def _decoded(value: Any) -> Any:
    """Return strings of a tensor as text."""
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


tf_serializer = _RequestSerializer()
tf_deserializer = _ResponseDeserializer()
tf_json_serializer = JSONSerializer()
tf_json_deserializer = _JSONMessageDeserializer()
tf_csv_serializer = _TensorCSVSerializer()
