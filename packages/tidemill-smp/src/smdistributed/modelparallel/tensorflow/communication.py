"""`smp.send`, `smp.recv_from`, `smp.broadcast`, `smp.allgather` and the barriers: Python objects between ranks."""

from __future__ import annotations

from typing import Any, SupportsIndex

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.world.communicator import Group
from smdistributed.modelparallel.tensorflow.world.groups import CommGroup, RankType

__all__ = ["allgather", "barrier", "broadcast", "dp_barrier", "group_of", "mp_barrier", "recv_from", "send"]


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """Send a Python object to one rank, and return when that rank has received it.

    Args:
        obj: Anything that can be pickled.
        dest_rank: Who shall have it.
        rank_type: How `dest_rank` is counted: `MP_RANK` and `DP_RANK` inside this rank's own group.
    """
    peer = _peer(dest_rank, rank_type, "dest_rank")
    session.current().objects.send(obj, (peer,), doing=f"send to rank {peer}")


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """Wait for the next object that one rank sends or broadcasts to this one.

    Args:
        src_rank: Who sends it.
        rank_type: How `src_rank` is counted, as for `send`.
    """
    peer = _peer(src_rank, rank_type, "src_rank")
    return session.current().objects.receive(peer, doing=f"recv_from rank {peer}")


def broadcast(obj: Any, group: CommGroup) -> None:
    """Send a Python object to all others of a group. Called by the sender alone: the others call `recv_from`."""
    members = group_of(group)
    others = tuple(rank for rank in members.ranks if rank != members.world.rank)
    session.current().objects.send(obj, others, doing=f"broadcast to the {members.name} group")


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """Every member's object, by rank in the group. Called by all members."""
    return group_of(group).allgather_objects(obj)


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Return when every member of the group is here."""
    group_of(group).barrier()


def mp_barrier() -> None:
    """Return when every rank of this replica is here."""
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """Return when every rank that holds this partition is here."""
    barrier(CommGroup.DP_GROUP)


def group_of(group: CommGroup) -> Group:
    """The members of one of this rank's groups.

    Raises:
        SMPUsageError: If `group` is no `CommGroup`.
    """
    now = session.current()
    if group is CommGroup.WORLD:
        return now.world_group
    if group in (CommGroup.MP_GROUP, CommGroup.PP_GROUP):
        return now.mp_group
    if group in (CommGroup.DP_GROUP, CommGroup.RDP_GROUP):
        return now.dp_group
    if group is CommGroup.TP_GROUP:
        return Group(now.world, (now.world.rank,), "tensor-parallel")
    allowed = ", ".join(f"smp.{one.name}" for one in CommGroup)
    raise SMPUsageError(f"'group' is {group!r}; allowed is one of {allowed}")


def _peer(rank: int, rank_type: RankType, argument: str) -> int:
    now = session.current()
    if rank_type is RankType.WORLD_RANK:
        ranks = now.world_group.ranks
    elif rank_type in (RankType.MP_RANK, RankType.PP_RANK):
        ranks = now.mp_group.ranks
    elif rank_type in (RankType.DP_RANK, RankType.RDP_RANK):
        ranks = now.dp_group.ranks
    elif rank_type is RankType.TP_RANK:
        ranks = (now.world.rank,)
    else:
        allowed = ", ".join(f"smp.RankType.{one.name}" for one in RankType)
        raise SMPUsageError(f"'rank_type' is {rank_type!r}; allowed is one of {allowed}")
    if isinstance(rank, bool) or not isinstance(rank, SupportsIndex) or not 0 <= int(rank) < len(ranks):
        raise SMPUsageError(
            f"'{argument}' is {rank!r} as {rank_type.name}; allowed is 0 to {len(ranks) - 1}, the ranks of that group"
        )
    if ranks[rank] == now.world.rank:
        raise SMPUsageError(
            f"'{argument}' is {rank} as {rank_type.name}, which is this rank itself: a rank cannot exchange "
            "objects with itself"
        )
    return ranks[rank]
