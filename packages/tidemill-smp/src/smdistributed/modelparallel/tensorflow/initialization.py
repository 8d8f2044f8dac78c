"""`smp.init`: read the parameters, connect to the other ranks, and install what changes TensorFlow's behavior."""

import difflib
import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import legacy_keras, session
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import read_rank_info
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Variable
from smdistributed.modelparallel.tensorflow.allocator import return_freed_memory
from smdistributed.modelparallel.tensorflow.clipping import install_warning
from smdistributed.modelparallel.tensorflow.config import IDLE_PARAMETERS, Config, read_config
from smdistributed.modelparallel.tensorflow.engine import traced_calls
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.hybrid import require_horovod, start_horovod
from smdistributed.modelparallel.tensorflow.joining import join
from smdistributed.modelparallel.tensorflow.optimizers import installation as optimizers
from smdistributed.modelparallel.tensorflow.placement import place
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.tensorflow_api import keep_autograph_out
from smdistributed.modelparallel.tensorflow.variables import tensorflow_variable
from smdistributed.modelparallel.tensorflow.world.rendezvous import rank_errors

log = logging.getLogger("smdistributed.modelparallel")


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
    session.set_current(join(parameters, info))
    legacy_keras.install()
    optimizers.install(_is_distributed)
    keep_autograph_out()
    install_warning()
    traced_calls.install()
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
