"""`horovod.common.elastic`: see `horovod.tensorflow.elastic`."""

from __future__ import annotations

from horovod.tensorflow.elastic import ObjectState, State

__all__ = ["ObjectState", "State"]
