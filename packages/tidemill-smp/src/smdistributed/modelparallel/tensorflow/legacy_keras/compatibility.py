"""Installs and removes the compatibility shims."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2
from smdistributed.modelparallel.tensorflow.legacy_keras import (
    earlier_calls,
    gradients,
    legacy_optimizers,
    saved_model,
)
from smdistributed.modelparallel.tensorflow.patch import Patch

SWITCH = "SMP_KERAS2_COMPAT"
"""Environment variable that disables the shims with `0`, `false`, `no` or `off`."""

_applied: list[Patch] = []


def install(*, enabled: bool = True) -> bool:
    """Install the shims for the Keras of `tf.keras`, and for the other Keras if it has been imported. Idempotent.

    Args:
        enabled: False installs nothing, like `SMP_KERAS2_COMPAT=0`.
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
    """Remove the shims, which restores the state before `install`."""
    while _applied:
        _applied.pop().undo()


def is_installed() -> bool:
    """Return whether the shims are installed."""
    return bool(_applied)


def _patches() -> list[Patch]:
    patches: list[Patch] = []
    if IS_KERAS_2:
        patches += gradients.patches_of_keras_2(tf.keras)
    elif "tf_keras" in sys.modules:
        patches += gradients.patches_of_keras_2(sys.modules["tf_keras"])
    keras = _keras_3()
    if keras is not None:
        # `keras` and the module of `tf.keras` are different modules with the same contents.
        namespaces: list[ModuleType] = [keras, importlib.import_module("keras._tf_keras.keras")]
        patches += gradients.patches(keras)
        patches += earlier_calls.patches(keras)
        patches += legacy_optimizers.patches(keras, namespaces)
        patches += saved_model.patches(namespaces)
    return patches


def _keras_3() -> ModuleType | None:
    """Return Keras 3 if it is `tf.keras` or has been imported. Up to TensorFlow 2.15, `keras` is Keras 2."""
    if not IS_KERAS_2:
        return importlib.import_module("keras")
    keras: Any = sys.modules.get("keras")
    return None if keras is None or keras.Model is tf.keras.Model else keras
