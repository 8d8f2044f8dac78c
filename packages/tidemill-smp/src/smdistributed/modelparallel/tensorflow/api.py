"""The names that scripts use, as `smp.<name>`."""

from smdistributed.modelparallel.tensorflow import core, utils
from smdistributed.modelparallel.tensorflow.checkpoint.manager import CheckpointManager
from smdistributed.modelparallel.tensorflow.clipping import clip_by_global_norm
from smdistributed.modelparallel.tensorflow.communication import (
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    recv_from,
    send,
)
from smdistributed.modelparallel.tensorflow.core import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_mp_group,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.tensorflow.engine.timeline import timeline
from smdistributed.modelparallel.tensorflow.initialization import init
from smdistributed.modelparallel.tensorflow.model import DistributedModel
from smdistributed.modelparallel.tensorflow.partitioning.context import partition
from smdistributed.modelparallel.tensorflow.planning import plan
from smdistributed.modelparallel.tensorflow.post_partition import register_post_partition_hook
from smdistributed.modelparallel.tensorflow.saving.variables import VariableSpec, local_variables
from smdistributed.modelparallel.tensorflow.stepping.output import StepOutput
from smdistributed.modelparallel.tensorflow.stepping.step import step
from smdistributed.modelparallel.tensorflow.world.group_names import (
    DP_GROUP,
    MP_GROUP,
    PP_GROUP,
    RDP_GROUP,
    TP_GROUP,
    WORLD,
    CommGroup,
    RankType,
)

__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CheckpointManager",
    "CommGroup",
    "DistributedModel",
    "RankType",
    "StepOutput",
    "VariableSpec",
    "allgather",
    "barrier",
    "broadcast",
    "clip_by_global_norm",
    "core",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_mp_group",
    "init",
    "local_rank",
    "local_size",
    "local_variables",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "partition",
    "plan",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "register_post_partition_hook",
    "send",
    "size",
    "step",
    "timeline",
    "tp_rank",
    "tp_size",
    "utils",
]
