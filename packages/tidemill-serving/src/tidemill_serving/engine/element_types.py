"""The element types that requests and answers support, and advice for models that use other types.

Complex numbers are served through gRPC only, since JSON cannot represent them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

_NUMPY_NAMES: Mapping[str, tuple[str, str]] = {
    "DT_FLOAT": ("float", "float32"),
    "DT_DOUBLE": ("double", "float64"),
    "DT_HALF": ("half", "float16"),
    "DT_INT8": ("int8", "int8"),
    "DT_INT16": ("int16", "int16"),
    "DT_INT32": ("int32", "int32"),
    "DT_INT64": ("int64", "int64"),
    "DT_UINT8": ("uint8", "uint8"),
    "DT_UINT16": ("uint16", "uint16"),
    "DT_UINT32": ("uint32", "uint32"),
    "DT_UINT64": ("uint64", "uint64"),
    "DT_BOOL": ("bool", "bool"),
    "DT_STRING": ("string", "object"),
    "DT_COMPLEX64": ("complex64", "complex64"),
    "DT_COMPLEX128": ("complex128", "complex128"),
}
_BFLOAT16 = "DT_BFLOAT16"
_CAST = "export a signature that casts it to a plain type, e.g. with tf.cast to tf.int32 or tf.float32"
_HANDLE = "it is a handle inside TensorFlow's runtime: export a signature of the plain tensors behind it"
_PARTS = "export a signature whose real and imaginary parts are two tensors (tf.math.real, tf.math.imag, tf.complex)"
_ADVICE: Mapping[str, str] = {
    "complex64": _PARTS,
    "complex128": _PARTS,
    "resource": _HANDLE,
    "variant": _HANDLE,
}


def short_name(name: str) -> str:
    """Return TensorFlow's short name of a DataType member, e.g. ``complex64`` for ``DT_COMPLEX64``.

    Returns:
        The name in lower case without ``DT_`` if TensorFlow has none.
    """
    known = _NUMPY_NAMES.get(name)
    return known[0] if known else name.removeprefix("DT_").lower()


def element_type(name: str) -> "np.dtype[Any] | None":
    """Return the NumPy type of a DataType member, or None without an equivalent.

    Args:
        name: A member of DataType, e.g. ``DT_FLOAT``.

    Returns:
        For example float32; ml_dtypes' bfloat16 for ``DT_BFLOAT16``.
    """
    if name == _BFLOAT16:
        # Imported only when needed, since few models use it: this package of TensorFlow's adds bfloat16 to NumPy.
        import ml_dtypes  # pyrefly: ignore[missing-import]

        return np.dtype(ml_dtypes.bfloat16)
    known = _NUMPY_NAMES.get(name)
    return np.dtype(known[1]) if known else None


def advice(type_name: str) -> str:
    """Return advice on what to export instead of a type, given by its short name, that JSON cannot represent.

    Args:
        type_name: For example ``complex64``.

    Returns:
        A clause for an error message.
    """
    return _ADVICE.get(type_name, _CAST)
