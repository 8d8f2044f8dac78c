"""What Keras notes on a tensor beside its value, and how it gets onto all ranks with it.

Keras's losses and metrics look for the mask of a prediction, and for the logits that a softmax or a sigmoid was made
from: cross-entropy is exact for those, and cut off at 1e-7 for probabilities. A copy of the prediction has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

__all__ = ["everywhere", "notes_of", "with_notes"]

_ATTRIBUTES = {"mask": "_keras_mask", "logits": "_keras_logits"}
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"Softmax": tf.nn.softmax, "Sigmoid": tf.nn.sigmoid}
"""By type of op: Keras takes the input of such an op for logits, even without a note."""


def notes_of(output: Any) -> dict[str, Any]:
    """What Keras may look for on an output of a model: tensors by a name of ours. Empty for what is no dense tensor."""
    if not isinstance(output, tf.Tensor):
        return {}
    found = {name: getattr(output, attribute, None) for name, attribute in _ATTRIBUTES.items()}
    if output.op.type in _ACTIVATIONS:
        found[output.op.type] = output.op.inputs[0]
    return {name: note for name, note in found.items() if note is not None}


def with_notes(value: Any, notes: Mapping[str, Any]) -> Any:
    """A tensor of a value that Keras finds the notes on; `value` itself may be returned, noted on."""
    for name, activation in _ACTIVATIONS.items():
        if name in notes:
            value = activation(notes[name])
    for name, attribute in _ATTRIBUTES.items():
        if name in notes:
            setattr(value, attribute, notes[name])
    return value


def everywhere(output: Any) -> Any:
    """An output of a model, for the ops that every rank computes for itself.

    Of probabilities the logits go from rank to rank, and each rank makes the probabilities again.
    """
    if not tf.is_tensor(output):
        return output
    notes = {name: tf.identity(note) for name, note in notes_of(output).items()}
    return with_notes(tf.identity(output), notes)
