"""The effect of every argument of every public function: honored, or without effect.

Arguments without effect change no result in Horovod either: names and hints about speed. A test compares the table with
the signatures, and calls every function with every argument.
"""

from collections.abc import Mapping

from argument_effects import ArgumentRow, honored, without_effect

_PROCESS_SET = honored("the ranks that take part; None for all")
_SESSION = without_effect("objects go through a session of their own")
_DEVICE = without_effect("tensors go through the memory of the host")
_NAME = honored("name of the op in a graph; ranks match calls by it")
_SCOPE = without_effect("name scopes are no part of the names by which ranks match calls")
_LABEL = honored("ranks match calls by it")
_GROUPING = without_effect("gradients that are ready together are sent together")
_KEPT_NAME = without_effect("the optimizer keeps its name, so that checkpoints fit")
_ROOT = honored("the rank whose value all ranks get")
_COMPRESSION = honored("how floats are compressed while they are sent")
_SCALES = {
    "prescale_factor": honored("multiplied before the reduction"),
    "postscale_factor": honored("multiplied after the reduction"),
}
_LOCAL_SCALE = honored("whether gradients that stay on their rank are divided by the number of ranks")

_REDUCTION = {
    "average": honored("older form of `op`: True for Average, False for Sum"),
    "device_dense": _DEVICE,
    "device_sparse": _DEVICE,
    "compression": _COMPRESSION,
    "op": honored("Average (default), Sum, Adasum, Min, Max or Product"),
    **_SCALES,
}
_GRADIENTS = {
    "device_dense": _DEVICE,
    "device_sparse": _DEVICE,
    "compression": _COMPRESSION,
    "sparse_as_dense": honored("makes tf.IndexedSlices dense before the reduction"),
    "op": honored("Average (default), Sum or Adasum"),
    "gradient_predivide_factor": honored("with Average: divides before the sum and multiplies after it"),
    "num_groups": _GROUPING,
    "groups": _GROUPING,
    "process_set": _PROCESS_SET,
}
_TAPE = honored("the tape, before or after its recording")

ARGUMENTS: Mapping[str, Mapping[str, ArgumentRow]] = {
    "DistributedGradientTape": {"gradtape": _TAPE, **_GRADIENTS, "scale_local_gradients": _LOCAL_SCALE},
    "DistributedOptimizer": {
        "optimizer": honored("of Keras 3, tf_keras or tf.compat.v1.train; changed in place"),
        "name": _KEPT_NAME,
        "use_locking": without_effect("an argument of the optimizer itself"),
        **_GRADIENTS,
        "backward_passes_per_step": honored("calls whose gradients are summed first; 1 with tf.compat.v1.train"),
        "average_aggregated_gradients": honored("divides that sum by the number of calls"),
        "scale_local_gradients": _LOCAL_SCALE,
    },
    "PartialDistributedGradientTape": {
        "gradtape": _TAPE,
        **_GRADIENTS,
        "local_layers": honored("layers whose gradients stay on their rank"),
        "scale_local_gradients": _LOCAL_SCALE,
    },
    "add_process_set": {"process_set": honored("a ProcessSet, or a list of ranks")},
    "allgather": {
        "tensor": honored("concatenated along axis 0"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "allgather_object": {
        "obj": honored("anything that can be pickled"),
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "allreduce": {
        "tensor": honored("a tensor, tf.IndexedSlices, or None, which stays None"),
        **_REDUCTION,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "alltoall": {
        "tensor": honored("its rows are divided among the ranks"),
        "splits": honored("number of rows for each rank; None for equal numbers"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "barrier": {"process_set": _PROCESS_SET},
    "broadcast": {
        "tensor": honored("read on `root_rank`; gives dtype and shape on the others"),
        "root_rank": _ROOT,
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "broadcast_": {
        "variables": honored("assigned; their values are returned"),
        "root_rank": _ROOT,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "broadcast_global_variables": {"root_rank": _ROOT},
    "broadcast_object": {
        "obj": honored("anything that can be pickled; read on `root_rank` only"),
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
        "variables": honored("assigned, unless another partition of smp holds them"),
        "root_rank": _ROOT,
        "process_set": _PROCESS_SET,
        "inplace": without_effect("saves a copy in Horovod; the values are the same"),
    },
    "gpu_available": {
        "ext_base_name": honored("False for other frameworks than tensorflow"),
        "verbose": without_effect("there is nothing to print"),
    },
    "grouped_allgather": {
        "tensors": honored("each concatenated along axis 0"),
        "name": _NAME,
        "ignore_name_scope": _SCOPE,
        "process_set": _PROCESS_SET,
    },
    "grouped_allreduce": {"tensors": honored("reduced together"), **_REDUCTION, "process_set": _PROCESS_SET},
    "grouped_reducescatter": {
        "tensors": honored("reduced together"),
        "device_dense": _DEVICE,
        "compression": _COMPRESSION,
        "op": honored("Average (default) or Sum"),
        "process_set": _PROCESS_SET,
        **_SCALES,
    },
    "init": {
        "comm": honored("the group: None, a list of ranks, a communicator of mpi4py, or a `Communicator`"),
        "process_sets": honored("sets of ranks to register; `dynamic` has no effect"),
    },
    "local_rank_op": {"name": honored("name of the tensor in a graph")},
    "local_size_op": {"name": honored("name of the tensor in a graph")},
    "process_set_included_op": {
        "process_set_id": honored("the id of the set"),
        "name": honored("name of the tensor in a graph"),
    },
    "rank_op": {"name": honored("name of the tensor in a graph")},
    "reducescatter": {
        "tensor": honored("reduced; this rank's rows are returned"),
        "device_dense": _DEVICE,
        "compression": _COMPRESSION,
        "op": honored("Average (default) or Sum"),
        "name": _NAME,
        "process_set": _PROCESS_SET,
        **_SCALES,
    },
    "remove_process_set": {"process_set": honored("the set to remove")},
    "start_timeline": {
        "file_path": honored("the file that rank 0 writes"),
        "mark_cycles": without_effect("there are no cycles: tensors are sent when they are ready"),
    },
    "size_op": {"process_set_id": honored("the id of the set"), "name": honored("name of the tensor in a graph")},
}
"""By function and argument. Functions without arguments are not listed."""
