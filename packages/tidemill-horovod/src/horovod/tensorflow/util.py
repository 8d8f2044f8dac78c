"""`horovod.tensorflow.util`: the names that scripts import from Horovod's module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v2 as tf

__all__ = ["refs_to_vars", "vars_to_refs"]


def vars_to_refs(variables: Any) -> Any:
    """Return hashable references to variables.

    Args:
        variables: A tf.Variable, or lists or tuples of them.

    Returns:
        References, in tuples for lists and tuples.
    """
    return tuple(map(vars_to_refs, variables)) if isinstance(variables, (list, tuple)) else variables.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variables of `vars_to_refs`.

    Args:
        refs: A reference, or lists or tuples of them.

    Returns:
        The variables, in lists for lists and tuples.
    """
    return [refs_to_vars(one) for one in refs] if isinstance(refs, Sequence) else refs.deref()


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())
