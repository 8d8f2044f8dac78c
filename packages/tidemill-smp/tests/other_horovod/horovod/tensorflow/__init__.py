"""Imitation of `horovod.tensorflow` by its public documentation, to test a Horovod other than tidemill-horovod.

It is as strict as Horovod: `init` requires the ranks of the group as a list, None cannot be reduced, and variables are
tf.Variables. Its arrays use the data-parallel group of `smp`. `handed_in` records the arguments of its calls.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

Average, Sum = "Average", "Sum"

handed_in: dict[str, Any] = {"broadcast": [], "reduced": []}
_ranks: list[int] | None = None


class Compression:
    """Formats in which tensors are sent."""

    none = "none"


def init(comm: Any = None, process_sets: Any = None) -> None:
    global _ranks
    assert process_sets is None
    assert isinstance(comm, list) and all(isinstance(rank, int) for rank in comm), comm
    assert int(os.environ["SMP_RANK"]) in comm
    _ranks = comm


def is_initialized() -> bool:
    return _ranks is not None


def rank() -> int:
    return _initialized().index(int(os.environ["SMP_RANK"]))


def size() -> int:
    return len(_initialized())


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> Any:
    del device_dense, device_sparse, compression, prescale_factor, postscale_factor
    means = "sum" if op == Sum or average is False else "mean"
    if isinstance(tensor, tf.IndexedSlices):
        values, indices = (allgather(part) for part in (tensor.values, tensor.indices))
        return tf.IndexedSlices(values / (size() if means == "mean" else 1), indices, tensor.dense_shape)
    if tensor is None:
        raise ValueError("None values not supported.")
    handed_in["reduced"].append(name)
    return _op(lambda group, array: group.allreduce(array, means), tensor, tensor.shape)


def grouped_allreduce(tensors: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
    if not tensors or any(tensor is None for tensor in tensors):
        raise ValueError("None values not supported.")
    return [allreduce(tensor, *args, **kwargs) for tensor in tensors]


def allgather(tensor: Any, name: str | None = None) -> Any:
    del name
    return _op(lambda group, array: np.concatenate(group.allgather(array)), tensor, [None, *tensor.shape[1:]])


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    del name
    return _op(lambda group, array: group.broadcast(array, root_rank), tensor, tensor.shape)


def broadcast_variables(variables: Any, root_rank: int, process_set: Any = None, inplace: bool = False) -> Any:
    assert process_set is None
    handed_in["broadcast"].append(("in place" if inplace else "", root_rank, len(variables)))
    assigned = []
    for variable in variables:
        assert isinstance(variable, tf.Variable), variable
        assigned.append(variable.assign(broadcast(variable.read_value(), root_rank)))
    return None if tf.executing_eagerly() else tf.group(*assigned)


class _Tape(tf.GradientTape):
    def __init__(self, tape: tf.GradientTape) -> None:
        self.__dict__ = tape.__dict__

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None) -> Any:
        gradients = super().gradient(target, sources, output_gradients)
        return [None if gradient is None else allreduce(gradient, op=Average) for gradient in gradients]


def DistributedGradientTape(gradtape: tf.GradientTape, op: Any = Average, sparse_as_dense: bool = False) -> Any:
    assert op == Average
    assert not sparse_as_dense
    return _Tape(gradtape)


def _initialized() -> list[int]:
    if _ranks is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _ranks


def _op(work: Any, tensor: Any, shape: Any) -> Any:
    from smdistributed.modelparallel.tensorflow import session

    _initialized()
    dense = tf.convert_to_tensor(tensor)

    def call(value: Any) -> Any:
        return np.asarray(work(session.current().dp_group, np.asarray(value)), dense.dtype.as_numpy_dtype)

    result = tf.numpy_function(call, [dense], dense.dtype)
    result.set_shape(shape)
    return result
