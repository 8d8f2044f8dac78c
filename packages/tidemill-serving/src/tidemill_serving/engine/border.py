"""Where arrays enter and leave TensorFlow: on the way out of here everything is an array of the declared type.

TensorFlow's binding returns scalars as whatever is at hand: a NumPy scalar for a number, ``bytes`` for a string. Code
behind this border works on arrays alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array, Signature
from tidemill_serving.errors import RequestError, failed_precondition

__all__ = ["fed", "fetched"]


def fed(feeds: Sequence[Any]) -> list[Array]:
    """Make arrays of the values fed."""
    return [np.asarray(feed) for feed in feeds]


def fetched(results: Sequence[Any], signature: Signature) -> list[Array]:
    """Make arrays of the results of a run, in the order of ``signature.outputs``.

    Raises:
        RequestError: FAILED_PRECONDITION, an output has another type than its signature declares.
    """
    arrays = [value if type(value) is np.ndarray else _array(value) for value in results]
    for spec, array in zip(signature.outputs.values(), arrays, strict=True):
        if array.dtype != spec.dtype:
            raise _other_type(signature, arrays)
    return arrays


def _array(value: Any) -> Array:
    return np.asarray(value, dtype=object if isinstance(value, bytes | str) else None)


def _other_type(signature: Signature, arrays: Sequence[Array]) -> RequestError:
    declared = {alias: spec.type_name for alias, spec in signature.outputs.items()}
    got = {alias: str(array.dtype) for alias, array in zip(declared, arrays, strict=True)}
    return failed_precondition(
        f"The signature {signature.key} declares the output types {declared}, but the model returned {got}: export it"
        " again with the types that it returns"
    )
