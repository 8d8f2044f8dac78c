"""`smp.DistributedModel`: a Keras model whose parts live on different ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import fitting, metrics, planning, stopping
from smdistributed.modelparallel.tensorflow.engine.layers import Container, entering
from smdistributed.modelparallel.tensorflow.engine.variables import dropping_foreign_values, is_traced_whole
from smdistributed.modelparallel.tensorflow.keras_api import Model
from smdistributed.modelparallel.tensorflow.keras_notes import everywhere
from smdistributed.modelparallel.tensorflow.marks import EVERYWHERE, Tracer, tracer
from smdistributed.modelparallel.tensorflow.partitioning.context import unit_of
from smdistributed.modelparallel.tensorflow.saving import keras_file, saved_model, weights
from smdistributed.modelparallel.tensorflow.saving.existing import refuse_existing, refuse_options, without_defaults
from smdistributed.modelparallel.tensorflow.saving.inputs import inputs_of, merged
from smdistributed.modelparallel.tensorflow.saving.variables import VariableSpec, variable_specs
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
        if state is None and is_traced_whole():
            return super().__call__(*args, **kwargs)
        if state is None:
            raise SMPUsageError(
                f"the model {self.name!r} was called outside a function decorated with @smp.step: call it inside one"
            )
        if state.unit is not None:  # a model within a model
            return super().__call__(*args, **kwargs)
        if not any(model is self for model in state.models):
            state.models.append(self)
        self.__dict__["_smp_inputs"] = merged(self.__dict__.get("_smp_inputs"), inputs_of(self._smp_call, args, kwargs))
        with self._outermost(state):
            outputs = super().__call__(*args, **kwargs)
        state.outputs.extend(output.name for output in tf.nest.flatten(outputs) if tf.is_tensor(output))
        with state.marking(EVERYWHERE):
            return tf.nest.map_structure(everywhere, outputs)

    @classmethod
    def wrap(cls, model: Any, partitions: Mapping[str, int] | None = None) -> DistributedModel:
        """Distribute a Functional, Sequential, pretrained or subclassed model as it is.

        Args:
            model: A Keras model, built or not; its weights are kept.
            partitions: Name or path of a layer (`*` matches anything) -> partition. Layers without an entry follow
                `default_partition`. Default: the library chooses the cut.

        Raises:
            SMPUsageError: If `model` is not a Keras model, or is distributed already.
        """
        if isinstance(model, DistributedModel) or not isinstance(model, Model):
            what = "a DistributedModel already" if isinstance(model, DistributedModel) else f"a {type(model).__name__}"
            raise SMPUsageError(f"DistributedModel.wrap takes a plain Keras model, and this is {what}: {model!r:.80}")
        return _WrappedModel(model, partitions)

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

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Train, as in Keras; every rank calls it, those of a replica with the same data.

        Each batch is cut into the microbatches. At the end of an epoch callbacks are told the same on all ranks: with
        `ddp`, metrics are of all replicas. When a callback stops training on one rank, all stop.

        Raises:
            SMPUsageError: If `callbacks` has a `BackupAndRestore`.
        """
        fitting.refuse_backups(callbacks)
        fitting.agree_on_shuffling()
        together = stopping.stopping_together(self, callbacks)
        return super().fit(x, y, batch_size, epochs, _verbosity(verbose), together, *args, **kwargs)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Evaluate, as in Keras; every rank calls it, those of a replica with the same data, and gets the result.

        With `ddp` the result is that of all replicas' data.
        """
        return super().evaluate(x, y, batch_size, _verbosity(verbose), *args, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, verbose: Any = "auto", *args: Any, **kwargs: Any) -> Any:
        """Predict, as in Keras; the ranks of a replica call it with the same data, and get the result."""
        return super().predict(x, batch_size, _verbosity(verbose), *args, **kwargs)

    def get_metrics_result(self) -> dict[str, Any]:
        """The results of the metrics that this rank holds, from what this replica has seen."""
        return metrics.results_here(self)

    def reset_metrics(self) -> None:
        """Forget what the metrics that this rank holds have counted."""
        with dropping_foreign_values():
            super().reset_metrics()

    def profile(self, *batch: Any, **kwargs: Any) -> None:
        """Measure how long each layer takes, for the automatic cut, which goes by estimates otherwise.

        To be called on all ranks before the first step; several calls keep the shortest times. Rank 0 runs each layer
        for a moment, forward and backward, on zeros, while the others wait, and tells them what it found.

        Args:
            *batch: The inputs of one whole batch: arrays or tensors.
            **kwargs: Further arguments of the model, such as `training=True`.

        Raises:
            SMPUsageError: If the model is cut already.
        """
        planning.profile(self, *batch, **kwargs)

    def save_model(self, save_path: str | os.PathLike[str] = "/opt/ml/model") -> None:
        """Write the whole model as one SavedModel, with its latest weights; every rank calls it.

        `tf.keras.models.load_model(save_path).signatures["serving_default"]` takes what the model was called with in
        the steps, as many rows as there are, and gives `output_0`, `output_1`, ... It needs none of this library.

        Args:
            save_path: The directory. A SavedModel that is there is replaced when the new one is complete.

        Raises:
            SMPUsageError: If no step has called the model yet.
            SMPCheckpointError: If it could not be written; raised on all ranks.
        """
        saved_model.save_model(self, self.__dict__.get("_smp_inputs"), save_path)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: Any = None,
        input_signature: Any = None,
        **options: Any,
    ) -> None:
        """Write a SavedModel, as `save_model` does; the inputs are those of the steps.

        Args:
            filepath: The directory.
            format: `tf_saved_model`; others are refused.
            verbose: Without effect: nothing is printed.
            input_signature: Refused: the inputs are those that the steps called the model with.
            **options: Refused: those of other formats.

        Raises:
            SMPUsageError: If an argument is refused, or no step has called the model yet.
            SMPCheckpointError: If it could not be written; raised on all ranks.
        """
        del verbose
        if format != "tf_saved_model":
            raise SMPUsageError(
                f"model.export: format is {format!r}; allowed is 'tf_saved_model' for a model that is spread over "
                "ranks. Save it by save_keras, and export that file in one process"
            )
        refuse_options("model.export", {"input_signature": input_signature, **options})
        self.save_model(filepath)

    def save_keras(self, path: str | os.PathLike[str], overwrite: bool = True, **options: Any) -> None:
        """Write the whole model as a `.keras` file; every rank calls it.

        Of a wrapped model it is the model inside, so that the file needs none of this library.

        Args:
            path: Ends in `.keras`.
            overwrite: Whether a file that is there is replaced; else it is refused.
            **options: Those of `keras.Model.save`.

        Raises:
            SMPUsageError: If the model cannot be described in a file: its class needs a `get_config`.
            SMPCheckpointError: If it could not be written, or `path` exists and `overwrite` is False; raised on all
                ranks.
        """
        keras_file.save_keras(self._smp_plain(), path, overwrite=overwrite, **options)

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **options: Any) -> None:
        """Write a `.keras` file, or to a path without that ending a SavedModel; every rank calls it.

        Args:
            filepath: The file, or the directory.
            overwrite: Whether what is there is replaced; else it is refused.
            **options: For a `.keras` file those of `keras.Model.save`. For a SavedModel, which is one to serve, without
                an optimizer, those of tf_keras that ask for that: `save_format="tf"`, `include_optimizer=False`.

        Raises:
            SMPUsageError: If an option does not belong to the format.
            SMPCheckpointError: If it could not be written, or is there and `overwrite` is False; raised on all ranks.
        """
        if os.fspath(filepath).endswith(".keras"):
            self.save_keras(filepath, overwrite=overwrite, **options)
            return
        refuse_options("model.save of a SavedModel", without_defaults(options))
        if not overwrite:
            refuse_existing(Path(filepath))
        self.save_model(filepath)

    def save_weights(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        max_shard_size: Any = None,
        **options: Any,
    ) -> None:
        """Write the weights of all ranks as a `.weights.h5` file; every rank calls it.

        Args:
            filepath: Ends in `.weights.h5`.
            overwrite: Whether a file that is there is replaced; else it is refused.
            max_shard_size: Refused: ranks write one file.
            **options: Those of `keras.Model.save_weights`.

        Raises:
            SMPUsageError: If `max_shard_size` is given.
            SMPCheckpointError: If it could not be written, or is there and `overwrite` is False; raised on all ranks.
        """
        refuse_options("model.save_weights", {"max_shard_size": max_shard_size})
        keras_file.save_weights(self._smp_plain(), filepath, overwrite=overwrite, **options)

    def load_weights(self, filepath: str | os.PathLike[str], **options: Any) -> None:
        """Read weights that `save_weights` wrote, of this model however it was cut, or of the model in one piece.

        Every rank reads what it holds. A model that has no variables before its first step reads them after it, or in a
        hook (`smp.register_post_partition_hook`).

        Args:
            filepath: The file, readable on all ranks.
            **options: Those of `keras.Model.load_weights`.
        """
        with dropping_foreign_values():
            tf.keras.Model.load_weights(self._smp_plain(), filepath, **options)

    def get_weights(self) -> list[Any]:
        """The values of `weights` that this rank holds, and markers for the rest, which `set_weights` passes over.

        A marker raises `SMPForeignVariableError` where it is used as a value.
        """
        return weights.get_weights(self.weights)

    def set_weights(self, values: Sequence[Any]) -> None:
        """Set what this rank holds of `weights`.

        Args:
            values: What `get_weights` gave. For weights of the model in one piece there is `load_weights`.

        Raises:
            SMPUsageError: If they do not fit.
            SMPForeignVariableError: If there is a value for a weight of another rank.
        """
        weights.set_weights(self.weights, values)

    def all_variable_specs(self) -> list[VariableSpec]:
        """What variables the whole model has, and where, in one order on all ranks; see `VariableSpec`."""
        return variable_specs(self)

    def _smp_plain(self) -> Any:
        """The model to be saved in a file; no property, which Keras would take for a layer to save."""
        return self

    @property
    def _smp_call(self) -> Any:
        """The function whose arguments have the names of the model's inputs."""
        return self.call

    def train_step(self, data: Any) -> Any:
        """One step of `fit`, pipelined."""
        return self._steps().train(data)

    def test_step(self, data: Any) -> Any:
        """One step of `evaluate`, pipelined."""
        return self._steps().evaluate(data)

    def predict_step(self, data: Any) -> Any:
        """One step of `predict`, pipelined."""
        return self._steps().predict(data)

    def _get_metrics_result_or_logs(self, logs: Any) -> Any:
        """What Keras 3 asks for at the end of an epoch."""
        return metrics.results_of_all(self, logs)

    _validate_and_get_metrics_result = _get_metrics_result_or_logs
    """What tf_keras asks for."""

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


class _WrappedModel(DistributedModel):
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


def _verbosity(verbose: Any) -> Any:
    return 0 if fitting.is_quiet() else verbose
