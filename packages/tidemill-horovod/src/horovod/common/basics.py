"""`horovod.common.basics`: see `horovod.tensorflow.basics`."""

from __future__ import annotations

from horovod.tensorflow.basics import HorovodBasics

__all__ = ["HorovodBasics"]
