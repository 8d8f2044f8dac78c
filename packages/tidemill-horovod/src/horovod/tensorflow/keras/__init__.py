"""`import horovod.tensorflow.keras as hvd`: Horovod for scripts with `tf.keras`, either Keras 3 or tf_keras."""

from __future__ import annotations

import tensorflow as tf

from horovod.tensorflow import keras_api
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.keras_api import *  # noqa: F403 - they are listed there

__all__ = [*keras_api.__all__, "callbacks", "elastic", "load_model"]  # noqa: PLE0604

load_model = keras_api.load_model_of(tf.keras)
