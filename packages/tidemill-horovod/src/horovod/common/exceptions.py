"""`from horovod.common.exceptions import HorovodInternalError`."""

from horovod.tensorflow.errors import HorovodInternalError

__all__ = ["HorovodInternalError"]
