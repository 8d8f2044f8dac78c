"""`smp.DistributedModel`: a Keras model whose parts live on different ranks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import fitting
from smdistributed.modelparallel.tensorflow.engine.layers import Container, entering
from smdistributed.modelparallel.tensorflow.engine.marks import EVERYWHERE, Tracer, tracer
from smdistributed.modelparallel.tensorflow.keras_api import Model
from smdistributed.modelparallel.tensorflow.partition.context import unit_of
from smdistributed.modelparallel.tensorflow.session import current, is_initialized

__all__ = ["DistributedModel"]


class DistributedModel(Model):  # type: ignore[misc]
    """A Keras model that is cut into partitions; to be subclassed like `keras.Model`.

    Everything that `call` computes runs on one partition each; what it returns is available on all ranks. The model may
    be called inside functions decorated with `smp.step` only.
    """

    _smp_rules: Mapping[str, int] | None = None
    """Which layers go where, for wrapped models."""

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

    @classmethod
    def wrap(cls, model: Any, partitions: Mapping[str, int] | None = None) -> DistributedModel:
        """Distribute a Functional, Sequential, pretrained or subclassed model as it is; see `wrapping.wrap`."""
        from smdistributed.modelparallel.tensorflow.wrapping import wrap

        return wrap(model, partitions)

    def compile(self, *args: Any, jit_compile: Any = "auto", **kwargs: Any) -> None:
        """Configure the model for `fit`, as in Keras.

        XLA cannot compile a step with exchanges between ranks as a whole; `tf.config.optimizer.set_jit(True)` compiles
        what lies between them.

        Raises:
            SMPUsageError: If `jit_compile` is true.
        """
        if jit_compile is True:
            raise SMPUsageError(
                "compile(jit_compile=True): a step that is spread over ranks cannot be compiled as a whole; leave it "
                "out and call tf.config.optimizer.set_jit(True), which compiles the parts"
            )
        super().compile(*args, jit_compile=False, **kwargs)

    def fit(self, *args: Any, verbose: Any = "auto", **kwargs: Any) -> Any:
        """Train, as in Keras; every rank calls it with the same data. Each batch is cut into the microbatches."""
        fitting.agree_on_shuffling()
        return super().fit(*args, verbose=_verbosity(verbose), **kwargs)

    def evaluate(self, *args: Any, verbose: Any = "auto", **kwargs: Any) -> Any:
        """Evaluate, as in Keras; every rank calls it with the same data, and gets the result."""
        return super().evaluate(*args, verbose=_verbosity(verbose), **kwargs)

    def predict(self, *args: Any, verbose: Any = "auto", **kwargs: Any) -> Any:
        """Predict, as in Keras; every rank calls it with the same data, and gets the result."""
        return super().predict(*args, verbose=_verbosity(verbose), **kwargs)

    def train_step(self, data: Any) -> Any:
        """One step of `fit`, pipelined."""
        return self._steps().train(data)

    def test_step(self, data: Any) -> Any:
        """One step of `evaluate`, pipelined."""
        return self._steps().evaluate(data)

    def predict_step(self, data: Any) -> Any:
        """One step of `predict`, pipelined."""
        return self._steps().predict(data)

    def _steps(self) -> fitting.Steps:
        kept: fitting.Steps | None = self.__dict__.get("_smp_fitting")
        if kept is None:
            kept = self.__dict__["_smp_fitting"] = fitting.Steps(self)
        return kept

    def _outermost(self, state: Tracer) -> AbstractContextManager[None]:
        state.automatic = state.automatic or self._smp_rules is not None
        if not state.automatic:
            return state.marking(unit_of((current().config.default_partition or 0) if is_initialized() else 0))
        path = state.path_of(self, "")
        container = Container(path, state.calls.get(path, 0))
        return entering(state, container)


def _verbosity(verbose: Any) -> Any:
    return 0 if verbose == "auto" and fitting.is_quiet() else verbose


def _everywhere(output: Any) -> Any:
    return tf.identity(output) if tf.is_tensor(output) else output
