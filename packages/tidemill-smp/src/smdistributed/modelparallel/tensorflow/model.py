"""`smp.DistributedModel`: a Keras model whose layers are placed on different ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import fitting, metrics, planning, stopping
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import History, KerasLayer, KerasModel, Logs
from smdistributed.modelparallel.tensorflow.engine.layers import Container, entering
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2, Model
from smdistributed.modelparallel.tensorflow.keras_notes import replicated
from smdistributed.modelparallel.tensorflow.marks import REPLICATED, Tracer, tracer
from smdistributed.modelparallel.tensorflow.partitioning.context import unit_of
from smdistributed.modelparallel.tensorflow.saving import keras_file, saved_model, weights
from smdistributed.modelparallel.tensorflow.saving.existing import refuse_existing, refuse_options, without_defaults
from smdistributed.modelparallel.tensorflow.saving.inputs import inputs_of, merged
from smdistributed.modelparallel.tensorflow.saving.variables import VariableSpec, variable_specs
from smdistributed.modelparallel.tensorflow.session import current, is_initialized
from smdistributed.modelparallel.tensorflow.variables import dropping_remote_values, is_traced_whole

_UNCHOSEN = None if IS_KERAS_2 else "auto"
"""Keras's default of `jit_compile`."""


class DistributedModel(Model):  # type: ignore[misc]
    """A Keras model that is divided into partitions; subclass it like `keras.Model`.

    Each op of `call` runs on one partition; the outputs of `call` are available on all ranks. The model can only be
    called inside functions decorated with `smp.step`.
    """

    _smp_rules: Mapping[str, int] | None = None
    """Partition by name or path of a layer, for wrapped models."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the model inside an `smp.step`.

        Raises:
            SMPUsageError: If called outside a step.
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
        with state.marking(REPLICATED):
            return tf.nest.map_structure(replicated, outputs)

    @classmethod
    def wrap(cls, model: Any, partitions: Mapping[str, int] | None = None) -> DistributedModel:
        """Distribute a Functional, Sequential, pretrained or subclassed model without changing its code.

        Args:
            model: A Keras model, built or not; its weights are kept.
            partitions: Partition by name or path of a layer (`*` matches anything). Layers without an entry go to
                `default_partition`. Default: automatic partitioning.

        Returns:
            A distributed model that calls `model` and shares its layers.

        Raises:
            SMPUsageError: If `model` is not a Keras model, or is already distributed.
        """
        if isinstance(model, DistributedModel) or not isinstance(model, Model):
            what = "a DistributedModel already" if isinstance(model, DistributedModel) else f"a {type(model).__name__}"
            raise SMPUsageError(f"DistributedModel.wrap takes a plain Keras model, and this is {what}: {model!r:.80}")
        return _WrappedModel(model, partitions)

    def compile(self, *args: object, jit_compile: bool | str = "auto", **kwargs: object) -> None:
        """Configure the model for `fit`, as in Keras.

        XLA cannot compile a step that exchanges tensors between ranks as a whole; `tf.config.optimizer.set_jit(True)`
        compiles the ops between two exchanges, and tidemill's training compiler does if that is faster.

        Args:
            *args: As in `keras.Model.compile`.
            jit_compile: `"auto"` or False: Keras does not compile the step. With False, tidemill's training compiler
                does not either. True is refused.
            **kwargs: As in `keras.Model.compile`.

        Raises:
            SMPUsageError: If `jit_compile` is true.
        """
        if jit_compile is True:
            raise SMPUsageError(
                "compile(jit_compile=True): a step that is spread over ranks cannot be compiled as a whole; leave it "
                "out and call tf.config.optimizer.set_jit(True), which compiles the parts"
            )
        # Passing False would tell tidemill's training compiler that the script refuses compilation.
        super().compile(*args, jit_compile=False if jit_compile is False else _UNCHOSEN, **kwargs)
        if not IS_KERAS_2:
            self.jit_compile = False

    def fit(
        self,
        x: object = None,
        y: object = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: object = None,
        *args: object,
        **kwargs: object,
    ) -> History:
        """Train, as in Keras. Collective; the ranks of a replica pass the same data.

        Each batch is split into the microbatches. At the end of an epoch, callbacks receive the same logs on all ranks;
        with `ddp` they cover the data of all replicas. When a callback stops training on one rank, all ranks stop.

        Args:
            x: As in Keras.
            y: As in Keras.
            batch_size: Examples of a whole batch, not of a microbatch. Default: Keras's.
            epochs: As in Keras.
            verbose: As in Keras on rank 0; the other ranks print nothing.
            callbacks: As in Keras; `BackupAndRestore` is refused.
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The `History` of Keras.

        Raises:
            SMPUsageError: If `callbacks` contains a `BackupAndRestore`.
        """
        fitting.report_own_step(self, "train_step", DistributedModel.train_step)
        fitting.refuse_backups(callbacks)
        fitting.agree_on_shuffling()
        together = stopping.stopping_together(self, callbacks)
        return super().fit(x, y, batch_size, epochs, _verbosity(verbose), together, *args, **kwargs)

    def evaluate(
        self,
        x: object = None,
        y: object = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        *args: object,
        **kwargs: object,
    ) -> Any:
        """Evaluate, as in Keras. Collective; the ranks of a replica pass the same data.

        Args:
            x: As in Keras.
            y: As in Keras.
            batch_size: Examples of a whole batch, not of a microbatch. Default: Keras's.
            verbose: As in Keras on rank 0; the other ranks print nothing.
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The loss and metrics as in Keras, equal on all ranks; with `ddp` they cover the data of all replicas.
        """
        fitting.report_own_step(self, "test_step", DistributedModel.test_step)
        return super().evaluate(x, y, batch_size, _verbosity(verbose), *args, **kwargs)

    def train_on_batch(self, *args: object, **kwargs: object) -> Any:
        """Run one training step, as in Keras. Collective; the ranks of a replica pass the same batch.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The loss and metrics as in Keras, equal on all ranks; with `ddp` they cover the data of all replicas.
        """
        fitting.report_own_step(self, "train_step", DistributedModel.train_step)
        return metrics.on_batch(self, super().train_on_batch, args, kwargs)

    def test_on_batch(self, *args: object, **kwargs: object) -> Any:
        """Evaluate one batch, as in Keras. Collective; the ranks of a replica pass the same batch.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The loss and metrics as in Keras, equal on all ranks; with `ddp` they cover the data of all replicas.
        """
        fitting.report_own_step(self, "test_step", DistributedModel.test_step)
        return metrics.on_batch(self, super().test_on_batch, args, kwargs)

    def predict(
        self, x: object, batch_size: int | None = None, verbose: int | str = "auto", *args: object, **kwargs: object
    ) -> Any:
        """Predict, as in Keras. Collective over the replica, whose ranks pass the same data.

        Args:
            x: As in Keras.
            batch_size: As in Keras.
            verbose: As in Keras on rank 0; the other ranks print nothing.
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The predictions as NumPy arrays, on every rank of the replica.
        """
        return super().predict(x, batch_size, _verbosity(verbose), *args, **kwargs)

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the results of the metrics that this rank holds, for the data of this replica.

        Returns:
            Numbers by name.
        """
        return metrics.results_here(self)

    def reset_metrics(self) -> None:
        """Reset the metrics that this rank holds."""
        with dropping_remote_values():
            super().reset_metrics()

    def profile(self, *batch: object, **kwargs: Any) -> None:
        """Measure the time of each layer, so that automatic partitioning need not estimate it.

        Collective; call it before the first step. Several calls keep the shortest times. Rank 0 runs the model and then
        each layer, forward and backward, on the first microbatch of the batch and on copies of the variables, while the
        other ranks wait; then it sends them the times. Layers with stateful ops are estimated: those that call Python,
        print, write or draw random numbers from an op's own state, and those that depend on their results.

        Args:
            *batch: The inputs of one whole batch: arrays or tensors.
            **kwargs: Further arguments of the model, such as `training=True`.

        Raises:
            SMPUsageError: If the model is already partitioned.
        """
        planning.profile(self, *batch, **kwargs)

    def save_model(self, save_path: str | os.PathLike[str] = "/opt/ml/model") -> None:
        """Write the whole model as one SavedModel with its current weights. Collective.

        The signature `serving_default` takes the inputs with which the steps called the model, with any number of rows,
        and returns `output_0`, `output_1`, ... Loading and serving the SavedModel does not need this library.

        Args:
            save_path: The directory. An existing SavedModel is replaced once the new one is complete. Default:
                `/opt/ml/model`, which SageMaker uploads when the job ends.

        Raises:
            SMPUsageError: If no step has called the model yet.
            SMPCheckpointError: If the SavedModel could not be written; raised on all ranks.
        """
        saved_model.save_model(self, self.__dict__.get("_smp_inputs"), save_path)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: object = None,
        input_signature: object = None,
        **options: object,
    ) -> None:
        """Write a SavedModel, as `save_model` does, under the name of Keras 3's `Model.export`. Collective.

        Args:
            filepath: The directory.
            format: `tf_saved_model`; other formats are refused.
            verbose: Without effect: nothing is printed.
            input_signature: Refused: the inputs have the signature with which the steps called the model.
            **options: Refused: options of other formats.

        Raises:
            SMPUsageError: If an argument is refused, or no step has called the model yet.
            SMPCheckpointError: If the SavedModel could not be written; raised on all ranks.
        """
        del verbose
        if format != "tf_saved_model":
            raise SMPUsageError(
                f"model.export: format is {format!r}; allowed is 'tf_saved_model' for a model that is spread over "
                "ranks. Save the model with save_keras, and export that file in one process"
            )
        refuse_options("model.export", {"input_signature": input_signature, **options})
        self.save_model(filepath)

    def save_keras(self, path: str | os.PathLike[str], overwrite: bool = True, **options: object) -> None:
        """Write the whole model as a `.keras` file. Collective.

        For a wrapped model, the file contains the original model, and loading it does not need this library.

        Args:
            path: The file; ends in `.keras`.
            overwrite: Whether to replace an existing file; if False, an existing file is an error.
            **options: Options of `keras.Model.save`.

        Raises:
            SMPUsageError: If the model cannot be serialized because its class has no `get_config`.
            SMPCheckpointError: If the file could not be written, or exists and `overwrite` is False; raised on all
                ranks.
        """
        keras_file.save_keras(self._smp_plain(), path, overwrite=overwrite, **options)

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **options: object) -> None:
        """Write a `.keras` file if `filepath` ends in `.keras`, else a SavedModel. Collective.

        Args:
            filepath: The file, or the directory.
            overwrite: Whether to replace an existing file or SavedModel; if False, an existing path is an error.
            **options: For a `.keras` file, options of `keras.Model.save`. The SavedModel is for serving and has no
                optimizer; it accepts only the options of Keras 2 that say so: `save_format="tf"` and
                `include_optimizer=False`.

        Raises:
            SMPUsageError: If an option does not belong to the format.
            SMPCheckpointError: If the model could not be written, or `filepath` exists and `overwrite` is False; raised
                on all ranks.
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
        max_shard_size: object = None,
        **options: object,
    ) -> None:
        """Write the weights of all ranks as one `.weights.h5` file. Collective.

        Args:
            filepath: The file; ends in `.weights.h5`.
            overwrite: Whether to replace an existing file; if False, an existing file is an error.
            max_shard_size: Refused: the ranks write one file together.
            **options: Options of `keras.Model.save_weights`.

        Raises:
            SMPUsageError: If `max_shard_size` is given.
            SMPCheckpointError: If the file could not be written, or exists and `overwrite` is False; raised on all
                ranks.
        """
        refuse_options("model.save_weights", {"max_shard_size": max_shard_size})
        keras_file.save_weights(self._smp_plain(), filepath, overwrite=overwrite, **options)

    def load_weights(self, filepath: str | os.PathLike[str], **options: object) -> None:
        """Load weights that `save_weights` wrote under any partitioning, or that the unpartitioned model wrote.

        Each rank loads the weights that it holds. If the model has no variables before its first step, load the weights
        after that step or in an `smp.register_post_partition_hook`.

        Args:
            filepath: The file, readable on all ranks.
            **options: Options of `keras.Model.load_weights`.
        """
        with dropping_remote_values():
            tf.keras.Model.load_weights(self._smp_plain(), filepath, **options)

    def get_weights(self) -> list[Any]:
        """Return the values of the variables in `weights`.

        Returns:
            One entry per variable: a NumPy array if this rank holds the variable, else a marker. `set_weights` skips
            markers; any other use of a marker as a value raises `SMPRemoteVariableError`.
        """
        return weights.get_weights(self.weights)

    def set_weights(self, values: Sequence[Any]) -> None:
        """Set the variables of `weights` that this rank holds.

        Args:
            values: A list as `get_weights` returns it. Use `load_weights` for the weights of the unpartitioned model.

        Raises:
            SMPUsageError: If the number or the shapes of the values do not match.
            SMPRemoteVariableError: If there is a value for a weight of another rank.
        """
        weights.set_weights(self.weights, values)

    def all_variable_specs(self) -> list[VariableSpec]:
        """Return the specs of all variables of the whole model.

        Returns:
            A `VariableSpec` per variable, in the same order on all ranks.
        """
        return variable_specs(self)

    def _smp_plain(self) -> KerasModel:
        """Return the model to save. Not a property: Keras would save the value of a property as a layer."""
        return self

    @property
    def _smp_call(self) -> Callable[..., Any]:
        """The function whose parameter names are the names of the model's inputs."""
        return self.call

    def train_step(self, data: object) -> Logs:
        """Run one pipelined training step on a batch, and return the metrics.

        Args:
            data: A batch as Keras passes it: inputs, targets and sample weights.

        Returns:
            Scalar tensors by the name of the metric.
        """
        return self._steps().train(data)

    def test_step(self, data: object) -> Logs:
        """Run one pipelined evaluation step on a batch, and return the metrics.

        Args:
            data: A batch as Keras passes it: inputs, targets and sample weights.

        Returns:
            Scalar tensors by the name of the metric.
        """
        return self._steps().evaluate(data)

    def predict_step(self, data: object) -> object:
        """Run one pipelined prediction step on a batch, and return the predictions.

        Args:
            data: A batch as Keras passes it; only the inputs are used.

        Returns:
            The outputs of the model for the whole batch.
        """
        return self._steps().predict(data)

    def _get_metrics_result_or_logs(self, logs: Logs) -> Logs:
        """Return the logs of an epoch; Keras 3 calls this at its end."""
        return metrics.results_of_all(self, logs)

    _validate_and_get_metrics_result = _get_metrics_result_or_logs
    """The same method under the name by which Keras 2 calls it."""

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
    """A distributed model that delegates `call` and the description of its layers to another model."""

    def __init__(self, model: Any, rules: Mapping[str, int] | None) -> None:
        super().__init__(name=model.name)
        self.model = model
        self._smp_rules = dict(rules) if rules is not None else None

    def compile(self, *args: object, **kwargs: Any) -> None:
        """Configure the model for `fit`; see `DistributedModel.compile`."""
        names = getattr(self.model, "output_names", None)
        if names is not None:
            self.output_names = names  # Keras matches dictionaries of losses, metrics and targets by them
        super().compile(*args, **kwargs)

    def call(self, *args: object, **kwargs: object) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    @property
    def layers(self) -> list[KerasLayer]:
        """The layers of the model."""
        return list(self.model.layers)

    @property
    def input_shape(self) -> Any:
        """The shape of the model's input, or the shapes of its inputs."""
        return self.model.input_shape

    @property
    def output_shape(self) -> Any:
        """The shape of the model's output, or the shapes of its outputs."""
        return self.model.output_shape

    def get_layer(self, *args: object, **kwargs: object) -> KerasLayer:
        """Return a layer of the model by its name or index."""
        return self.model.get_layer(*args, **kwargs)

    def count_params(self) -> int:
        """Return the number of parameters of the whole model, on all ranks."""
        return int(self.model.count_params())

    def summary(self, *args: object, **kwargs: object) -> None:
        """Print the layers of the model."""
        self.model.summary(*args, **kwargs)

    def _smp_plain(self) -> KerasModel:
        return self.model

    @property
    def _smp_call(self) -> Callable[..., Any]:
        return self.model.call


def _verbosity(verbose: int | str) -> int | str:
    return 0 if fitting.is_quiet() else verbose
