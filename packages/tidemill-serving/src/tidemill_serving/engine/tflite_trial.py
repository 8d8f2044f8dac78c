"""Load a TensorFlow Lite model in a process of its own first, because its library may crash on a damaged file.

TensorFlow Lite checks the offsets of a flatbuffer, but not all that operations assume about their tensors. The server
loads versions beside those that it serves, and must survive a file that is damaged.
"""

import contextlib
import importlib
import signal
import subprocess
import sys
from typing import Any

from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import StartFailed

INTERPRETER_MODULE = "tensorflow.lite.python.interpreter_wrapper._pywrap_tensorflow_interpreter_wrapper"
_WITH_DELEGATES = 1  # the built-in operations, with the library for CPUs (XNNPACK) that tf.lite.Interpreter uses too
_LIMIT_S = 300.0


def crash_of(content: bytes) -> str | None:
    """Return the signal that ends a process which plans the runs of a model; None if it can be planned or is refused.

    Args:
        content: The flatbuffer.

    Raises:
        StartFailed: The process cannot be started, or takes too long.
    """
    command = (sys.executable, "-c", f"from {__name__} import plan_standard_input as plan; plan()")
    try:
        ended = subprocess.run(command, input=content, capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartFailed(f"the model cannot be loaded on trial: {error}") from error
    return signal.Signals(-ended.returncode).name if ended.returncode < 0 else None


def create_interpreter(library: Any, content: bytes, *, threads: int) -> Any:
    """Create an interpreter of a model.

    Args:
        library: The module `INTERPRETER_MODULE`.
        content: The flatbuffer, which has to be kept as long as the interpreter.
        threads: Threads inside an operation.

    Raises:
        ValueError: The model is refused.
        RuntimeError: The same.
    """
    no_operations: list[str] = []
    required = (content, _WITH_DELEGATES, no_operations, no_operations)
    create = library.CreateWrapperFromBuffer
    for options in ((False, False, threads, False), (False, False), (False,)):  # of TensorFlow 2.17, 2.15, 2.12
        with contextlib.suppress(TypeError):
            made = create(*required, *options)
            made.SetNumThreads(threads)
            return made
    raise ValueError(f"this TensorFlow creates its interpreters in another way: {create.__doc__}")


def plan_standard_input() -> None:
    """Plan the runs of the signatures of the model in standard input, as `tflite` does, in the process for that."""
    content = sys.stdin.buffer.read()
    open_wheel()
    made = create_interpreter(importlib.import_module(INTERPRETER_MODULE), content, threads=1)
    made.AllocateTensors()
    model = importlib.import_module("tensorflow.lite.python.schema_py_generated").Model.GetRootAs(content, 0)
    for index in range(model.SignatureDefsLength()):
        made.AllocateTensors(model.SignatureDefs(index).SubgraphIndex())
