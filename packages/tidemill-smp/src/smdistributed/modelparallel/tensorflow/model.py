"""`smp.DistributedModel`: a Keras model whose parts live on different ranks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import keras

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.layers import Container, entering
from smdistributed.modelparallel.tensorflow.engine.marks import EVERYWHERE, Tracer, tracer
from smdistributed.modelparallel.tensorflow.partition.context import unit_of
from smdistributed.modelparallel.tensorflow.session import current

__all__ = ["DistributedModel"]


class DistributedModel(keras.Model):
    """A Keras model that is cut into partitions; to be subclassed like `keras.Model`.

    Everything that `call` computes runs on one partition each; what it returns is available on all ranks. The model may
    be called inside functions decorated with `smp.step` only.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model inside an `smp.step`.

        Raises:
            SMPUsageError: If called elsewhere.
        """
        state = tracer()
        if state is None:
            raise SMPUsageError(
                f"the model {self.name!r} was called outside a function decorated with @smp.step: call it inside one"
            )
        if state.unit is not None:  # a model within a model
            return super().__call__(*args, **kwargs)
        if not any(model is self for model in state.models):
            state.models.append(self)
        with self._outermost(state):
            outputs = super().__call__(*args, **kwargs)
        state.outputs.extend(output.name for output in tf.nest.flatten(outputs) if tf.is_tensor(output))
        with state.marking(EVERYWHERE):
            return tf.nest.map_structure(_everywhere, outputs)

    def _outermost(self, state: Tracer) -> AbstractContextManager[None]:
        if not state.automatic:
            return state.marking(unit_of(current().config.default_partition or 0))
        path = state.path_of(self, "")
        container = Container(path, state.calls.get(path, 0))
        return entering(state, container)


def _everywhere(output: Any) -> Any:
    return tf.identity(output) if tf.is_tensor(output) else output
