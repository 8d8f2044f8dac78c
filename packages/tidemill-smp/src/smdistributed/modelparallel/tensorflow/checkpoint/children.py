"""Adds those parts of Keras layers to checkpoints that `tf.train.Checkpoint` does not track.

* Keras 3: lists, dictionaries and sets of layers. A model with `self.body = [Dense(...), Dense(...)]` would lose its
  body.
* Seeds of dropout and other random layers: a restored model would draw other random numbers than the saved one.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasLayer, Variable
from smdistributed.modelparallel.tensorflow.checkpoint.optimizers import slots_among
from smdistributed.modelparallel.tensorflow.keras_api import (
    Layer,
    containers_of,
    layers_of,
    seeds_of,
    tensorflow_variable,
    tracked_variables,
)
from smdistributed.modelparallel.tensorflow.patch import Patch
from tensorflow.python.trackable import base


@contextmanager
def all_listed(*, seeds: bool = True) -> Generator[None]:
    """Make TensorFlow save all parts of Keras layers inside this context.

    Args:
        seeds: Whether to save the seeds of random layers too.
    """
    original = Layer._trackable_children
    containers: dict[int, _Container] = {}

    def children(layer: KerasLayer, save_type: str = "checkpoint", **options: object) -> dict[str, Any]:
        listed: dict[str, Any] = dict(original(layer, save_type, **options))
        if save_type != "checkpoint":
            return listed
        for name, value in containers_of(layer).items():
            container = _wrapped(value, containers)
            if container.children:
                listed[name] = container
        for number, seed in enumerate(seeds_of(layer) if seeds else ()):
            listed[f"smp_seed_{number}"] = seed
        return listed

    with Patch(Layer, "_trackable_children", children):
        yield


def graph_of(checkpoint: tf.train.Checkpoint) -> Any:
    """Return TensorFlow's view of the objects of a tf.train.Checkpoint, whose root may be an object of the script."""
    return checkpoint._saver._graph_view


def objects_below(checkpoint: tf.train.Checkpoint) -> Iterator[Any]:
    """Yield all objects of a tf.train.Checkpoint, each once, in breadth-first order.

    Yields:
        The root first.
    """
    view = graph_of(checkpoint)
    seen: dict[int, Any] = {id(view.root): view.root}
    queue = [view.root]
    while queue:
        live = queue.pop(0)
        yield live
        for child in view.list_children(live):
            if id(child.ref) not in seen:
                seen[id(child.ref)] = child.ref
                queue.append(child.ref)
    yield from slots_among(seen.values())


def lost_variables(checkpoint: tf.train.Checkpoint) -> list[Variable]:
    """Return model variables that a tf.train.Checkpoint would not save. Call it inside `all_listed`."""
    found = list(objects_below(checkpoint))
    saved = {id(tensorflow_variable(live)) for live in found}
    inside: set[int] = set()
    lost: dict[int, Any] = {}
    for live in found:
        if isinstance(live, Layer) and id(live) not in inside:
            inside |= {id(layer) for layer in layers_of(live)}
            lost |= {id(variable): variable for variable in tracked_variables(live) if id(variable) not in saved}
    return list(lost.values())


class _Container(base.Trackable):
    """A list, tuple, dictionary or set as a trackable, with numbers or keys as names, as in TensorFlow."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.children: dict[str, Any] = {}

    def _trackable_children(self, save_type: str = "checkpoint", **_: object) -> dict[str, Any]:
        return self.children


def _wrapped(value: Any, known: dict[int, _Container]) -> _Container:
    """Return the one container for `value`: the object graph is traversed twice, and must be equal both times."""
    if id(value) in known:
        return known[id(value)]
    container = known[id(value)] = _Container(value)
    for name, item in _items(value):
        if isinstance(item, (list, tuple, dict, set)):
            inner = _wrapped(item, known)
            if inner.children:
                container.children[name] = inner
        elif isinstance(item, base.Trackable):
            container.children[name] = item
    return container


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key), item
    elif isinstance(value, set):  # its order differs between processes
        for item in value:
            yield str(getattr(item, "name", item)), item
    else:
        for number, item in enumerate(value):
            yield str(number), item
