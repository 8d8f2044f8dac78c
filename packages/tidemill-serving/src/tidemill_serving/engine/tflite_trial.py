"""Load and first run a TensorFlow Lite model in a process of its own, because its library may crash on a damaged file.

TensorFlow Lite checks the offsets of a flatbuffer, but not all that operations assume about their tensors. The server
loads versions beside those that it serves, and must survive a file that is damaged.

Of 2,000 models with changed tensors, 24 crashed when their runs were planned, and 7 in their first run; none crashed
after a run that had succeeded. So a run is tried until one of its signature has succeeded, and no later run pays for it
(`docs/measurements/endpoints.md`).
"""

import contextlib
import importlib
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tidemill_serving.engine.base import Array, Signature
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import Code, RequestError, StartFailed, invalid

INTERPRETER_MODULE = "tensorflow.lite.python.interpreter_wrapper._pywrap_tensorflow_interpreter_wrapper"
_WITH_DELEGATES = 1  # the built-in operations, with the library for CPUs (XNNPACK) that tf.lite.Interpreter uses too
_LIMIT_S = 300.0

Run = Callable[[Any, bytes], object]
"""Runs a model: called with the interpreter's library and the flatbuffer. It can be pickled."""
_Kind = tuple[str, tuple[bool, ...]]  # signature, and which of its inputs are empty


def crash_of(content: bytes) -> str | None:
    """Return the signal that ends a process which plans the runs of a model; None if it can be planned or is refused.

    Args:
        content: The flatbuffer.

    Raises:
        StartFailed: The process cannot be started, or takes too long.
    """
    try:
        return _signal_name(_try(content, _plan))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartFailed(f"the model cannot be loaded on trial: {error}") from error


class FirstRuns:
    """Tries runs in a process of their own until one of the same kind has succeeded there.

    Kinds are signatures, and inputs without elements, which kernels may not expect. What crashes once is refused from
    then on: the bytes of the model do not change.

    Args:
        content: The flatbuffer.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._faults: dict[_Kind, str | None] = {}  # None: a run has succeeded
        self._lock = threading.Lock()  # one process at a time, also if many first requests come at once

    def check(self, signature: Signature, feeds: Sequence[Array], run: Run) -> None:
        """Return if the server may run this.

        Args:
            signature: What is run.
            feeds: Arrays of the request.
            run: Runs it.

        Raises:
            RequestError: INTERNAL if the library crashes in such runs, or the library's refusal of this one.
        """
        kind = (signature.key, tuple([feed.size == 0 for feed in feeds]))
        if kind not in self._faults:
            with self._lock:
                if kind not in self._faults:
                    self._faults[kind] = self._fault(run)
        fault = self._faults[kind]
        if fault is not None:
            raise RequestError(Code.INTERNAL, fault)

    def _fault(self, run: Run) -> str | None:
        """Return why such runs are refused from now on.

        Raises:
            RequestError: This one is refused, or cannot be tried.
        """
        try:
            ended = _try(self._content, run)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RequestError(Code.INTERNAL, f"the model's first run cannot be tried: {error}") from error
        if ended.returncode == -signal.SIGKILL:
            raise RequestError(Code.RESOURCE_EXHAUSTED, "the model's first run was killed: it may need more memory")
        crash = _signal_name(ended)
        if crash is not None:
            return f"the model is damaged: TensorFlow Lite crashes ({crash}) when it runs"
        if ended.returncode:
            raise invalid(ended.stdout.decode(errors="replace").strip() or "TensorFlow Lite refuses the run")
        return None


def _try(content: bytes, run: Run) -> "subprocess.CompletedProcess[bytes]":
    command = (sys.executable, "-c", f"from {__name__} import try_standard_input as run; run()")
    given = pickle.dumps((content, run), pickle.HIGHEST_PROTOCOL)
    return subprocess.run(command, input=given, capture_output=True, timeout=_LIMIT_S, check=False)


def _signal_name(ended: "subprocess.CompletedProcess[bytes]") -> str | None:
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


def try_standard_input() -> None:
    """Run what standard input holds, in the process for that; print why it is refused, and exit with status 1."""
    content, run = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the server
    open_wheel()
    try:
        run(importlib.import_module(INTERPRETER_MODULE), content)
    except (RuntimeError, ValueError) as error:
        print(one_line(error), flush=True)  # noqa: T201 - read by the server
        sys.exit(1)


def one_line(error: BaseException) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _plan(library: Any, content: bytes) -> None:
    """Plan the runs of all signatures."""
    made = create_interpreter(library, content, threads=1)
    made.AllocateTensors()
    model = importlib.import_module("tensorflow.lite.python.schema_py_generated").Model.GetRootAs(content, 0)
    for index in range(model.SignatureDefsLength()):
        made.AllocateTensors(model.SignatureDefs(index).SubgraphIndex())
