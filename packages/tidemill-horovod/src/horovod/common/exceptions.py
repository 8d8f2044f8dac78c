"""`horovod.common.exceptions`: the exceptions that scripts import from Horovod."""

from __future__ import annotations

from horovod.tensorflow.errors import HorovodInternalError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):
    """Never raised: elastic training raises it in Horovod when machines join or leave.

    Args:
        skip_sync: Whether the state needs no synchronization.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync
