"""Between Python values and the bodies of a prediction.

Any object with ``CONTENT_TYPE`` and ``serialize``, or ``ACCEPT`` and ``deserialize``, will do; so will a plain
function, as in the first versions of AWS's SDK. NumPy arrays are known by what they can do, so NumPy is never imported.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol

__all__ = [
    "BytesDeserializer",
    "CSVDeserializer",
    "CSVSerializer",
    "Deserializer",
    "IdentitySerializer",
    "JSONDeserializer",
    "JSONLinesSerializer",
    "JSONSerializer",
    "Serializer",
    "StringDeserializer",
    "csv_deserializer",
    "csv_serializer",
    "json_deserializer",
    "json_serializer",
]


class Serializer(Protocol):
    """Makes a request body."""

    CONTENT_TYPE: str

    def serialize(self, data: Any) -> Any:
        """The body, bytes or text."""
        ...


class Deserializer(Protocol):
    """Reads a reply body."""

    ACCEPT: Any

    def deserialize(self, stream: Any, content_type: str) -> Any:
        """The value in the stream, which is read to its end."""
        ...


class _Callable:
    """The call form that SDK v1 had."""

    def __call__(self, *args: Any) -> Any:
        convert: Callable[..., Any] = getattr(self, "serialize", None) or getattr(self, "deserialize")  # noqa: B009
        return convert(*args)


class JSONSerializer(_Callable):
    """Dictionaries, lists, numbers, texts and arrays as JSON; an open file as it is."""

    CONTENT_TYPE = "application/json"
    content_type = CONTENT_TYPE

    def serialize(self, data: Any) -> str | bytes:
        """The JSON text.

        Raises:
            TypeError: Something in ``data`` has no JSON form.
        """
        if hasattr(data, "read"):
            return data.read()
        return json.dumps(data, default=_plain)


class JSONLinesSerializer(_Callable):
    """One JSON text a line for each element."""

    CONTENT_TYPE = "application/jsonlines"
    content_type = CONTENT_TYPE

    def serialize(self, data: Any) -> str:
        """The lines; a text is taken as lines that are ready."""
        if isinstance(data, str):
            return data
        return "\n".join(json.dumps(element, default=_plain) for element in data)


class CSVSerializer(_Callable):
    """Rows as CSV: a list of lists, one flat list, or an array."""

    CONTENT_TYPE = "text/csv"
    content_type = CONTENT_TYPE

    def serialize(self, data: Any) -> str:
        """The rows; a text is taken as CSV that is ready."""
        if isinstance(data, str):
            return data
        values = data.tolist() if hasattr(data, "tolist") else list(data)
        rows: Iterable[Any] = values if values and isinstance(values[0], (list, tuple)) else [values]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        return buffer.getvalue().rstrip("\n")


class IdentitySerializer(_Callable):
    """Bodies that are ready.

    Args:
        content_type: What they are.
    """

    def __init__(self, content_type: str = "application/octet-stream") -> None:
        self.CONTENT_TYPE = content_type
        self.content_type = content_type

    def serialize(self, data: Any) -> Any:
        """``data`` itself."""
        return data


class JSONDeserializer(_Callable):
    """JSON to Python values."""

    ACCEPT = "application/json"
    accept = ACCEPT

    def deserialize(self, stream: Any, content_type: str = "") -> Any:
        """The value."""
        return json.loads(stream.read())


class CSVDeserializer(_Callable):
    """CSV to a list of rows of texts."""

    ACCEPT = "text/csv"
    accept = ACCEPT

    def deserialize(self, stream: Any, content_type: str = "") -> list[list[str]]:
        """The rows."""
        return list(csv.reader(io.StringIO(stream.read().decode())))


class StringDeserializer(_Callable):
    """The body as text.

    Args:
        encoding: Of the body.
        accept: What the client asks for.
    """

    def __init__(self, encoding: str = "utf-8", accept: str = "application/json") -> None:
        self.ACCEPT = accept
        self._encoding = encoding

    def deserialize(self, stream: Any, content_type: str = "") -> str:
        """The text."""
        return stream.read().decode(self._encoding)


class BytesDeserializer(_Callable):
    """The body as it is."""

    ACCEPT = "*/*"

    def deserialize(self, stream: Any, content_type: str = "") -> bytes:
        """The bytes."""
        return stream.read()


json_serializer = JSONSerializer()
json_deserializer = JSONDeserializer()
csv_serializer = CSVSerializer()
csv_deserializer = CSVDeserializer()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "numpy"):  # an eager tensor
        return value.numpy().tolist()
    raise TypeError(
        f"{type(value).__name__} has no JSON form; give lists, dictionaries, numbers, texts or arrays,"
        " or another serializer"
    )
