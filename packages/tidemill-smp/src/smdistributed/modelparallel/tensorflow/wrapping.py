"""`smp.DistributedModel.wrap`: models that were not written for the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.keras_api import Model
from smdistributed.modelparallel.tensorflow.model import DistributedModel

__all__ = ["WrappedModel", "wrap"]


class WrappedModel(DistributedModel):
    """A distributed model whose `call` is another model."""

    def __init__(self, model: Any, rules: Mapping[str, int] | None) -> None:
        super().__init__(name=model.name)
        self.model = model
        self._smp_rules = dict(rules) if rules is not None else None

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def _smp_plain(self) -> Any:
        return self.model

    @property
    def _smp_call(self) -> Any:
        return self.model.call


def wrap(model: Any, partitions: Mapping[str, int] | None = None) -> WrappedModel:
    """Distribute a Functional, Sequential, pretrained or subclassed model as it is.

    Args:
        model: A Keras model, built or not; weights that it has are kept.
        partitions: Which layers go where: name or path of a layer (`*` stands for anything) -> partition. Layers that
            are not named follow `default_partition`. None leaves the cut to the library.

    Returns:
        A `DistributedModel`.

    Raises:
        SMPUsageError: If `model` is no Keras model, or distributed already.
    """
    if isinstance(model, DistributedModel) or not isinstance(model, Model):
        what = "a DistributedModel already" if isinstance(model, DistributedModel) else f"a {type(model).__name__}"
        raise SMPUsageError(f"DistributedModel.wrap takes a plain Keras model, and this is {what}: {model!r:.80}")
    return WrappedModel(model, partitions)
