"""The seeds of dropout and other random layers, which `tf.train.Checkpoint` does not see.

Keras lists them among the variables of a model, but its seed generators are no trackable objects of TensorFlow's.
Without them a model that was restored would draw other random numbers than the one that was saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smdistributed.modelparallel.tensorflow.keras_api import Layer

__all__ = ["seeds_listed"]


@contextmanager
def seeds_listed() -> Iterator[None]:
    """Have the seeds of Keras layers among what TensorFlow saves of them inside."""
    kind = Layer
    original = kind._trackable_children

    def children(layer: Any, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        listed: dict[str, Any] = dict(original(layer, save_type, **options))
        if save_type == "checkpoint":
            for number, generator in enumerate(getattr(layer, "_seed_generators", ())):
                listed[f"smp_seed_{number}"] = generator.state
        return listed

    kind._trackable_children = children
    try:
        yield
    finally:
        kind._trackable_children = original
