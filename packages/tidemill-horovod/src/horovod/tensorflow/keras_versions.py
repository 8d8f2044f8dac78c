"""Differences between Keras 3 and Keras 2, which is also named tf_keras."""

from __future__ import annotations

import functools
import sys


def is_keras_3(thing: object) -> bool:
    """Return whether an object is an instance of a class of Keras 3; until TensorFlow 2.15 Keras 2 had its name."""
    return is_keras_3_class(type(thing))


def is_keras_3_class(kind: type) -> bool:
    """Return whether a class is of Keras 3, or derived from one."""
    version = getattr(sys.modules.get("keras"), "__version__", "0")
    return int(version.partition(".")[0]) >= 3 and any(
        one.__module__.partition(".")[0] == "keras" for one in kind.__mro__
    )


def without_xla() -> None:
    """Make Keras 3 compile steps with distributed optimizers without XLA, which cannot call other ranks.

    By default (`jit_compile="auto"`) Keras 3 uses XLA for each model whose layers support it.
    """
    trainers = sys.modules.get("keras.src.trainers.trainer")
    supports = getattr(trainers, "model_supports_jit", None)
    if trainers is None or supports is None or hasattr(supports, "horovod_plain"):
        return

    @functools.wraps(supports)
    def model_supports_jit(model: object) -> bool:
        optimizer = getattr(model, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", None)
        return not (hasattr(optimizer, "_horovod") or hasattr(inner, "_horovod")) and supports(model)

    model_supports_jit.horovod_plain = supports  # type: ignore[attr-defined]
    trainers.model_supports_jit = model_supports_jit  # type: ignore[attr-defined]
