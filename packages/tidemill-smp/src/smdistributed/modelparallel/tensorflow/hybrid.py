"""Horovod with the ranks of one partition, so that `hvd.rank()` is `smp.dp_rank()`.

Scripts call Horovod with lists of all gradients and all variables, of which each rank has its part. With
tidemill-horovod the group that is handed in says which variables are here; the functions of the real Horovod are
wrapped. Those that reduce sparse gradients are wrapped with either, since Horovod only concatenates the rows.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, tensorflow_variable
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import Session
from smdistributed.modelparallel.tensorflow.shared_rows import join_replicas, num_shared_rows, warn_of_unknown_rows
from smdistributed.modelparallel.tensorflow.world.communicator import Group

__all__ = ["HorovodGroup", "add_shared_rows", "pass_over_foreign", "require_horovod", "start_horovod"]

_local = threading.local()


class HorovodGroup:
    """The ranks of a partition, as `horovod.tensorflow.Communicator` wants them."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank = group.rank
        self.size = group.size

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """The sum or mean over the replicas."""
        return self._group.allreduce(array, op)

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all replicas."""
        return self._group.allgather(array)

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """The array of replica `root`."""
        return self._group.broadcast(array, root)

    def barrier(self) -> None:
        """Return when all replicas are here."""
        self._group.barrier()

    def holds(self, variable: Any) -> bool:
        """Whether the variable's value is here, and not in another partition."""
        return not is_foreign(variable)


def require_horovod(replicas: int) -> None:
    """Refuse several replicas that want Horovod where there is none, and a Horovod that the script has started.

    Raises:
        SMPConfigurationError: If so.
    """
    if replicas > 1 and not _is_installed():
        raise SMPConfigurationError(
            f"'horovod' is True and there are {replicas} replicas, but Horovod is not installed: install horovod or "
            "tidemill-horovod, or set 'ddp' instead of 'horovod' to have the library average gradients"
        )
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized() and horovod.size() != replicas:
        raise SMPConfigurationError(
            f"Horovod was started before smp.init() and counts {horovod.size()} processes, where there are {replicas} "
            "replicas: it would average over partitions. Leave hvd.init() out; smp.init() calls it"
        )


def start_horovod(session: Session) -> None:
    """Start Horovod, if it is installed; collective."""
    if not _is_installed():
        return
    horovod = importlib.import_module("horovod.tensorflow")
    if hasattr(horovod, "Communicator"):  # tidemill-horovod
        if not horovod.is_initialized():  # else by the script, with as many processes as replicas
            horovod.init(HorovodGroup(session.dp_group))
    else:
        horovod.init(comm=list(session.placement.dp_group))
        pass_over_foreign(horovod)
    add_shared_rows(horovod)


def _is_installed() -> bool:
    return importlib.util.find_spec("horovod") is not None


def pass_over_foreign(horovod: Any) -> None:
    """Have the functions of a `horovod.tensorflow` pass over what other partitions hold."""
    if not hasattr(horovod.allreduce, "__wrapped__"):
        horovod.allreduce = _passing_none(horovod.allreduce)
        horovod.broadcast_variables = _passing_foreign(horovod.broadcast_variables)
        if hasattr(horovod, "grouped_allreduce"):  # not in its older releases
            horovod.grouped_allreduce = _passing_nones(horovod.grouped_allreduce)


def add_shared_rows(horovod: Any) -> None:
    """Have the functions of a `horovod.tensorflow` add up rows of sparse gradients that all replicas share.

    Horovod concatenates all of them. It does so for other gradients than those of a step still.
    """
    if not hasattr(horovod.allreduce, "smp_adds"):
        horovod.allreduce = _adding(horovod.allreduce, horovod)
        if hasattr(horovod, "grouped_allreduce"):
            horovod.grouped_allreduce = _adding_several(horovod.grouped_allreduce, horovod)


def _adding(allreduce: Callable[..., Any], horovod: Any) -> Callable[..., Any]:
    @functools.wraps(allreduce)
    def allreduce_and_add(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_local, "is_reducing", False):
            return allreduce(tensor, *args, **kwargs)
        with _reducing():
            reduced = allreduce(tensor, *args, **kwargs)
        return _added(tensor, reduced, horovod)

    allreduce_and_add.smp_adds = True  # type: ignore[attr-defined]
    return allreduce_and_add


def _adding_several(grouped_allreduce: Callable[..., Any], horovod: Any) -> Callable[..., Any]:
    @functools.wraps(grouped_allreduce)
    def allreduce_and_add(tensors: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        given = list(tensors)
        with _reducing():
            reduced = grouped_allreduce(given, *args, **kwargs)
        return [_added(tensor, result, horovod) for tensor, result in zip(given, reduced, strict=True)]

    return allreduce_and_add


@contextmanager
def _reducing() -> Iterator[None]:
    """Inside, one of Horovod's functions may call another: what is reduced is added up once."""
    _local.is_reducing = True
    try:
        yield
    finally:
        _local.is_reducing = False


def _added(tensor: Any, reduced: Any, horovod: Any) -> Any:
    """Of what Horovod made of a sparse gradient, the rows of all replicas one after the other."""
    if not (isinstance(tensor, tf.IndexedSlices) and isinstance(reduced, tf.IndexedSlices)):
        return reduced
    rows = num_shared_rows(tensor)
    if rows is None and tracer() is None and horovod.size() > 1:
        warn_of_unknown_rows()
    if rows is None or (isinstance(rows, int) and rows == 0):
        return reduced
    sizes = tf.stack([tf.shape(tensor.indices)[0], tf.cast(rows, tf.int32)])
    replicas = horovod.size()
    counts = tf.ensure_shape(horovod.allgather(tf.expand_dims(sizes, 0)), [replicas, 2])
    values, indices = (tf.split(part, counts[:, 0], num=replicas) for part in (reduced.values, reduced.indices))
    return join_replicas(values, indices, tf.unstack(counts[:, 1]), reduced.dense_shape)


def _passing_none(allreduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(allreduce)
    def allreduce_or_none(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return None if tensor is None else allreduce(tensor, *args, **kwargs)

    return allreduce_or_none


def _passing_nones(grouped_allreduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(grouped_allreduce)
    def allreduce_held(tensors: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        given = list(tensors)
        held = [tensor for tensor in given if tensor is not None]
        reduced = iter(grouped_allreduce(held, *args, **kwargs) if held else [])
        return [None if tensor is None else next(reduced) for tensor in given]

    return allreduce_held


def _passing_foreign(broadcast_variables: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(broadcast_variables)
    def broadcast_held_variables(variables: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        # Horovod knows nothing of Keras 3, whose variables hold those of TensorFlow.
        held = [tensorflow_variable(variable) for variable in variables if not is_foreign(variable)]
        if held:
            return broadcast_variables(held, *args, **kwargs)
        return None if tf.executing_eagerly() else tf.no_op()

    return broadcast_held_variables
