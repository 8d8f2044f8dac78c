"""Gradients of the whole batch, which is what optimizers and clipping take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError

__all__ = ["require_whole"]


def require_whole(gradients: Iterable[Any], where: str) -> None:
    """Refuse gradients as a step returns them, which are one for each microbatch.

    Args:
        gradients: Tensors, `tf.IndexedSlices`, None.
        where: The function that was given them, for the message.

    Raises:
        SMPUsageError: If one is a `StepOutput`.
    """
    for place, gradient in enumerate(gradients):
        if hasattr(gradient, "accumulate"):  # by its method: optimizers lie below steps
            raise SMPUsageError(
                f"{where} was given a StepOutput as gradient {place}: a step returns a gradient for each microbatch; "
                "give it [gradient.accumulate() for gradient in gradients], which are those of the whole batch"
            )
