"""How ranks find each other: through tidemill's launcher, or through a communicator that they already have."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from horovod.tensorflow import pmi
from horovod.tensorflow._shared.ranks.environment import read_rank_info, read_secret
from horovod.tensorflow._shared.ranks.errors import MissingRanksError, RanksError
from horovod.tensorflow._shared.ranks.meeting import Rendezvous
from horovod.tensorflow._shared.ranks.store import Store
from horovod.tensorflow.communicator import Communicator

_numbers = itertools.count(1)
"""Distinguishes the calls of `hvd.init` in one launch."""


@contextmanager
def init_errors() -> Generator[None]:
    """Raise errors of ranks that cannot connect as those of `hvd.init`."""
    try:
        yield
    except MissingRanksError as error:
        raise RuntimeError(f"hvd.init(): {error} (HOROVOD_START_TIMEOUT sets the limit)") from error
    except RanksError as error:
        raise RuntimeError(f"hvd.init(): {error}") from error


def find_launched(*, timeout_s: float) -> Rendezvous | None:
    """Return the rendezvous of the ranks that tidemill's launcher started; None for a process that it did not start.

    Collective.

    Args:
        timeout_s: Time limit of each exchange, in seconds.

    Raises:
        RanksError: If a variable of the launcher is missing or malformed, or the ranks do not find each other.
    """
    info = read_rank_info()
    if info.started_by != "smp" or info.size == 1:
        return None
    secret = read_secret(required=True)
    name = f"horovod.{next(_numbers)}"
    store = Store(os.environ.get("SMP_STORE", ""), info, secret=secret, name=name, timeout_s=timeout_s)
    return Rendezvous(info.rank, info.size, store.allgather, secret, os.environ.get("SMP_HOST", ""), store.close)


def meet_by(communicator: Communicator) -> Rendezvous:
    """Return the rendezvous of the members of a communicator.

    Raises:
        RanksError: If connections are to be encrypted, but cannot be.
    """

    def allgather(value: bytes) -> list[bytes]:
        gathered = communicator.allgather(np.frombuffer(value, np.uint8))
        return [np.asarray(array, np.uint8).tobytes() for array in gathered]

    return _met(communicator.rank, communicator.size, allgather)


def meet_by_mpi(communicator: Any) -> Rendezvous:
    """Return the rendezvous of the members of a communicator of mpi4py; raises like `meet_by`."""
    return _met(communicator.Get_rank(), communicator.Get_size(), communicator.allgather)


def meet_by_pmi() -> Rendezvous:
    """Return the rendezvous of the processes of MPICH's mpirun, through its process manager; raises like `meet_by`."""
    manager = pmi.process_manager()
    return _met(manager.rank, manager.size, manager.allgather)


def _met(rank: int, size: int, allgather: Callable[[bytes], list[bytes]]) -> Rendezvous:
    return Rendezvous(rank, size, allgather, read_secret(required=False), os.environ.get("SMP_HOST", ""))
