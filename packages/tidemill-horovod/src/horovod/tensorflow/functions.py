"""`horovod.tensorflow.functions`: the names that scripts import from Horovod's module of functions."""

from __future__ import annotations

from horovod.tensorflow.objects import allgather_object, broadcast_object, broadcast_object_fn
from horovod.tensorflow.variables import broadcast_variables

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]
