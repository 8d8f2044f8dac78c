"""Convert the results of a run: callers of an engine get only arrays of the declared types.

Python's Session returns a scalar as a NumPy scalar if it is a number, and as ``bytes`` if it is a string.
"""

from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array, Signature
from tidemill_serving.errors import failed_precondition

__all__ = ["fetched"]


def fetched(results: list[Any], signature: Signature) -> list[Array]:
    """Convert the results of a run to arrays, in the order of ``signature.outputs``.

    Raises:
        RequestError: FAILED_PRECONDITION, the type of an output is not the one that the signature declares.
    """
    for value, dtype in zip(results, signature.output_dtypes, strict=False):  # strict doubles the time of the check
        if type(value) is not np.ndarray or value.dtype is not dtype:
            return _converted(results, signature)
    return results  # the usual case


def _converted(results: list[Any], signature: Signature) -> list[Array]:
    arrays = [_array(value) for value in results]
    declared = {alias: spec.type_name for alias, spec in signature.outputs.items()}
    if any(array.dtype != dtype for array, dtype in zip(arrays, signature.output_dtypes, strict=True)):
        got = {alias: str(array.dtype) for alias, array in zip(declared, arrays, strict=True)}
        raise failed_precondition(
            f"The signature {signature.key} declares the output types {declared}, but the model returned {got}: export"
            " it again with the types that it returns"
        )
    return arrays


def _array(value: Any) -> Array:
    return np.asarray(value, dtype=object if isinstance(value, bytes | str) else None)
