"""The session of this process: the only global state, created by `smp.init`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdistributed.modelparallel.backend.exceptions import SMPNotInitializedError

if TYPE_CHECKING:
    from smdistributed.modelparallel.tensorflow.config import Config
    from smdistributed.modelparallel.tensorflow.placement import RankPlacement
    from smdistributed.modelparallel.tensorflow.transport.base import Transport
    from smdistributed.modelparallel.tensorflow.world.group import Group
    from smdistributed.modelparallel.tensorflow.world.objects import Objects
    from smdistributed.modelparallel.tensorflow.world.world import World


@dataclass(frozen=True)
class RankSession:
    """State of an initialized process."""

    config: Config
    """The validated parameters."""
    world: World
    """Connections of this process to the other ranks."""
    placement: RankPlacement
    """Mapping between ranks, partitions and replicas."""
    transport: Transport
    """Transport of tensors between ranks."""
    objects: Objects
    """Point-to-point messages of Python objects."""
    world_group: Group
    """All ranks."""
    mp_group: Group
    """The ranks of this replica, ordered by partition."""
    dp_group: Group
    """The ranks that hold this partition, ordered by replica."""


_current: RankSession | None = None


def current() -> RankSession:
    """Return the session of this process.

    Raises:
        SMPNotInitializedError: If `smp.init()` has not been called.
    """
    if _current is None:
        raise SMPNotInitializedError("smp is not initialized: call smp.init() first, at the top of the script")
    return _current


def is_initialized() -> bool:
    """Return whether `smp.init()` has been called."""
    return _current is not None


def set_current(session: RankSession | None) -> None:
    """Set the session of this process; None clears it.

    Args:
        session: The session, or None.
    """
    global _current
    _current = session
