"""Callbacks for `Model.fit`: see `horovod.tensorflow.callbacks`."""

import tensorflow as tf

from horovod.tensorflow.callbacks import make_callbacks

_made = make_callbacks(tf.keras)

BestModelCheckpoint = _made.BestModelCheckpoint
BroadcastGlobalVariablesCallback = _made.BroadcastGlobalVariablesCallback
LearningRateScheduleCallback = _made.LearningRateScheduleCallback
LearningRateWarmupCallback = _made.LearningRateWarmupCallback
MetricAverageCallback = _made.MetricAverageCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
