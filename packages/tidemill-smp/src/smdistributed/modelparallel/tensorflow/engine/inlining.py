"""Inlines functions that the model calls into the graph of the step while it is traced.

A `tf.function` inside `call` would otherwise be one op, and so be placed in one partition, regardless of
`smp.partition` inside. Only functions for XLA (`jit_compile=True`) are not inlined: they are compiled as a whole.
"""

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, tracer
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.tensorflow_api import py_func_from_autograph
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import polymorphic_function


@contextmanager
def inlining() -> Generator[None]:
    """Inline calls of tf.functions inside this context if possible."""
    kind = polymorphic_function.Function
    original = kind.__call__

    @functools.wraps(original)
    def call(self: Any, *args: object, **kwargs: object) -> Any:
        here = isinstance(tf.compat.v1.get_default_graph(), MarkingGraph)
        # A function with a signature is not inlined: the signature converts and checks its arguments.
        if tracer() is None or not here or self._jit_compile or self.input_signature is not None:
            return original(self, *args, **kwargs)
        body = self._python_function
        if self._autograph:
            body = py_func_from_autograph(body, self._experimental_autograph_options)
        # Keras disables AutoGraph around `call`, but a tf.function is converted wherever it is called.
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.UNSPECIFIED):
            return body(*args, **kwargs)

    with Patch(kind, "__call__", call):
        yield
