"""Layers as units, for automatic partitioning.

A leaf layer is a unit. So is a composite layer of Keras, such as attention: its ops stay together.

Models and the script's own composite layers are divided into their layers; the ops that they compute between two calls
of layers are a unit too (`encoder#3` is the glue after the third call).
"""

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasLayer
from smdistributed.modelparallel.tensorflow.keras_api import Layer, Model, layers_of, library_modules
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, Tracer, tracer
from smdistributed.modelparallel.tensorflow.patch import Patch


@dataclass
class Container:
    """A model or composite layer whose call is in progress."""

    path: str
    calls: int = 0

    @property
    def glue(self) -> str:
        """Return the unit of ops that the container itself computes now."""
        return f"{self.path}#{self.calls}"


@contextmanager
def layer_hooks() -> Generator[None]:
    """Make each layer called inside this context a unit."""
    kind = Layer
    original = kind.__call__

    @functools.wraps(original)
    def call(self: KerasLayer, *args: object, **kwargs: object) -> Any:
        state = tracer()
        if state is None or not state.layers or not isinstance(tf.compat.v1.get_default_graph(), MarkingGraph):
            return original(self, *args, **kwargs)
        return _call_layer(state, self, functools.partial(original, self, *args, **kwargs))

    with Patch(kind, "__call__", call):
        yield


@contextmanager
def entering(state: Tracer, container: Container) -> Generator[None]:
    """Enter the call of a container: its ops are glue until it calls a layer.

    Args:
        state: The tracer of this thread.
    """
    state.layers.append(container)
    try:
        with state.marking(container.glue):
            yield
    finally:
        state.layers.pop()


def _call_layer(state: Tracer, layer: KerasLayer, call: Callable[[], Any]) -> Any:
    around: Container = state.layers[-1]
    path = state.path_of(layer, around.path)
    if _is_whole(layer):
        before = state.layers
        state.layers = list[Any]()
        try:
            with state.marking(path):
                result = call()
        finally:
            state.layers = before
    else:
        with entering(state, Container(path, state.calls.get(path, 0))):
            result = call()
            state.calls[path] = state.layers[-1].calls + 1
    around.calls += 1
    state.go_on_in(around.glue)
    return result


def _is_whole(layer: KerasLayer) -> bool:
    if isinstance(layer, Model):
        return False
    return not layers_of(layer) or type(layer).__module__.split(".")[0] in library_modules
