"""Differences between Keras 3 and tf_keras."""

import functools
import sys


def is_keras_3(thing: object) -> bool:
    """Return whether an object is an instance of a class of Keras 3."""
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(thing).__mro__)


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
