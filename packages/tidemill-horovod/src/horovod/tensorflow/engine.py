"""The native engine of this process: a thread that runs the collectives that the coordinator on rank 0 orders.

Ranks run the ops of a graph in any order. Each op passes its tensor to the engine and returns TensorFlow's thread. When
a tensor is ready on all ranks, the coordinator has all ranks reduce it, together with other tensors of its dtype. All
ranks follow the same order, so no order of ops can deadlock the ranks.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow import mesh
from horovod.tensorflow._shared.ranks.errors import RanksError, RankSettingError
from horovod.tensorflow._shared.ranks.meeting import Rendezvous
from horovod.tensorflow._shared.tensorflow_types import Tensor
from horovod.tensorflow.host import collective_of
from horovod.tensorflow.native_library import load_native_library

_LOG = logging.getLogger("horovod")
_SLOWER = (
    "horovod: the C API of TensorFlow %s has no kernels, so collectives are Python functions, which copy tensors and "
    "occupy a thread of TensorFlow each; gradients are sent together after the backward pass. From 2.6 on they are a "
    "native op"
)
_WAITING = (
    "horovod: the C API of TensorFlow %s has no asynchronous kernels, so each collective occupies a thread of "
    "TensorFlow while it waits; gradients are sent together after the backward pass. From 2.15 on they are sent during "
    "the backward pass"
)
_WAITING_THREADS = "64"
"""Inter-op threads where collectives occupy them. If there are fewer than collectives that may run at the same time,
ranks that begin these in different orders wait for each other for ever."""
_TEXT_BYTES = 1024
_DEFAULT_FUSION_BYTES = 64 << 20


@dataclass(frozen=True)
class CollectiveEngine:
    """A started engine."""

    collective: Callable[..., Sequence[Tensor]]
    """The native op, or a function with its arguments."""
    is_op: bool
    """Whether it is the native op: then TensorFlow knows its gradient."""
    is_asynchronous: bool
    """Whether a collective in a graph occupies no thread of TensorFlow while it waits for other ranks."""
    hosts: tuple[str, ...]
    """By rank, the name of its machine."""


def start_engine(rendezvous: Rendezvous) -> CollectiveEngine:
    """Connect this rank to the others and start its engine. Collective.

    Args:
        rendezvous: How the ranks find each other.

    Environment: `HOROVOD_START_TIMEOUT` (120 s), `HOROVOD_STALL_CHECK_TIME_SECONDS` (60 s; 0 for no warning),
    `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` (600 s; 0 for never), `HOROVOD_FUSION_THRESHOLD` (64 MiB).

    Raises:
        RanksError: If a rank cannot load the native library, or does not connect in time.
    """
    library = load_native_library()
    functions: ctypes.CDLL = library.functions
    memory_bytes = 0 if functions is None else _memory_bytes(functions, rendezvous.size)
    made = mesh.connect(
        rendezvous,
        memory_bytes=memory_bytes,
        problem="" if functions is not None else library.source,
        timeout_s=start_timeout_s(),
    )
    problem = ctypes.create_string_buffer(_TEXT_BYTES)
    descriptors = ctypes.c_int * rendezvous.size
    started = functions.tidemill_horovod_start(
        rendezvous.rank,
        rendezvous.size,
        "\n".join(made.names).encode(),
        descriptors(*made.control),
        descriptors(*made.data),
        made.memory,
        ctypes.c_double(_number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0)),
        ctypes.c_double(_number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 600.0) or 1e9),
        ctypes.c_int64(int(_number("HOROVOD_FUSION_THRESHOLD", _DEFAULT_FUSION_BYTES))),
        problem,
        ctypes.c_size_t(_TEXT_BYTES),
    )
    if started != 0:
        raise RanksError(problem.value.decode(errors="replace"))
    atexit.register(stop_engine)
    ops: Any = library.ops
    if ops is None:
        engine = CollectiveEngine(collective_of(functions), False, False, made.hosts)
    else:
        is_asynchronous = bool(functions.tidemill_horovod_is_asynchronous())
        engine = CollectiveEngine(ops.horovod_collective, True, is_asynchronous, made.hosts)
    if not engine.is_asynchronous:
        # Sessions, and the eager runtime if it has not begun, read it when they make their pool of threads.
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", _WAITING_THREADS)
        if rendezvous.rank == 0:
            _LOG.warning(_SLOWER if ops is None else _WAITING, tf.__version__)
    return engine


def start_timeout_s() -> float:
    """Return the time limit of `hvd.init`, in seconds."""
    return _number("HOROVOD_START_TIMEOUT", 120.0)


def stop_engine() -> None:
    """Stop the engine; collectives that wait in it fail."""
    atexit.unregister(stop_engine)
    functions: ctypes.CDLL = load_native_library().functions
    functions.tidemill_horovod_stop()


def _memory_bytes(functions: ctypes.CDLL, size: int) -> int:
    functions.tidemill_horovod_memory.restype = ctypes.c_size_t
    return int(functions.tidemill_horovod_memory(size))


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        number = float(text or default)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise RankSettingError(f"{variable} is {text!r}; allowed is a number >= 0")
    return number
