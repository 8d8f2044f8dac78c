"""Runs Horovod over the ranks with the same partition, so that `hvd.rank()` equals `smp.dp_rank()`.

Scripts call Horovod with the lists of all gradients and all variables, of which each rank holds a part. With
tidemill-horovod, the group passed to `horovod.init` tells which variables are local; with Horovod itself, its functions
are wrapped. With either one, functions that reduce sparse gradients are wrapped, because Horovod only concatenates
their rows.
"""

import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, GraphOperation, Tensor, Variable
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.shared_rows import join_replicas, num_shared_rows, warn_of_unknown_rows
from smdistributed.modelparallel.tensorflow.variables import is_remote, tensorflow_variable
from smdistributed.modelparallel.tensorflow.world.group import Group

_local = threading.local()


class _Horovod(Protocol):
    """The functions of a `horovod.tensorflow` that are called and wrapped here."""

    allreduce: Callable[..., Any]
    broadcast_variables: Callable[..., Any]
    grouped_allreduce: Callable[..., Any]

    def allgather(self, tensor: Tensor) -> Tensor: ...
    def size(self) -> int: ...


class HorovodGroup(Group):
    """The ranks with the same partition: a `horovod.tensorflow.Communicator`.

    A group of its own, so that calls of Horovod are not mixed up with those of this library.
    """

    can_connect = True
    """True: the ranks are processes between which Horovod may open its own connections."""

    def __init__(self, session: RankSession) -> None:
        super().__init__(session.world, session.dp_group.ranks, "Horovod")

    def holds(self, variable: Variable) -> bool:
        """Return whether this rank, and not another partition, holds the value of the variable.

        Args:
            variable: Of Keras or TensorFlow.
        """
        return not is_remote(variable)


def require_horovod(replicas: int) -> None:
    """Check that several replicas can use Horovod.

    Raises:
        SMPConfigurationError: If Horovod is not installed, or the script initialized it over all processes.
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


def start_horovod(session: RankSession) -> None:
    """Initialize Horovod if it is installed; collective.

    Args:
        session: The session of this process.
    """
    if not _is_installed():
        return
    horovod: Any = importlib.import_module("horovod.tensorflow")
    if hasattr(horovod, "Communicator"):  # tidemill-horovod
        if not horovod.is_initialized():  # the script may have done it, with as many processes as replicas
            horovod.init(HorovodGroup(session))
    else:
        horovod.init(comm=list(session.placement.dp_group))
        pass_over_remote(horovod)
    add_shared_rows(horovod)


def _is_installed() -> bool:
    return importlib.util.find_spec("horovod") is not None


def pass_over_remote(horovod: _Horovod) -> None:
    """Wrap the functions of a `horovod.tensorflow` to skip variables and gradients of other partitions.

    Args:
        horovod: The module; changed in place, once.
    """
    if not hasattr(horovod.allreduce, "__wrapped__"):
        horovod.allreduce = _passing_none(horovod.allreduce)
        horovod.broadcast_variables = _passing_remote(horovod.broadcast_variables)
        if hasattr(horovod, "grouped_allreduce"):  # missing in older releases
            horovod.grouped_allreduce = _passing_nones(horovod.grouped_allreduce)


def add_shared_rows(horovod: _Horovod) -> None:
    """Wrap the functions of a `horovod.tensorflow` to sum the rows of sparse gradients that all replicas share.

    Horovod concatenates all rows. Gradients that do not come from a step are still concatenated.

    Args:
        horovod: The module; changed in place, once.
    """
    if not hasattr(horovod.allreduce, "smp_adds"):
        horovod.allreduce = _adding(horovod.allreduce, horovod)
        if hasattr(horovod, "grouped_allreduce"):
            horovod.grouped_allreduce = _adding_several(horovod.grouped_allreduce, horovod)


def _adding(allreduce: Callable[..., Any], horovod: _Horovod) -> Callable[..., Any]:
    @functools.wraps(allreduce)
    def allreduce_and_add(tensor: Gradient, *args: object, **kwargs: object) -> Gradient:
        if getattr(_local, "is_reducing", False):
            return allreduce(tensor, *args, **kwargs)
        with _reducing():
            reduced = allreduce(tensor, *args, **kwargs)
        return _added(tensor, reduced, horovod)

    allreduce_and_add.smp_adds = True  # type: ignore[attr-defined]
    return allreduce_and_add


def _adding_several(grouped_allreduce: Callable[..., Any], horovod: _Horovod) -> Callable[..., Any]:
    @functools.wraps(grouped_allreduce)
    def allreduce_and_add(tensors: Iterable[Any], *args: object, **kwargs: object) -> list[Any]:
        given = list(tensors)
        with _reducing():
            reduced = grouped_allreduce(given, *args, **kwargs)
        return [_added(tensor, result, horovod) for tensor, result in zip(given, reduced, strict=True)]

    return allreduce_and_add


def _reducing() -> Patch:
    """Return a context that prevents summing twice if one of Horovod's wrapped functions calls another."""
    return Patch(_local, "is_reducing", True)


def _added(tensor: Gradient, reduced: Gradient, horovod: _Horovod) -> Gradient:
    """Sum the shared rows in the sparse gradient that Horovod concatenated from all replicas."""
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
    def allreduce_or_none(tensor: Gradient | None, *args: object, **kwargs: object) -> Gradient | None:
        return None if tensor is None else allreduce(tensor, *args, **kwargs)

    return allreduce_or_none


def _passing_nones(grouped_allreduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(grouped_allreduce)
    def allreduce_held(tensors: Iterable[Any], *args: object, **kwargs: object) -> list[Any]:
        given = list(tensors)
        held = [tensor for tensor in given if tensor is not None]
        reduced = iter(grouped_allreduce(held, *args, **kwargs) if held else [])
        return [None if tensor is None else next(reduced) for tensor in given]

    return allreduce_held


def _passing_remote(broadcast_variables: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(broadcast_variables)
    def broadcast_held_variables(
        variables: Iterable[Variable], *args: object, **kwargs: object
    ) -> GraphOperation | None:
        # Horovod accepts tf.Variables only, which the variables of Keras 3 contain.
        held = [tensorflow_variable(variable) for variable in variables if not is_remote(variable)]
        if held:
            return broadcast_variables(held, *args, **kwargs)
        return None if tf.executing_eagerly() else tf.no_op()

    return broadcast_held_variables
