"""Elastic training, which is refused by name: see `horovod.tensorflow.elastic`."""

from __future__ import annotations

from horovod.tensorflow.keras.elastic import *  # noqa: F403 - listed there
from horovod.tensorflow.keras.elastic import __all__ as __all__
