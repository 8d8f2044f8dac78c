"""Variables that have no effect any more once TensorFlow is imported, or the interpreter runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FROZEN_PREFIXES = (
    *("ABSL_", "BLIS_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "GOTO_", "GRPC_", "KERAS_", "KMP_", "LD_", "MALLOC_"),
    *("MKL_", "MKLDNN_", "NCCL_", "NPY_", "NUMPY_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "OPENSSL_"),
    *("PROTOCOL_BUFFERS_", "PYTHON", "SCIPY_", "TF2_", "TF_", "TPU_", "XLA_"),
)
"""Prefixes of variables that are read while a library is imported, or read once by C++ code."""

MADE_ANEW = frozenset({"PYTHONPATH", "TF_CONFIG"})
"""Variables that the script's process applies again, or that are read at run time."""

LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def difference(warm: Mapping[str, str], wanted: Mapping[str, str], *, also: Collection[str] = ()) -> str:
    """Return the first variable that a fresh interpreter would have read differently; empty if there is none.

    Args:
        warm: Environment with which the zygote was started.
        wanted: Environment that the script must have.
        also: Further names to compare: variables that the imports have set.
    """
    names = {name for name in (*warm, *wanted) if name.startswith(FROZEN_PREFIXES) or name in also} - MADE_ANEW
    for name in sorted(names):
        if warm.get(name) != wanted.get(name):
            return f"{name} is {wanted.get(name)!r} in the job and {warm.get(name)!r} where TensorFlow was imported"
    if _locale(warm) != _locale(wanted):
        return f"the locale is {_locale(wanted)!r} in the job and {_locale(warm)!r} where TensorFlow was imported"
    return ""


def _locale(variables: Mapping[str, str]) -> str:
    return next((variables[name] for name in LOCALE if variables.get(name)), "")
