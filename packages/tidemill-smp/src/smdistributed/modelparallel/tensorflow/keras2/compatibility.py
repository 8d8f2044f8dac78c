"""Put the compatibility set in, and take it out."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.keras2 import (
    gradients,
    legacy_optimizers,
    reset_states,
    saved_model,
    schedule_names,
    variables_list,
)
from smdistributed.modelparallel.tensorflow.keras2.patch import Patch

__all__ = ["SWITCH", "install", "is_installed", "uninstall"]

SWITCH = "SMP_KERAS2_COMPAT"
"""The environment variable that, at `0`, `false`, `no` or `off`, leaves the set out."""

_applied: list[Patch] = []


def install(*, enabled: bool = True) -> bool:
    """Put the set in: for the Keras behind `tf.keras`, and for the other one if it has been imported.

    Args:
        enabled: False to leave it out, as `SMP_KERAS2_COMPAT=0` does.

    Returns:
        Whether the set is in. Calling it again changes nothing.
    """
    if not enabled or os.environ.get(SWITCH, "1").strip().lower() in ("0", "false", "no", "off"):
        return False
    if _applied:
        return True
    try:
        for patch in _patches():
            patch.apply()
            _applied.append(patch)
    except BaseException:
        uninstall()
        raise
    return True


def uninstall() -> None:
    """Take the set out: everything is as before `install`."""
    while _applied:
        _applied.pop().undo()


def is_installed() -> bool:
    """Whether the set is in."""
    return bool(_applied)


def _patches() -> list[Patch]:
    patches: list[Patch] = []
    if _is_keras_2(tf.keras) or "tf_keras" in sys.modules:
        patches += gradients.patches_of_keras_2(importlib.import_module("tf_keras"))
    if not _is_keras_2(tf.keras) or "keras" in sys.modules:
        keras = importlib.import_module("keras")
        # Two modules with the same things in them: `keras`, and what `tf.keras` is.
        namespaces: list[ModuleType] = [keras, importlib.import_module("keras._tf_keras.keras")]
        patches += gradients.patches(keras)
        patches += variables_list.patches(keras)
        patches += legacy_optimizers.patches(keras, namespaces)
        patches += reset_states.patches(keras)
        patches += saved_model.patches(namespaces)
        patches += schedule_names.patches(keras)
    return patches


def _is_keras_2(keras: Any) -> bool:
    # tf_keras does not tell its version there, so ask for a class.
    return str(keras.Model.__module__).startswith("tf_keras")
