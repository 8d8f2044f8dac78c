"""Elastic training, which is refused by name: see `horovod.tensorflow.elastic`."""

from __future__ import annotations

from horovod.tensorflow.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
