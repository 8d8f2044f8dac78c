"""`horovod.common.basics`: see `horovod.tensorflow.basics`."""

from horovod.tensorflow.basics import HorovodBasics

__all__ = ["HorovodBasics"]
