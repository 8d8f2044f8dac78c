"""The collectives as Python functions in TensorFlow's graphs, for a TensorFlow whose C API has no kernels (before 2.6).

The functions call the native engine by ctypes. Each occupies a thread of TensorFlow, and its tensors are copied.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import DType, Tensor

_REFUSED, _INVALID = 1, 2
_TEXT_BYTES = 4096


class _Array(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
    ]


_OUTPUT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
_RECEIVED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_int)


def collective_of(functions: ctypes.CDLL) -> Callable[..., list[Tensor]]:
    """Return a function with the arguments of the native op.

    Args:
        functions: The native library.
    """

    def collective(
        tensors: Sequence[Tensor],
        kind: int,
        reduction: int,
        root: int,
        eager: int,
        scale: str,
        names: str,
        members: str,
        name: str | None = None,
    ) -> list[Tensor]:
        dtypes = [tensor.dtype for tensor in tensors]
        ranks = [int(one) for one in members.split(",")]

        def work(*arrays: np.ndarray) -> list[np.ndarray]:
            return _run(functions, arrays, dtypes, kind, reduction, root, float(scale), names, ranks)

        if eager:
            results = work(*(tensor.numpy() for tensor in tensors))
            return [tf.convert_to_tensor(result, dtype) for result, dtype in zip(results, dtypes)]
        return list(tf.numpy_function(work, tensors, dtypes, name=name))

    return collective


def _run(
    functions: ctypes.CDLL,
    arrays: Sequence[np.ndarray],
    dtypes: Sequence[DType],
    kind: int,
    reduction: int,
    root: int,
    scale: float,
    names: str,
    ranks: Sequence[int],
) -> list[np.ndarray]:
    """Run one collective, and wait for its end.

    Raises:
        tf.errors.OpError: Of the same kind as the native op's. Inside a graph TensorFlow makes an `UnknownError` of it.
    """
    given = [np.asarray(array, dtype.as_numpy_dtype, order="C") for array, dtype in zip(arrays, dtypes)]
    results: list[Any] = [None] * len(given)

    def output(place: int, dimensions: int, shape: Any) -> int:
        results[place] = np.empty(shape[:dimensions], dtypes[place].as_numpy_dtype)
        return int(results[place].ctypes.data)

    def received(rows: Any, count: int) -> None:
        results[1] = np.array(rows[:count], np.int64)

    structures = (_Array * len(given))()
    for structure, array, dtype in zip(structures, given, dtypes):
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        structure.dtype, structure.dimensions = dtype.as_datatype_enum, array.ndim
        structure.shape, structure.data = shape, array.ctypes.data  # the structure keeps the shape alive
    problem = ctypes.create_string_buffer(_TEXT_BYTES)
    ended: int = functions.tidemill_horovod_collective(
        kind,
        reduction,
        root,
        ctypes.c_double(scale),
        names.encode(),
        (ctypes.c_int64 * len(ranks))(*ranks),
        len(ranks),
        structures,
        len(given),
        _OUTPUT(output),
        _RECEIVED(received),
        problem,
        ctypes.c_size_t(_TEXT_BYTES),
    )
    if not ended:
        return results
    text = problem.value.decode(errors="replace")
    if ended == _INVALID:
        raise tf.errors.InvalidArgumentError(None, None, text)
    if ended == _REFUSED:
        raise tf.errors.FailedPreconditionError(None, None, text)
    raise tf.errors.AbortedError(None, None, f"HorovodInternalError: {text} [horovod]")
