"""Knows the arguments of the calls of `tf.function`s that are being traced.

TensorFlow traces a function because the script has called it with these arguments, so their values are known although
the function itself sees placeholders.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from tensorflow.core.function.polymorphism import function_type

_FUNCTION = "tensorflow.python.eager.polymorphic_function"
_local = threading.local()


class TracedCall:
    """A call of a `tf.function` in progress: its tensors and, once they exist, their placeholders."""

    def __init__(self, tensors: Callable[[Any], list[Any]]) -> None:
        self.tensors = tensors
        """Returns the tensors among the arguments, given the type of the function."""
        self.values: dict[int, tuple[Tensor, Tensor]] = {}
        """id of a placeholder -> the placeholder, and the tensor that the caller gave."""


def calls_in_progress() -> list[TracedCall]:
    """Return the calls that this thread traces, outermost first."""
    if not hasattr(_local, "calls"):
        _local.calls = []
    calls: list[TracedCall] = _local.calls
    return calls


def install() -> None:
    """Record the arguments of each `tf.function` while it is traced. Later calls have no effect."""
    kind = function_type.FunctionType
    if getattr(kind.placeholder_arguments, "_smp_records", False):
        return
    if importlib.util.find_spec(f"{_FUNCTION}.tracing_compilation"):
        _record_calls()
    else:
        _record_calls_of_2_12()
    original = kind.placeholder_arguments

    @functools.wraps(original)
    def recording(self: Any, placeholder_context: object) -> object:
        bound = original(self, placeholder_context)
        _record(self, bound)
        return bound

    recording._smp_records = True  # type: ignore[attr-defined]
    kind.placeholder_arguments = recording


def _record_calls() -> None:
    module: Any = importlib.import_module(f"{_FUNCTION}.tracing_compilation")
    original = module.trace_function

    @functools.wraps(original)
    def trace(
        args: Sequence[object] | None = None, kwargs: Mapping[str, object] | None = None, tracing_options: object = None
    ) -> object:
        def tensors(kind: Any) -> list[Any]:
            return list(kind.unpack_inputs(kind.bind(*(args or ()), **(kwargs or {}))))

        with _calling(tensors):
            return original(args, kwargs, tracing_options)

    module.trace_function = trace


def _record_calls_of_2_12() -> None:
    compiler: Any = importlib.import_module(f"{_FUNCTION}.tracing_compiler").TracingCompiler
    original = compiler._maybe_define_function

    @functools.wraps(original)
    def trace(self: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        def tensors(_: object) -> list[Any]:
            return list(self.function_spec.canonicalize_function_inputs(args, kwargs)[2])

        with _calling(tensors):
            return original(self, args, kwargs)

    compiler._maybe_define_function = trace


@contextmanager
def _calling(tensors: Callable[[Any], list[Any]]) -> Generator[None]:
    calls = calls_in_progress()
    calls.append(TracedCall(tensors))
    try:
        yield
    finally:
        calls.pop()


def _record(kind: Any, placeholders: Any) -> None:
    calls = calls_in_progress()
    if not calls or calls[-1].values:
        return
    try:
        given = calls[-1].tensors(kind)
    except Exception:  # noqa: BLE001 - traced by an input signature alone: there are no values
        return
    own = _unpacked(kind, placeholders)
    if len(own) == len(given):
        pairs = zip(own, given, strict=True)
        calls[-1].values = {id(own): (own, tensor) for own, tensor in pairs if tf.is_tensor(tensor)}


def _unpacked(kind: Any, placeholders: Any) -> list[Any]:
    if hasattr(kind, "unpack_inputs"):
        return list(kind.unpack_inputs(placeholders))
    # 2.12: in the order of its own list of the tensors and variables among the arguments
    flat = tf.nest.flatten((placeholders.args, placeholders.kwargs), expand_composites=True)
    return [leaf for leaf in flat if isinstance(leaf, (tf.Tensor, tf.Variable))]
