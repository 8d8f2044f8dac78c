"""Serializers of prediction requests and deserializers of their answers, with the names of AWS's SDK.

A predictor also accepts any other object with ``CONTENT_TYPE`` and ``serialize``, or ``ACCEPT`` and ``deserialize``,
and, as in version 1 of AWS's SDK, a plain function. NumPy arrays and protobuf messages are recognized by their methods,
so NumPy is imported only for its own format, and protobuf never.

Example:
    >>> CSVSerializer().serialize([[1, 2.5], [3, 4]])
    '1,2.5\\n3,4'
    >>> JSONDeserializer().deserialize(io.BytesIO(b'{"predictions": [0.5]}'))
    {'predictions': [0.5]}
"""

import abc
import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Serializer(Protocol):
    """Converts Python values to request bodies.

    Attributes:
        CONTENT_TYPE: MIME type of the bodies.
    """

    CONTENT_TYPE: str

    def serialize(self, data: Any) -> Any:
        """Return the body for ``data``, as bytes or text.

        Args:
            data: What the caller passed to `predict`.

        Returns:
            The body.
        """
        ...


class Deserializer(Protocol):
    """Converts answers to Python values.

    Attributes:
        ACCEPT: Accepted MIME types: one text, or a list of texts.
    """

    ACCEPT: Any

    def deserialize(self, stream: Any, content_type: str) -> Any:
        """Return the value of an answer.

        Args:
            stream: A binary stream with the body; it is read to its end.
            content_type: MIME type of the answer.
        """
        ...


class _Callable:
    """Makes a serializer or deserializer callable, as in version 1 of AWS's SDK."""

    def __call__(self, *args: Any) -> Any:
        convert: Callable[..., Any] = getattr(self, "serialize", None) or getattr(self, "deserialize")  # noqa: B009
        return convert(*args)


class BaseSerializer(_Callable, abc.ABC):
    """Base class of serializers, also of the user's own, which set ``CONTENT_TYPE``."""

    CONTENT_TYPE: str

    @abc.abstractmethod
    def serialize(self, data: Any) -> Any:
        """Return the body for ``data``, as bytes or text.

        Args:
            data: What the caller passed to `predict`.

        Returns:
            The body.
        """


class SimpleBaseSerializer(BaseSerializer):
    """Base class of serializers whose content type is an argument.

    Args:
        content_type: MIME type of the requests. Default: the class's ``CONTENT_TYPE``, which is ``application/json``
            unless a subclass sets another one.
    """

    CONTENT_TYPE = "application/json"

    def __init__(self, content_type: str | None = None) -> None:
        self.CONTENT_TYPE = content_type or type(self).CONTENT_TYPE

    @property
    def content_type(self) -> str:
        """``CONTENT_TYPE`` under its name in version 1 of AWS's SDK."""
        return self.CONTENT_TYPE


class BaseDeserializer(_Callable, abc.ABC):
    """Base class of deserializers, also of the user's own, which set ``ACCEPT``."""

    ACCEPT: Any

    @abc.abstractmethod
    def deserialize(self, stream: Any, content_type: str = "") -> Any:
        """Return the value of an answer.

        Args:
            stream: A binary stream with the body.
            content_type: MIME type of the answer.
        """


class SimpleBaseDeserializer(BaseDeserializer):
    """Base class of deserializers whose accepted types are an argument.

    Args:
        accept: Accepted MIME types. Default: the class's ``ACCEPT``, which is ``*/*`` unless a subclass sets another
            one.
    """

    ACCEPT = "*/*"

    def __init__(self, accept: str | None = None) -> None:
        self.ACCEPT = accept or type(self).ACCEPT

    @property
    def accept(self) -> str:
        """``ACCEPT`` under its name in version 1 of AWS's SDK."""
        return self.ACCEPT


class _WholeBodyDeserializer(SimpleBaseDeserializer):
    """Reads an answer to its end before it is parsed, whatever its MIME type."""

    def deserialize(self, stream: Any, content_type: str = "") -> Any:
        """Return the value of an answer: see the class.

        Args:
            stream: The body, which is read whole.
            content_type: Its MIME type; unused.

        Returns:
            The value.
        """
        del content_type
        return self._parsed(stream.read())

    @abc.abstractmethod
    def _parsed(self, content: bytes) -> Any:
        """Return the value of a body."""


class JSONSerializer(SimpleBaseSerializer):
    """Serializes dictionaries, lists, numbers, texts, arrays and protobuf messages as JSON.

    Example:
        >>> JSONSerializer().serialize({"instances": [[1.0, 2.0]]})
        '{"instances": [[1.0, 2.0]]}'
    """

    CONTENT_TYPE = "application/json"

    def serialize(self, data: Any) -> str | bytes:
        """Return the JSON text of ``data``, or the content of an open file unchanged.

        Raises:
            TypeError: A value in ``data`` cannot be converted to JSON.
        """
        if hasattr(data, "read"):
            return data.read()
        return json.dumps(data, default=_plain)


class JSONLinesSerializer(SimpleBaseSerializer):
    """Serializes each element of an iterable as one line of JSON.

    Example:
        >>> JSONLinesSerializer().serialize([[1, 2], {"x": 3}])
        '[1, 2]\\n{"x": 3}'
    """

    CONTENT_TYPE = "application/jsonlines"

    def serialize(self, data: Any) -> str:
        """Return the lines of JSON, or a text unchanged.

        Args:
            data: A text, or an iterable of values.

        Returns:
            Lines, separated by LF.

        Raises:
            TypeError: If a value has no form in JSON.
        """
        if isinstance(data, str):
            return data
        return "\n".join(json.dumps(element, default=_plain) for element in data)


class CSVSerializer(SimpleBaseSerializer):
    """Serializes rows as CSV: a list of lists, one flat list, or an array."""

    CONTENT_TYPE = "text/csv"

    def serialize(self, data: Any) -> str:
        """Return the rows as CSV without a final line feed, or a text unchanged.

        Args:
            data: A text, an array, or a list of rows or of one row's values.

        Returns:
            CSV.
        """
        if isinstance(data, str):
            return data
        values = data.tolist() if hasattr(data, "tolist") else list(data)
        rows: Iterable[Any] = values if values and isinstance(values[0], (list, tuple)) else [values]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        return buffer.getvalue().rstrip("\n")


class NumpySerializer(SimpleBaseSerializer):
    """Serializes arrays in NumPy's ``.npy`` format, for endpoints whose handlers read it.

    Args:
        dtype: NumPy dtype of the elements. Default: that of the data.
        content_type: MIME type of the requests. Default: ``application/x-npy``.
    """

    CONTENT_TYPE = "application/x-npy"

    def __init__(self, dtype: Any = None, content_type: str | None = None) -> None:
        super().__init__(content_type)
        self.dtype = dtype

    def serialize(self, data: Any) -> bytes:
        """Return the array as a ``.npy`` file, or the content of an open file unchanged.

        Raises:
            ValueError: The array is empty.
        """
        if hasattr(data, "read"):
            return data.read()
        import numpy as np

        array = np.asarray(data, self.dtype)
        if array.size == 0:
            raise ValueError(f"data of shape {array.shape} has no element that could be sent")
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        return buffer.getvalue()


class StringSerializer(SimpleBaseSerializer):
    """Sends text unchanged."""

    CONTENT_TYPE = "text/plain"

    def serialize(self, data: Any) -> str:
        """Return ``data``.

        Raises:
            TypeError: ``data`` is not a str.
        """
        if isinstance(data, str):
            return data
        raise TypeError(f"StringSerializer takes a str, not {type(data).__name__}; use another serializer for it")


class IdentitySerializer(SimpleBaseSerializer):
    """Sends bytes or text unchanged, and a protobuf message in its binary form."""

    CONTENT_TYPE = "application/octet-stream"

    def serialize(self, data: Any) -> Any:
        """Return ``data``, or the serialized protobuf message.

        Args:
            data: Bytes, text, or a message of protobuf.

        Returns:
            Bytes or text.
        """
        return data.SerializeToString() if _is_message(data) else data


class JSONDeserializer(_WholeBodyDeserializer):
    """Parses an answer as JSON: lists, dictionaries, numbers, texts."""

    ACCEPT = "application/json"

    def _parsed(self, content: bytes) -> Any:
        return json.loads(content)


class JSONLinesDeserializer(_WholeBodyDeserializer):
    """Parses each line of an answer as JSON, and returns a list: one value for each line that is not empty."""

    ACCEPT = "application/jsonlines"

    def _parsed(self, content: bytes) -> list[Any]:
        return [json.loads(line) for line in content.decode().split("\n") if line.strip()]


class CSVDeserializer(_WholeBodyDeserializer):
    """Parses an answer as CSV, and returns a list of rows, each a list of texts: cells are not converted to numbers.

    Args:
        encoding: Text encoding of the answer.
        accept: Accepted MIME types. Default: ``text/csv``.
    """

    ACCEPT = "text/csv"

    def __init__(self, encoding: str = "utf-8", accept: str | None = None) -> None:
        super().__init__(accept)
        self._encoding = encoding

    def _parsed(self, content: bytes) -> list[list[str]]:
        return list(csv.reader(io.StringIO(content.decode(self._encoding))))


class NumpyDeserializer(SimpleBaseDeserializer):
    """Parses an answer as a NumPy array: from ``.npy``, CSV or JSON, depending on the answer's MIME type.

    Args:
        dtype: NumPy dtype of arrays from CSV and JSON. Default: NumPy's choice.
        accept: Accepted MIME types. Default: ``application/x-npy``.
        allow_pickle: Also load arrays of Python objects. Loading them can run any code that the answer contains.
    """

    ACCEPT = "application/x-npy"

    def __init__(self, dtype: Any = None, accept: str | None = None, allow_pickle: bool = False) -> None:
        super().__init__(accept)
        self.dtype = dtype
        self.allow_pickle = allow_pickle

    def deserialize(self, stream: Any, content_type: str = "application/x-npy") -> Any:
        """Return the array.

        Raises:
            ValueError: The answer has another MIME type.
        """
        import numpy as np

        kind = content_type.partition(";")[0].strip()
        if kind == "text/csv":
            return np.genfromtxt(io.StringIO(stream.read().decode()), delimiter=",", dtype=self.dtype)
        if kind == "application/json":
            return np.array(json.loads(stream.read()), dtype=self.dtype)
        if kind == "application/x-npy":
            return np.load(io.BytesIO(stream.read()), allow_pickle=self.allow_pickle)
        raise ValueError(
            f"NumpyDeserializer reads application/x-npy, text/csv and application/json, not {content_type!r}"
        )


class StringDeserializer(_WholeBodyDeserializer):
    """Returns an answer as text.

    Args:
        encoding: Text encoding of the answer.
        accept: Accepted MIME types. Default: ``application/json``.
    """

    ACCEPT = "application/json"

    def __init__(self, encoding: str = "utf-8", accept: str | None = None) -> None:
        super().__init__(accept)
        self._encoding = encoding

    def _parsed(self, content: bytes) -> str:
        return content.decode(self._encoding)


class BytesDeserializer(_WholeBodyDeserializer):
    """Returns the bytes of an answer."""

    def _parsed(self, content: bytes) -> bytes:
        return content


class StreamDeserializer(SimpleBaseDeserializer):
    """Returns an answer as a stream, which the caller must close, and its MIME type."""

    def deserialize(self, stream: Any, content_type: str = "") -> tuple[Any, str]:
        """Return ``(stream, content_type)``.

        Args:
            stream: The body; the caller closes it.
            content_type: Its MIME type.

        Returns:
            Both.
        """
        return stream, content_type


def serialized(serializer: Any, data: Any) -> Any:
    """Return the request body for a value.

    Args:
        serializer: A serializer; a function, as in version 1 of AWS's SDK; or None, which leaves the value unchanged.
        data: The value.
    """
    if serializer is None:
        return data
    return getattr(serializer, "serialize", serializer)(data)


json_serializer = JSONSerializer()
json_deserializer = JSONDeserializer()
csv_serializer = CSVSerializer()
csv_deserializer = CSVDeserializer()
npy_serializer = NumpySerializer()
numpy_deserializer = NumpyDeserializer()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "numpy"):  # an eager tensor
        return value.numpy().tolist()
    if _is_message(value):
        from google.protobuf import json_format

        return json_format.MessageToDict(value)
    raise TypeError(
        f"{type(value).__name__} has no JSON form; give lists, dictionaries, numbers, texts or arrays,"
        " or another serializer"
    )


def _is_message(value: Any) -> bool:
    """Return whether a value is a protobuf message, e.g. a TensorProto or a PredictRequest."""
    return hasattr(value, "SerializeToString") and hasattr(value, "DESCRIPTOR")
