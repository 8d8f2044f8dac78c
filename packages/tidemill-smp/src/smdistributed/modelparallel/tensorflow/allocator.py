"""Returns the memory of freed tensors to the operating system, so that a rank keeps little more than its own part.

glibc maps large blocks, and unmaps them when they are freed. But each time such a block is freed, glibc raises the
threshold for mapping, up to 32 MiB; smaller blocks stay in the heap of their thread. A rank would then keep gradients
and temporaries of the step before. A fixed threshold prevents that, at the cost of page faults:
`docs/measurements/model-parallelism.md` has the figures.
"""

import ctypes
import logging
import os
from collections.abc import Mapping

RETURN_VARIABLE = "SMP_RETURN_MEMORY"
"""Environment variable; `0` leaves malloc unchanged."""
_THRESHOLD_BYTES = 1 << 20
"""Blocks of this size are mapped, and unmapped when freed."""
_TRIM_BYTES = 16 << 20
"""Bytes of free memory to keep at the end of a heap. With glibc's default of 128 KiB, which a fixed threshold restores,
small tensors would cost a page fault for every 4 KiB in every step."""

_log = logging.getLogger("smdistributed.modelparallel")

_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
_TUNABLES = ("mmap_threshold", "trim_threshold", "mmap_max", "top_pad")
"""Settings of the user, each of which fixes the threshold."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def launch_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a launcher adds to the environment of a rank; none if the user has set malloc's.

    They set the thresholds and huge pages, which make mapping cheaper and can only be enabled when a process starts.
    """
    if _choice_of_user(environment):
        return {}
    own = {"mmap_threshold": _THRESHOLD_BYTES, "trim_threshold": _TRIM_BYTES}
    before = environment.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb=" not in before:
        own["hugetlb"] = 1
    words = [before] if before else []
    return {"GLIBC_TUNABLES": ":".join(words + [f"glibc.malloc.{name}={value}" for name, value in own.items()])}


def return_freed_memory() -> bool:
    """Set glibc's thresholds in this process, unless the user or the launcher has set them.

    Works regardless of how the process was started, and has no effect if malloc is not glibc's.
    """
    chosen = _choice_of_user(os.environ)
    if chosen:
        _log.info("smp: malloc is left unchanged: %s is set", chosen)
        return False
    libc = _glibc()
    if libc is None:
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES) and libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))


def _choice_of_user(variables: Mapping[str, str]) -> str:
    """Return the name of the variable with which the user has set malloc's thresholds; empty if none."""
    if variables.get(RETURN_VARIABLE) == "0":
        return RETURN_VARIABLE
    for name in _VARIABLES:
        if name in variables:
            return name
    tunables = variables.get("GLIBC_TUNABLES", "")
    return "GLIBC_TUNABLES" if any(f"glibc.malloc.{name}=" in tunables for name in _TUNABLES) else ""


def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc and provides `malloc`: LD_PRELOAD may have loaded another allocator."""
    try:
        libc, everything = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
        is_own = _address(libc.malloc) == _address(everything.malloc)
        return libc if is_own and hasattr(libc, "mallopt") else None
    except (OSError, AttributeError):
        return None


def _address(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
