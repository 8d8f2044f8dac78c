"""The timeline: a file in Chrome's trace format with the collectives of rank 0, for `chrome://tracing` or Perfetto."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from horovod.tensorflow.native_library import load_native_library
from horovod.tensorflow.process import current_engine, rank, size

_TEXT_BYTES = 1024
_is_started = False
"""On all ranks, although only rank 0 writes: a second start is refused on all of them, so that none goes on alone."""


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record when rank 0's tensors wait for other ranks (`NEGOTIATE_ALLREDUCE`) and are sent (`ALLREDUCE`).

    Args:
        file_path: File to write, on rank 0; other ranks write none. A directory must exist. With one rank, which sends
            nothing, the file has no events.
        mark_cycles: Without effect: tensors are sent when they are ready, not in cycles.

    Raises:
        ValueError: If the file cannot be written, a timeline has been started already, or the ranks communicate by a
            `Communicator` that exchanges arrays only.
    """
    global _is_started
    del mark_cycles
    engine = current_engine()
    if _is_started:
        raise ValueError("hvd.start_timeline: a timeline has been started already: call hvd.stop_timeline() first")
    if engine is None and size() > 1:
        raise ValueError(
            "hvd.start_timeline: the communicator of this group only exchanges arrays; profile with TensorFlow"
        )
    if rank() == 0:
        if engine is None:
            _write_none(file_path)
        else:
            _write_events(file_path)
    _is_started = True


def stop_timeline() -> None:
    """Complete the file of `start_timeline`. Does nothing if there is none."""
    global _is_started
    _is_started = False
    if current_engine() is not None:
        functions: ctypes.CDLL = load_native_library().functions
        functions.tidemill_horovod_stop_timeline()


def start_from_environment() -> None:
    """Start the timeline that `HOROVOD_TIMELINE` names, after `hvd.init`; `DYNAMIC` leaves it to the script."""
    path = os.environ.get("HOROVOD_TIMELINE", "")
    if path and path != "DYNAMIC":
        start_timeline(path)


def _write_none(file_path: str) -> None:
    try:
        Path(file_path).write_text("[]\n")
    except OSError as error:
        raise ValueError(f"hvd.start_timeline: {error}") from error


def _write_events(file_path: str) -> None:
    problem = ctypes.create_string_buffer(_TEXT_BYTES)
    functions: ctypes.CDLL = load_native_library().functions
    started = functions.tidemill_horovod_start_timeline(
        os.fspath(file_path).encode(), problem, ctypes.c_size_t(_TEXT_BYTES)
    )
    if started != 0:
        raise ValueError(f"hvd.start_timeline: {problem.value.decode(errors='replace')}")
