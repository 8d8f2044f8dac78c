"""The effect of every argument of every public function: honored, or without effect.

Arguments without effect change no result in Horovod either: names and hints about speed. A test compares the table with
the signatures, and calls every function with every argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["ARGUMENTS", "Argument", "Effect"]


class Effect(Enum):
    """What a function does with an argument."""

    HONORED = "honored"
    NONE = "without effect"


@dataclass(frozen=True)
class Argument:
    """A row of the table."""

    effect: Effect
    note: str
    """What the argument does, or why it has no effect."""


def _honored(note: str) -> Argument:
    return Argument(Effect.HONORED, note)


_PROCESS_SET = _honored("the ranks that take part; None for all")
_SESSION = Argument(Effect.NONE, "objects go through a session of their own")
_DEVICE = Argument(Effect.NONE, "tensors go through the memory of the host")
_NAME = _honored("name of the op in a graph; ranks match calls by it")
_SCOPE = Argument(Effect.NONE, "name scopes are no part of the names by which ranks match calls")
_LABEL = _honored("ranks match calls by it")
_GROUPING = Argument(Effect.NONE, "gradients that are ready together are sent together")
_KEPT_NAME = Argument(Effect.NONE, "the optimizer keeps its name, so that checkpoints fit")
_ROOT = _honored("the rank whose value all ranks get")
_COMPRESSION = _honored("how floats are compressed while they are sent")
_SCALES = {
    "prescale_factor": _honored("multiplied before the reduction"),
    "postscale_factor": _honored("multiplied after the reduction"),
}
_LOCAL_SCALE = _honored("whether gradients that stay on their rank are divided by the number of ranks")

_REDUCTION = {
    "average": _honored("older form of `op`: True for Average, False for Sum"),
    "device_dense": _DEVICE,
    "device_sparse": _DEVICE,
    "compression": _COMPRESSION,
    "op": _honored("Average (default), Sum, Adasum, Min, Max or Product"),
    **_SCALES,
}
_GRADIENTS = {
    "device_dense": _DEVICE,
    "device_sparse": _DEVICE,
    "compression": _COMPRESSION,
    "sparse_as_dense": _honored("makes tf.IndexedSlices dense before the reduction"),
    "op": _honored("Average (default), Sum or Adasum"),
    "gradient_predivide_factor": _honored("with Average: divides before the sum and multiplies after it"),
    "num_groups": _GROUPING,
    "groups": _GROUPING,
    "process_set": _PROCESS_SET,
}
_TAPE = _honored("the tape, before or after its recording")

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "DistributedGradientTape": {"gradtape": _TAPE, **_GRADIENTS, "scale_local_gradients": _LOCAL_SCALE},
    "DistributedOptimizer": {
        "optimizer": _honored("of Keras 3, tf_keras or tf.compat.v1.train; changed in place"),
        "name": _KEPT_NAME,
        "use_locking": Argument(Effect.NONE, "an argument of the optimizer itself"),
        **_GRADIENTS,
        "backward_passes_per_step": _honored("calls whose gradients are summed first; 1 with tf.compat.v1.train"),
        "average_aggregated_gradients": _honored("divides that sum by the number of calls"),
        "scale_local_gradients": _LOCAL_SCALE,
    },
    "PartialDistributedGradientTape": {
        "gradtape": _TAPE,
        **_GRADIENTS,
        "local_layers": _honored("layers whose gradients stay on their rank"),
        "scale_local_gradients": _LOCAL_SCALE,
    },
    "add_process_set": {"process_set": _honored("a ProcessSet, or a list of ranks")},
    "allgather": {
        "tensor": _honored("concatenated along axis 0"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "allgather_object": {
        "obj": _honored("anything that can be pickled"),
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "allreduce": {
        "tensor": _honored("a tensor, tf.IndexedSlices, or None, which stays None"),
        **_REDUCTION,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "alltoall": {
        "tensor": _honored("its rows are divided among the ranks"),
        "splits": _honored("number of rows for each rank; None for equal numbers"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "barrier": {"process_set": _PROCESS_SET},
    "broadcast": {
        "tensor": _honored("read on `root_rank`; gives dtype and shape on the others"),
        "root_rank": _ROOT,
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "broadcast_": {
        "variables": _honored("assigned; their values are returned"),
        "root_rank": _ROOT,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "broadcast_global_variables": {"root_rank": _ROOT},
    "broadcast_object": {
        "obj": _honored("anything that can be pickled; read on `root_rank` only"),
        "root_rank": _ROOT,
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "broadcast_object_fn": {
        "root_rank": _ROOT,
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "broadcast_variables": {
        "variables": _honored("assigned, unless another partition of smp holds them"),
        "root_rank": _ROOT,
        "process_set": _PROCESS_SET,
        "inplace": Argument(Effect.NONE, "saves a copy in Horovod; the values are the same"),
    },
    "gpu_available": {
        "ext_base_name": _honored("False for other frameworks than tensorflow"),
        "verbose": Argument(Effect.NONE, "there is nothing to print"),
    },
    "grouped_allgather": {
        "tensors": _honored("each concatenated along axis 0"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "grouped_allreduce": {"tensors": _honored("reduced together"), **_REDUCTION, "process_set": _PROCESS_SET},
    "grouped_reducescatter": {
        "tensors": _honored("reduced together"),
        "device_dense": _DEVICE,
        "compression": _COMPRESSION,
        "op": _honored("Average (default) or Sum"),
        "process_set": _PROCESS_SET,
        **_SCALES,
    },
    "init": {
        "comm": _honored("the group: None, a list of ranks, a communicator of mpi4py, or a `Communicator`"),
        "process_sets": _honored("sets of ranks to register; `dynamic` has no effect"),
    },
    "local_rank_op": {"name": _honored("name of the tensor in a graph")},
    "local_size_op": {"name": _honored("name of the tensor in a graph")},
    "process_set_included_op": {
        "process_set_id": _honored("the id of the set"),
        "name": _honored("name of the tensor in a graph"),
    },
    "rank_op": {"name": _honored("name of the tensor in a graph")},
    "reducescatter": {
        "tensor": _honored("reduced; this rank's rows are returned"),
        "device_dense": _DEVICE,
        "compression": _COMPRESSION,
        "op": _honored("Average (default) or Sum"),
        "name": _NAME,
        "process_set": _PROCESS_SET,
        **_SCALES,
    },
    "remove_process_set": {"process_set": _honored("the set to remove")},
    "start_timeline": {
        "file_path": _honored("the file that rank 0 writes"),
        "mark_cycles": Argument(Effect.NONE, "there are no cycles: tensors are sent when they are ready"),
    },
    "size_op": {"process_set_id": _honored("the id of the set"), "name": _honored("name of the tensor in a graph")},
}
"""By function and argument. Functions without arguments are not listed."""
