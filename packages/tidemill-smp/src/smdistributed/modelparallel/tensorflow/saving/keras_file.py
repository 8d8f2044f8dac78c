"""`model.save_keras` and `model.save_weights`: the whole model in Keras's file formats."""

import functools
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel
from smdistributed.modelparallel.tensorflow.keras_api import serialized
from smdistributed.modelparallel.tensorflow.saving.existing import refuse_existing
from smdistributed.modelparallel.tensorflow.saving.gathering import Values, on_first_rank
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.variables import variables_of


def save_keras(model: KerasModel, path: str | os.PathLike[str], *, overwrite: bool = True, **options: object) -> None:
    """Write the whole model as a `.keras` file. Collective; rank 0 writes.

    Args:
        model: A plain Keras model, some of whose variables other ranks may hold.
        path: The file; ends in `.keras`.
        overwrite: Whether to replace an existing file.
        **options: Options of `keras.Model.save`.

    Raises:
        SMPUsageError: If the model cannot be serialized, or `path` has another ending.
        SMPCheckpointError: If the file could not be written or must not be replaced; raised on all ranks.
    """
    target = _checked(path, ".keras", "model.save")
    if not overwrite:
        refuse_existing(target)
    try:
        serialized(model)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise SMPUsageError(
            f"the model {model.name!r} of class {type(model).__name__} cannot be saved as {target}: a .keras file "
            "stores the constructor arguments of the class, so give it a get_config() (and a from_config, "
            "if arguments are objects); or "
            f"use save_model, which needs neither. Keras says: {error}"
        ) from error
    _save(model, target, functools.partial(tf.keras.Model.save, model, **options))


def save_weights(model: KerasModel, path: str | os.PathLike[str], *, overwrite: bool = True, **options: object) -> None:
    """Write all weights as a `.weights.h5` file. Collective; rank 0 writes.

    Args:
        model: A Keras model, some of whose variables other ranks may hold.
        path: The file; ends in `.weights.h5`.
        overwrite: Whether to replace an existing file.
        **options: Options of `keras.Model.save_weights`.

    Raises:
        SMPUsageError: If `path` has another ending.
        SMPCheckpointError: If the file could not be written or must not be replaced; raised on all ranks.
    """
    target = _checked(path, ".weights.h5", "model.save_weights")
    if not overwrite:
        refuse_existing(target)
    _save(model, target, functools.partial(tf.keras.Model.save_weights, model, **options))


def _checked(path: str | os.PathLike[str], ending: str, what: str) -> Path:
    if not os.fspath(path).endswith(ending):
        raise SMPUsageError(
            f"{what} of a distributed model writes files that end in {ending}. Received: {os.fspath(path)!r}. "
            "A SavedModel is written by save_model"
        )
    return Path(path)


def _save(model: KerasModel, target: Path, write: Callable[[Path], object]) -> None:
    optimizer = getattr(model, "optimizer", None)
    slots = list(optimizer.variables) if optimizer is not None else []

    def save(_: Values) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{secrets.token_hex(8)}.{target.name}")
        try:
            write(fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    # Keras also writes the variables of metrics; the metrics of a layer are on the rank of that layer.
    counts = [variable for metric in model.metrics for variable in metric.variables]
    variables = [*variables_of([model]), *counts, *slots]
    on_first_rank(current(), variables, save, doing=f"save {target}", error=SMPCheckpointError)
