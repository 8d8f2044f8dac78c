"""`smp.send`, `smp.recv_from`, `smp.broadcast`, `smp.allgather` and the barriers: Python objects between ranks."""

import operator
from typing import Any, SupportsIndex

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.world.group import Group
from smdistributed.modelparallel.tensorflow.world.group_names import CommGroup, RankType


def send(obj: object, dest_rank: int, rank_type: RankType) -> None:
    """Send a Python object to one rank, and return when that rank has received it.

    Args:
        obj: A picklable object.
        dest_rank: Rank of the receiver.
        rank_type: The group in which `dest_rank` is counted: `WORLD_RANK` among all ranks, the others (`MP_RANK`,
            `DP_RANK`, ...) inside this rank's own group.

    Raises:
        SMPUsageError: If there is no such rank, or the rank is this process.
        SMPPeerLostError: If the receiver exited.
        SMPDeadlockError: If the receiver does not answer within `hang_timeout_s` seconds.
    """
    peer = _peer(dest_rank, rank_type, "dest_rank")
    session.current().objects.send(obj, (peer,), doing=f"send to rank {peer}")


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """Wait for the next object that another rank sends or broadcasts to this rank.

    Args:
        src_rank: Rank of the sender.
        rank_type: The group in which `src_rank` is counted, as for `send`.

    Returns:
        The object.

    Raises:
        SMPUsageError: If there is no such rank, or the rank is this process.
        SMPPeerLostError: If the sender exited.
        SMPDeadlockError: If the sender does not send within `hang_timeout_s` seconds.
    """
    peer = _peer(src_rank, rank_type, "src_rank")
    return session.current().objects.receive(peer, doing=f"recv_from rank {peer}")


def broadcast(obj: object, group: CommGroup) -> None:
    """Send an object to all other ranks of a group, and return when they have received it.

    Only the sender calls it; the other ranks of the group call `recv_from`.

    Args:
        obj: A picklable object.
        group: `WORLD`, `MP_GROUP` or another member of `CommGroup`; the group that contains this rank.

    Raises:
        SMPUsageError: If `group` is not a `CommGroup`.
        SMPPeerLostError: If a receiver exited.
        SMPDeadlockError: If a receiver does not answer within `hang_timeout_s` seconds.
    """
    members = group_of(group)
    others = tuple(rank for rank in members.ranks if rank != members.world.rank)
    session.current().objects.send(obj, others, doing=f"broadcast to the {members.name} group")


def allgather(obj: object, group: CommGroup) -> list[Any]:
    """Gather one object from each rank of a group. Collective: every rank of the group must call it.

    Args:
        obj: This rank's object; it must be picklable.
        group: The group that contains this rank, a member of `CommGroup`.

    Returns:
        The objects of all ranks, ordered by rank in the group.

    Raises:
        SMPUsageError: If `group` is not a `CommGroup`.
        SMPPeerLostError: If another rank exited.
        SMPDeadlockError: If another rank does not call it within `hang_timeout_s` seconds.
    """
    return group_of(group).allgather_objects(obj)


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Return when every rank of a group has called `barrier`.

    Args:
        group: The group that contains this rank, a member of `CommGroup`. Default: all ranks of the job.

    Raises:
        SMPUsageError: If `group` is not a `CommGroup`.
        SMPPeerLostError: If another rank exited.
        SMPDeadlockError: If another rank does not call it within `hang_timeout_s` seconds.
    """
    group_of(group).barrier()


def mp_barrier() -> None:
    """Return when every rank of this replica has called `mp_barrier`."""
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """Return when every rank that holds this partition has called `dp_barrier`."""
    barrier(CommGroup.DP_GROUP)


def group_of(group: CommGroup) -> Group:
    """Return one of this rank's groups.

    Raises:
        SMPUsageError: If `group` is not a `CommGroup`.
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
    if isinstance(rank, bool) or not isinstance(rank, SupportsIndex) or not 0 <= operator.index(rank) < len(ranks):
        raise SMPUsageError(
            f"'{argument}' is {rank!r} as {rank_type.name}; allowed is 0 to {len(ranks) - 1}, the ranks of that group"
        )
    if ranks[rank] == now.world.rank:
        raise SMPUsageError(
            f"'{argument}' is {rank} as {rank_type.name}, which is this rank itself: a rank cannot exchange "
            "objects with itself"
        )
    return ranks[rank]
