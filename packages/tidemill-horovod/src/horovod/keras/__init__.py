"""`import horovod.keras as hvd`: Horovod for scripts with `import keras`."""

from __future__ import annotations

import keras

from horovod.keras import callbacks, elastic
from horovod.tensorflow import keras_api
from horovod.tensorflow.keras_api import *  # noqa: F403 - they are listed there

__all__ = [*keras_api.__all__, "callbacks", "elastic", "load_model"]  # noqa: PLE0604

load_model = keras_api.load_model_of(keras)
