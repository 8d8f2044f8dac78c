"""`horovod.common.elastic`: see `horovod.tensorflow.elastic`."""

from horovod.tensorflow.elastic import ObjectState, State

__all__ = ["ObjectState", "State"]
