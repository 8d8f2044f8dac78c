"""Callbacks for `Model.fit`: see `horovod.tensorflow.callbacks`."""

from __future__ import annotations

import keras

from horovod.tensorflow.callbacks import callbacks_of

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

(
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
) = callbacks_of(keras)
