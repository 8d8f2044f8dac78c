"""`import horovod.tensorflow.keras as hvd`: Horovod for scripts with `tf.keras`, either Keras 3 or tf_keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow import Compression, keras_names
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.keras_api import load_with
from horovod.tensorflow.keras_names import *  # noqa: F403 - they are listed there

__all__ = [*keras_names.__all__, "callbacks", "elastic", "load_model"]  # noqa: PLE0604


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Load a model that Keras has saved, with its optimizer and the optimizer's state as a distributed optimizer.

    Args:
        filepath: As for `load_model` of Keras.
        custom_optimizers: Optimizer classes of the script.
        custom_objects: Other classes of the script, by name.
        compression: `Compression.none` (the default) or `Compression.fp16`, for gradients.
        legacy_opts: Without effect: the file names the class of its optimizer.
        options: Other arguments of `load_model` of Keras.

    Returns:
        The model. Its optimizer is changed in place, as by `DistributedOptimizer`.
    """
    del legacy_opts
    return load_with(tf.keras, filepath, custom_optimizers, custom_objects, compression, options)
