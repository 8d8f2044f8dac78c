"""`load_model` for directories of the SavedModel format, which Keras 3 does not load."""

import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel, TensorLike
from smdistributed.modelparallel.tensorflow.patch import Patch


class LoadedSignature:
    """A signature that casts its inputs to the saved dtypes, and accepts a single input by position.

    Several inputs must be passed by name, because a SavedModel does not store their order.
    """

    def __init__(self, function: Any) -> None:
        """Wrap a signature that `tf.saved_model.load` returned."""
        self._function = function
        # Sorted, because TensorFlow reads the inputs from a map whose order differs between processes.
        self._inputs: dict[str, Any] = dict(sorted(function.structured_input_signature[1].items()))

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Compute the outputs.

        Args:
            *args: The input, if the signature has a single one: a tensor, or a value convertible to one.
            **kwargs: The inputs by name.
        """
        given = dict(zip(self._inputs, args, strict=False)) | kwargs if len(self._inputs) == 1 else kwargs
        if len(given) != len(args) + len(kwargs) or set(given) != set(self._inputs):
            how = "by position or by name" if len(self._inputs) == 1 else "by name"
            raise TypeError(
                f"the signature takes {len(self._inputs)} inputs, each once and {how}: {', '.join(self._inputs)}. "
                f"Received: {len(args)} by position, and by name: {', '.join(kwargs) or 'none'}"
            )
        return self._function(**{name: _as_input(self._inputs[name], value) for name, value in given.items()})

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of TensorFlow's signature."""
        return getattr(self._function, name)


class LoadedSavedModel:
    """A SavedModel for inference, without the Python code of its model.

    It has `signatures`, `predict`, and is callable; other attributes come from the object that `tf.saved_model.load`
    returned.
    """

    def __init__(self, path: str) -> None:
        """Load the directory `path`."""
        self._loaded = tf.saved_model.load(path)
        self._path = path
        self.signatures: Mapping[str, LoadedSignature] = {
            name: LoadedSignature(function) for name, function in self._loaded.signatures.items()
        }

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Compute the outputs of a batch.

        Args:
            inputs: The model's input; a list or mapping if the model has several inputs.
            training: Only for models that were saved with their call; False and None otherwise.

        Returns:
            The output, or a list of outputs if there are several.
        """
        if callable(self._loaded):
            return self._loaded(inputs) if training is None else self._loaded(inputs, training=training)
        if training:
            raise SMPUsageError(
                f"the SavedModel in {self._path} was exported for serving and cannot run with training=True: "
                "train the model that it was saved from, and restore its weights from a checkpoint"
            )
        return self._serve(inputs)

    def predict(self, x: object, batch_size: int = 32) -> Any:
        """Predict the outputs for an array, in batches.

        Args:
            x: The array, or a list of arrays if the model has several inputs.
            batch_size: Number of rows per batch.

        Returns:
            The output, or a list of outputs if there are several.
        """
        size = len(tf.nest.flatten(x)[0])
        results = [self._serve(_rows(x, start, start + batch_size)) for start in range(0, size, batch_size)]
        return tf.nest.map_structure(_join, *results)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the loaded object."""
        return getattr(self._loaded, name)

    def _serve(self, inputs: Any) -> Any:
        signature = self.signatures.get("serving_default")
        if signature is None:
            raise SMPUsageError(f"the SavedModel in {self._path} has no signature 'serving_default' to call")
        if isinstance(inputs, Mapping):
            outputs = signature(**inputs)
        else:
            serve = getattr(self._loaded, "serve", None)
            if isinstance(inputs, (list, tuple)) and serve is not None:
                # Unlike the signature, the function that Keras exports in addition preserves the order of the inputs.
                [specs] = serve.concrete_functions[0].structured_input_signature[0]
                return serve(tf.__internal__.nest.map_structure_up_to(specs, _as_input, specs, inputs))
            outputs = signature(*inputs) if isinstance(inputs, (list, tuple)) else signature(inputs)
        values = [outputs[name] for name in sorted(outputs, key=_by_number)]
        return values[0] if len(values) == 1 else values


def patches(namespaces: Sequence[Any]) -> list[Patch]:
    """Return the patches for Keras 3: `load_model` in every namespace that exports it.

    Args:
        namespaces: Modules that export `load_model`.
    """
    places = [
        importlib.import_module(f"{space.__name__}.{room}") for space in namespaces for room in ("models", "saving")
    ]
    return [Patch(place, "load_model", _or_saved_model(place.load_model)) for place in places]


def _or_saved_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model(filepath: object, *args: object, **kwargs: object) -> KerasModel | LoadedSavedModel:
        if isinstance(filepath, (str, os.PathLike)):
            path = os.fspath(filepath)
            if tf.io.gfile.exists(f"{path.rstrip('/')}/saved_model.pb"):
                return LoadedSavedModel(path)
        return original(filepath, *args, **kwargs)

    return load_model


def _rows(inputs: Any, start: int, stop: int) -> Any:
    flat = [rows[start:stop] for rows in tf.nest.flatten(inputs)]
    return tf.nest.pack_sequence_as(inputs, flat)


def _join(*parts: TensorLike) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


def _as_input(spec: Any, value: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return value
    tensor = tf.convert_to_tensor(value)
    return tensor if tensor.dtype == spec.dtype else tf.cast(tensor, spec.dtype)


def _by_number(name: str) -> tuple[str, int, str]:
    stem, _, number = name.rpartition("_")
    return (stem, int(number), "") if number.isdigit() else (name, -1, "")
