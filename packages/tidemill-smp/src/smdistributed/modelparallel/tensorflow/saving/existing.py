"""Checks of the saving methods: options that cannot be honored, and files that must not be replaced."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPUsageError
from smdistributed.modelparallel.tensorflow.session import current

_SAVED_MODEL = {"save_format": "tf", "include_optimizer": False}
"""Options that request the only form that `save_model` writes."""


def refuse_options(what: str, options: Mapping[str, Any]) -> None:
    """Refuse options of Keras that a model spread over ranks cannot honor.

    Args:
        what: The call, for the error message.
        options: Options by name; None means not given.

    Raises:
        SMPUsageError: If an option is given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if given:
        words = ", ".join(f"{name}={value!r:.80}" for name, value in given.items())
        raise SMPUsageError(
            f"{what}: {words} cannot be honored for a model that is spread over ranks: leave it out. save_keras writes "
            "the whole model to a file, which one process can load and save with any options"
        )


def without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Model.save` that request something other than `save_model` writes.

    Keras 2's `ModelCheckpoint` passes a default `tf.saved_model.SaveOptions()` if the script passes none.

    Args:
        options: Keyword arguments of `Model.save`.
    """
    asked = {name: value for name, value in options.items() if _SAVED_MODEL.get(name, ...) != value}
    if _settings(asked.get("options")) == _settings(tf.saved_model.SaveOptions()):
        del asked["options"]
    return asked


def refuse_existing(path: Path) -> None:
    """Refuse a path that exists. Collective: rank 0, which writes, checks it.

    Raises:
        SMPCheckpointError: If it exists; raised on all ranks.
    """
    if current().world_group.allgather_objects(path.exists(), what=f"look at {path}")[0]:
        raise SMPCheckpointError(f"{path} exists, and overwrite is False: remove it, or give another path")


def _settings(options: Any) -> dict[str, Any] | None:
    if not isinstance(options, tf.saved_model.SaveOptions):
        return None
    return {name: getattr(options, name) for name in options.__slots__}
