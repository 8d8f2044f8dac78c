"""`smp.init`: read the parameters, connect to the other ranks, and disconnect when the process ends."""

from __future__ import annotations

import atexit
import difflib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import TracebackType
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPPeerLostError, SMPUsageError
from smdistributed.modelparallel.tensorflow import legacy_keras, session
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import RankInfo, read_rank_info
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Variable
from smdistributed.modelparallel.tensorflow.allocator import return_freed_memory
from smdistributed.modelparallel.tensorflow.arguments import IDLE_PARAMETERS
from smdistributed.modelparallel.tensorflow.clipping import install_warning
from smdistributed.modelparallel.tensorflow.config import Config, read_config
from smdistributed.modelparallel.tensorflow.cores import take_cores
from smdistributed.modelparallel.tensorflow.devices import take_gpu
from smdistributed.modelparallel.tensorflow.engine import real_inputs
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.hybrid import require_horovod, start_horovod
from smdistributed.modelparallel.tensorflow.optimizers import installation as optimizers
from smdistributed.modelparallel.tensorflow.placement import RankPlacement, place
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.transport.base import Transport
from smdistributed.modelparallel.tensorflow.transport.choice import choose_transport
from smdistributed.modelparallel.tensorflow.transport.errors import as_library_error
from smdistributed.modelparallel.tensorflow.variables import tensorflow_variable
from smdistributed.modelparallel.tensorflow.world.group import Group
from smdistributed.modelparallel.tensorflow.world.mesh import connect_all
from smdistributed.modelparallel.tensorflow.world.objects import Objects
from smdistributed.modelparallel.tensorflow.world.rendezvous import blame_others, find_rendezvous, rank_errors
from smdistributed.modelparallel.tensorflow.world.world import World

__all__ = ["init"]

log = logging.getLogger("smdistributed.modelparallel")

_FLUSH_S = 5.0


def init(config: Mapping[str, Any] | None = None) -> None:
    """Initialize the library: connect this process to the other ranks. Collective; the first call of a script.

    A second call with the same parameters does nothing.

    Args:
        config: The parameters of the job; see `Config` for names and defaults. Default: the JSON object in
            `SM_HP_MP_PARAMETERS`, which SageMaker training sets.

    Raises:
        SMPConfigurationError: If a parameter, or the number of ranks, is not allowed.
        SMPUsageError: If the process was already initialized with other parameters.
        SMPDeadlockError: If the other ranks do not connect within `hang_timeout_s` seconds.
    """
    parameters = read_config(config)
    if session.is_initialized():
        _require_same(parameters)
        return
    with rank_errors():
        info = read_rank_info()
    # All checks come before anything is started.
    placement = place(info.rank, size=info.size, partitions=parameters.partitions)
    if parameters.horovod:
        require_horovod(placement.replicas)
    return_freed_memory()  # before the model allocates memory
    session.set_current(_join(parameters, info))
    legacy_keras.install()
    optimizers.install(_is_distributed)
    install_warning()
    real_inputs.install()
    if parameters.horovod:
        start_horovod(session.current())
    _warn_of_lone_replicas(session.current())
    _warn_of_schedule(session.current())
    _warn_of_idle_parameters(session.current())


def _warn_of_lone_replicas(joined: RankSession) -> None:
    config, placement = joined.config, joined.placement
    if placement.replicas > 1 and not (config.horovod or config.ddp) and placement.rank == 0:
        log.warning(
            "smp: there are %d replicas (%d ranks, %d partitions), but neither 'horovod' nor 'ddp' is set: unless the "
            "script averages gradients itself, each replica trains a separate model",
            placement.replicas,
            placement.replicas * placement.partitions,
            placement.partitions,
        )


def _warn_of_schedule(joined: RankSession) -> None:
    if joined.config.pipeline == "_only_forward" and joined.placement.rank == 0:
        log.warning("smp: 'pipeline' is '_only_forward', which means 'interleaved' here; set 'interleaved' or 'simple'")


def _warn_of_idle_parameters(joined: RankSession) -> None:
    if joined.placement.rank != 0:
        return
    names = [field.name for field in fields(Config) if field.name != "extras"]
    for name, reason in IDLE_PARAMETERS.items():
        if getattr(joined.config, name) not in (None, False):
            log.warning("smp: '%s' has no effect: %s", name, reason)
    for name in joined.config.extras:
        alike = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{alike[0]}'?" if alike else ""
        log.warning("smp: '%s' is not a parameter of this library and has no effect%s", name, hint)


def _is_distributed(variable: Variable) -> bool:
    return id(tensorflow_variable(variable)) in engine().owners


def _require_same(parameters: Config) -> None:
    before = session.current().config
    if parameters == before:
        return
    names = [name for name in vars(parameters) if getattr(parameters, name) != getattr(before, name)]
    changes = ", ".join(f"'{name}' {getattr(before, name)!r} -> {getattr(parameters, name)!r}" for name in names)
    raise SMPUsageError(
        f"smp.init() was called before with other parameters ({changes}): a process is initialized once, so call it "
        "again with the same parameters, or not at all"
    )


def _join(parameters: Config, info: RankInfo) -> RankSession:
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
    take_cores(world_group, mesh.machines, bind=parameters.bind_cores)  # before other threads start: they inherit cores
    take_gpu(info.local_rank, info.local_size)
    transport = choose_transport(
        parameters.transport,
        world_group,
        mesh.tensors,
        hang_timeout_s=parameters.hang_timeout_s,
        name_of=name_of,
    )
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
