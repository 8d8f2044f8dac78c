"""Attributes that Keras attaches to tensors (masks and logits), and their transfer to all ranks.

Keras's losses and metrics look for the mask of a prediction, and for the logits behind a softmax or sigmoid:
cross-entropy is exact for logits, and clipped at 1e-7 for probabilities. A copy of the prediction has neither.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

_ATTRIBUTES = {"mask": "_keras_mask", "logits": "_keras_logits"}
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"Softmax": tf.nn.softmax, "Sigmoid": tf.nn.sigmoid}
"""Activation by op type. Keras uses the input of such an op as logits, even without an attribute."""


def notes_of(output: Any) -> dict[str, Any]:
    """Return tensors that Keras may look for on a model's output, by internal name; empty if it is not dense."""
    if not isinstance(output, tf.Tensor):
        return {}
    found = {name: getattr(output, attribute, None) for name, attribute in _ATTRIBUTES.items()}
    if output.op.type in _ACTIVATIONS:
        found[output.op.type] = output.op.inputs[0]
    return {name: note for name, note in found.items() if note is not None}


def with_notes(value: Any, notes: Mapping[str, Any]) -> Any:
    """Return a tensor with the value of `value` and the notes attached; it may be `value` itself.

    Args:
        notes: What `notes_of` returned, perhaps on another rank.
    """
    for name, activation in _ACTIVATIONS.items():
        if name in notes:
            value = activation(notes[name])
    for name, attribute in _ATTRIBUTES.items():
        if name in notes:
            setattr(value, attribute, notes[name])
    return value


def replicated(output: Any) -> Any:
    """Return an output of a model for ops that are replicated on all ranks.

    For probabilities the logits are sent from rank to rank, and each rank recomputes the probabilities.

    Args:
        output: A tensor, or any other object.
    """
    if not tf.is_tensor(output):
        return output
    notes = {name: tf.identity(note) for name, note in notes_of(output).items()}
    return with_notes(tf.identity(output), notes)
