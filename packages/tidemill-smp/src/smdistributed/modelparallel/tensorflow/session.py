"""The one piece of state of a process: what `smp.init` made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdistributed.modelparallel.backend.exceptions import SMPNotInitializedError

if TYPE_CHECKING:
    from smdistributed.modelparallel.tensorflow.config import Config
    from smdistributed.modelparallel.tensorflow.placement import Placement
    from smdistributed.modelparallel.tensorflow.transport.base import Transport
    from smdistributed.modelparallel.tensorflow.world.communicator import Group
    from smdistributed.modelparallel.tensorflow.world.objects import Objects
    from smdistributed.modelparallel.tensorflow.world.world import World

__all__ = ["Session", "current", "is_initialized", "set_current"]


@dataclass(frozen=True)
class Session:
    """What `smp.init` made."""

    config: Config
    """The parameters, validated."""
    world: World
    """This process among the others."""
    placement: Placement
    """Which rank holds which partition of which replica."""
    transport: Transport
    """How tensors travel."""
    objects: Objects
    """Python objects from rank to rank."""
    world_group: Group
    """All ranks."""
    mp_group: Group
    """The ranks of this replica, by partition."""
    dp_group: Group
    """The ranks that hold this partition, by replica."""


_current: Session | None = None


def current() -> Session:
    """The session of this process.

    Raises:
        SMPNotInitializedError: If `smp.init()` has not been called.
    """
    if _current is None:
        raise SMPNotInitializedError("smp is not initialized: call smp.init() first, at the top of the script")
    return _current


def is_initialized() -> bool:
    """Whether `smp.init()` has been called."""
    return _current is not None


def set_current(session: Session | None) -> None:
    """Set, or with None forget, the session of this process."""
    global _current
    _current = session
