"""Check that the launcher of this process and the MPI library that mpi4py loads belong to the same MPI.

Importing `mpi4py.MPI` initializes MPI, which fails with the library of another vendor: MPICH below Open MPI's mpirun
aborts the process, and Open MPI below MPICH's mpirun starts as a job of one process. So this module first loads the
library, reads its name, and initializes it only if it belongs to the launcher.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RanksError

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_CHOICES = ("MPI4PY_LIBMPI", "MPI4PY_MPIABI")
"""Environment variables by which users choose the library that mpi4py's wheels load."""


class MPIMismatchError(RanksError):
    """The launcher and mpi4py belong to different MPIs."""


@dataclass(frozen=True)
class MpiLauncher:
    """MPI launcher, as found in the environment variables of the processes that it starts."""

    vendor: str
    """`Open MPI`; `MPICH`, also for MPIs that share its launcher; or empty for a resource manager of several MPIs."""
    size: int | None
    """Number of processes in the job; None if it is unknown."""


def find_launcher(environment: Mapping[str, str] | None = None) -> MpiLauncher | None:
    """Return the MPI launcher that started this process, or None.

    Args:
        environment: Variables of the process. Default: its own.
    """
    variables = os.environ if environment is None else environment
    sizes = [variables[name] for name in _SIZES if name in variables]
    if not sizes and not {"PMI_RANK", "PMIX_RANK"} & set(variables):
        return None
    size = int(sizes[0]) if sizes and sizes[0].isdecimal() else None
    # MPICH's process manager, Hydra, sets HYDI_CONTROL_FD for its own use. PMI_SIZE is no proof of MPICH, because Slurm
    # sets it too. Open MPI's names with PMI_SIZE are no proof either: a platform may set them under MPICH, because
    # scripts read them. In these cases any library is accepted.
    if "HYDI_CONTROL_FD" in variables:
        return MpiLauncher("MPICH", size)
    is_open_mpi = "OMPI_COMM_WORLD_SIZE" in variables and "PMI_SIZE" not in variables
    return MpiLauncher("Open MPI" if is_open_mpi else "", size)


def start_mpi(launcher: MpiLauncher | None) -> Any:
    """Load the launcher's MPI library, initialize it, and return `mpi4py.MPI`.

    Args:
        launcher: The launcher of this process; None accepts any library.

    Raises:
        ImportError: If mpi4py is not installed, or finds no MPI library.
        MPIMismatchError: If mpi4py loads a library that does not belong to the launcher. MPI is then not initialized,
            unless the script has initialized it before.
    """
    mpi = _load(launcher)
    name = _name_of(mpi.Get_library_version())
    if launcher is not None and launcher.vendor and launcher.vendor != _family(name):
        raise MPIMismatchError(_mismatch(launcher.vendor, name))
    _initialize(mpi)
    if launcher is not None and launcher.size not in (None, mpi.COMM_WORLD.Get_size()):
        raise MPIMismatchError(
            f"the launcher started {launcher.size} processes, but mpi4py, which loads {name}, counts "
            f"{mpi.COMM_WORLD.Get_size()}: start the job with the mpirun of {_family(name)}, or install an mpi4py for "
            "the MPI that the launcher belongs to"
        )
    return mpi


def _load(launcher: MpiLauncher | None) -> Any:
    if "mpi4py.MPI" in sys.modules:
        return sys.modules["mpi4py.MPI"]
    options = importlib.import_module("mpi4py").rc
    before = options.initialize, options.finalize
    options.initialize = False
    if options.finalize is None:
        options.finalize = True  # None would mean: not initialized at import, so not finalized at exit
    try:
        with _library_of(launcher):
            return importlib.import_module("mpi4py.MPI")
    except RuntimeError as error:  # "cannot load MPI library"
        raise ImportError(str(error)) from error
    finally:
        options.initialize, options.finalize = before


@contextmanager
def _library_of(launcher: MpiLauncher | None) -> Generator[None]:
    """Make mpi4py's wheels, which support several MPIs, load the library beside the launcher."""
    library = _library_beside(launcher)
    if library is None or any(name in os.environ for name in _CHOICES):
        yield
        return
    os.environ[_CHOICES[0]] = str(library)
    try:
        yield
    finally:
        del os.environ[_CHOICES[0]]


def _library_beside(launcher: MpiLauncher | None) -> Path | None:
    if launcher is None or launcher.vendor != "Open MPI":
        return None
    directories = [Path(os.environ["OMPI_LIBDIR_LOC"])] if "OMPI_LIBDIR_LOC" in os.environ else []
    if "OPAL_PREFIX" in os.environ:
        directories.append(Path(os.environ["OPAL_PREFIX"]) / "lib")
    found = [directory / "libmpi.so.40" for directory in directories]
    return next((library for library in found if library.is_file()), None)


def _initialize(mpi: Any) -> None:
    if mpi.Is_initialized():
        return
    options = importlib.import_module("mpi4py").rc
    if options.threads:
        mpi.Init_thread(getattr(mpi, f"THREAD_{options.thread_level.upper()}"))
    else:
        mpi.Init()


def _name_of(version: str) -> str:
    """Return the first line of `MPI_Get_library_version`, up to the first comma."""
    return " ".join(version.partition("\n")[0].partition(",")[0].replace("\0", "").split())


def _family(name: str) -> str:
    # Intel MPI, MVAPICH and Cray MPI use the launch protocol of MPICH; Spectrum MPI is based on Open MPI.
    return "Open MPI" if name.startswith(("Open MPI", "Spectrum MPI", "IBM Spectrum")) else "MPICH"


def _mismatch(vendor: str, name: str) -> str:
    return (
        f"the mpirun of {vendor} started this process, but mpi4py loads {name}: start the job with the mpirun of "
        f"{_family(name)}, or have mpi4py load {vendor} (export MPI4PY_LIBMPI=/path/to/its/libmpi.so for a wheel of "
        f"mpi4py >= 4.1, else install an mpi4py built for {vendor})"
    )
