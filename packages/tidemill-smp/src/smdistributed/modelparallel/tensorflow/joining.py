"""Connect the ranks of a job: the mesh, the transport, the groups, and what happens when a process ends."""

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPPeerLostError
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import RankInfo
from smdistributed.modelparallel.tensorflow.config import Config
from smdistributed.modelparallel.tensorflow.cores import size_pools, take_cores
from smdistributed.modelparallel.tensorflow.devices import take_gpu
from smdistributed.modelparallel.tensorflow.placement import RankPlacement, place
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.transport.base import Transport
from smdistributed.modelparallel.tensorflow.transport.choice import choose_transport
from smdistributed.modelparallel.tensorflow.transport.errors import as_library_error
from smdistributed.modelparallel.tensorflow.world.group import Group
from smdistributed.modelparallel.tensorflow.world.mesh import connect_all
from smdistributed.modelparallel.tensorflow.world.objects import Objects
from smdistributed.modelparallel.tensorflow.world.rendezvous import blame_others, find_rendezvous
from smdistributed.modelparallel.tensorflow.world.world import World

_FLUSH_S = 5.0


def join(parameters: Config, info: RankInfo) -> RankSession:
    """Connect this process to the other ranks, and disconnect it when the process ends. Collective.

    Args:
        parameters: The parameters of the job.
        info: Number of this rank, and of all ranks.

    Raises:
        SMPConfigurationError: If the number of ranks is not allowed.
        SMPDeadlockError: If the other ranks do not connect in time.
    """
    rendezvous, mpi = find_rendezvous(info, timeout_s=parameters.hang_timeout_s)
    placement = place(
        info.rank,
        size=info.size,
        partitions=parameters.partitions,
        strategy=parameters.placement_strategy,
    )
    mesh = connect_all(rendezvous, timeout_s=parameters.hang_timeout_s)
    name_of = _namer(placement)
    world = World(
        rank=info.rank,
        local_rank=info.local_rank,
        local_size=info.local_size,
        connections=mesh.objects,
        hang_timeout_s=parameters.hang_timeout_s,
        name_of=name_of,
    )
    world.start()
    world_group = Group(world, tuple(range(world.size)), "world")
    # Before other threads start: they inherit the cores.
    width = take_cores(world_group, mesh.machines, bind=parameters.bind_cores)
    take_gpu(info.local_rank, info.local_size)
    transport = choose_transport(
        parameters.transport,
        world_group,
        mesh.tensors,
        hang_timeout_s=parameters.hang_timeout_s,
        name_of=name_of,
    )
    size_pools(width, receives_occupy_threads=info.size > 1 and transport.receives_occupy_threads)
    world.on_loss(transport.lose_all)
    world.add_doing_source(transport.waiting)
    _leave_at_exit(world, transport, mpi)
    return RankSession(
        config=parameters,
        world=world,
        placement=placement,
        transport=transport,
        objects=Objects(world),
        world_group=world_group,
        mp_group=Group(world, placement.mp_group, "model-parallel"),
        dp_group=Group(world, placement.dp_group, "data-parallel"),
    )


def _namer(placement: RankPlacement) -> Callable[[int], str]:
    def name_of(rank: int) -> str:
        replica = f" of replica {placement.replica_of(rank)}" if placement.replicas > 1 else ""
        return f"rank {rank} (partition {placement.partition_of(rank)}{replica})"

    return name_of


def _leave_at_exit(world: World, transport: Transport, mpi: Any) -> None:
    """Close the connections at exit; after an uncaught exception, report the failure to the other ranks."""
    failure: list[str] = []
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failure.append(f"{kind.__name__}: {error}".partition("\n")[0])
        if issubclass(kind, SMPPeerLostError) or isinstance(as_library_error(error), SMPPeerLostError):
            blame_others()
        before(kind, error, trace)

    def leave() -> None:
        if not failure:
            transport.flush(_FLUSH_S)
        is_lost = bool(failure) or world.has_lost()
        world.close("".join(failure[:1]))
        if mpi is not None and is_lost:
            mpi.Abort(1)  # MPI_Finalize at exit would wait for ranks that never reach it

    sys.excepthook = note
    atexit.register(leave)
    os.register_at_fork(after_in_child=world.forget_in_child)
