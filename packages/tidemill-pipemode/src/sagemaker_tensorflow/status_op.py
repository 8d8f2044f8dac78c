"""An op with which the Python reader raises `tf.errors.InternalError`.

tf.data turns every exception of a Python function into UnknownError. So the reader returns its error as a number
beside the records, and this op, a kernel written in Python on TensorFlow's C kernel API, converts the number into a
status with the right code and text.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from functools import lru_cache
from typing import Any

import tensorflow as tf

ABORTED = 10
OUT_OF_RANGE = 11
INTERNAL = 13

_OP = "TidemillPipeStatus"
_statuses: dict[int, tuple[int, str]] = {}
_numbers = itertools.count(1)
_registering = threading.Lock()  # TensorFlow aborts the process if an op is registered twice
_kept_alive: list[Any] = []  # C callbacks must outlive the registry that holds them


def post_status(code: int, text: str) -> int:
    """Return a number that `raise_status` converts into this error, once.

    Args:
        code: `ABORTED`, `OUT_OF_RANGE` or `INTERNAL`: TensorFlow's status code.
        text: Message of the error.
    """
    number = next(_numbers)
    _statuses[number] = (code, text)
    return number


def raise_status(number: tf.Tensor) -> tf.Tensor:
    """Return 0 unchanged; raise the error posted under any other number.

    Args:
        number: int64, shape [].

    Returns:
        int64, shape []: the number 0.
    """
    with _registering:
        _register()
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="number", op="Placeholder").attr["dtype"].type = tf.int64.as_datatype_enum
    graph.node.add(name="status", op=_OP, input=["number"])
    (passed,) = tf.graph_util.import_graph_def(
        graph, input_map={"number:0": number}, return_elements=["status:0"], name=""
    )
    passed.set_shape([])
    return passed


@lru_cache(maxsize=1)
def _register() -> None:
    library = _library()
    status = library.TF_NewStatus()
    builder = library.TF_NewOpDefinitionBuilder(_OP.encode())
    library.TF_OpDefinitionBuilderAddInput(builder, b"number: int64")
    library.TF_OpDefinitionBuilderAddOutput(builder, b"passed: int64")
    library.TF_OpDefinitionBuilderSetIsStateful(builder, True)
    shape = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.TF_ShapeInferenceContextSetUnknownShape)
    library.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shape)
    library.TF_RegisterOpDefinition(builder, status)
    compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_compute)
    kernel = library.TF_NewKernelBuilder(_OP.encode(), b"CPU", None, compute, None)
    library.TF_RegisterKernelBuilder(_OP.encode(), kernel, status)
    _kept_alive.extend((shape, compute))
    library.TF_DeleteStatus(status)


def _compute(_: int, context: int) -> None:
    library = _library()
    status = library.TF_NewStatus()
    tensor = ctypes.c_void_p()
    library.TF_GetInput(context, 0, ctypes.byref(tensor), status)
    number = ctypes.c_int64.from_address(library.TF_TensorData(tensor)).value
    code, text = _statuses.pop(number, (0, ""))
    if code:
        library.TF_SetStatus(status, code, text.encode())
        library.TF_OpKernelContext_Failure(context, status)
    else:
        library.TF_SetOutput(context, 0, tensor, status)
    library.TF_DeleteTensor(tensor)
    library.TF_DeleteStatus(status)


@lru_cache(maxsize=1)
def _library() -> Any:
    library = ctypes.CDLL("libtensorflow_framework.so.2")  # already loaded by this process
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("TF_NewStatus", pointer, ()),
        ("TF_DeleteStatus", None, (pointer,)),
        ("TF_SetStatus", None, (pointer, ctypes.c_int, text)),
        ("TF_TensorData", pointer, (pointer,)),
        ("TF_DeleteTensor", None, (pointer,)),
        ("TF_NewOpDefinitionBuilder", pointer, (text,)),
        ("TF_OpDefinitionBuilderAddInput", None, (pointer, text)),
        ("TF_OpDefinitionBuilderAddOutput", None, (pointer, text)),
        ("TF_OpDefinitionBuilderSetIsStateful", None, (pointer, ctypes.c_bool)),
        ("TF_OpDefinitionBuilderSetShapeInferenceFunction", None, (pointer, pointer)),
        ("TF_RegisterOpDefinition", None, (pointer, pointer)),
        ("TF_ShapeInferenceContextSetUnknownShape", None, (pointer, pointer)),
        ("TF_NewKernelBuilder", pointer, (text, text, pointer, pointer, pointer)),
        ("TF_RegisterKernelBuilder", None, (text, pointer, pointer)),
        ("TF_OpKernelContext_Failure", None, (pointer, pointer)),
        ("TF_GetInput", None, (pointer, ctypes.c_int, pointer, pointer)),
        ("TF_SetOutput", None, (pointer, ctypes.c_int, pointer, pointer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
