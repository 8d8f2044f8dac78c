"""Checks that optimizers and clipping receive gradients of the whole batch."""

from collections.abc import Iterable
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError


def require_whole(gradients: Iterable[Any], where: str) -> None:
    """Refuse gradients as a step returns them, with one value per microbatch.

    Args:
        gradients: Tensors, `tf.IndexedSlices` and None.
        where: The function that received them, for the error message.

    Raises:
        SMPUsageError: If a gradient is a `StepOutput`.
    """
    for place, gradient in enumerate(gradients):
        if hasattr(gradient, "accumulate"):  # not isinstance: this layer must not import the steps above it
            raise SMPUsageError(
                f"{where} was given a StepOutput as gradient {place}: a step returns a gradient for each microbatch; "
                "pass [gradient.accumulate() for gradient in gradients], the gradients of the whole batch"
            )
