"""Determine where the ranks meet, from the variables of the launcher.

| started by | rank and size from | ranks meet in |
|---|---|---|
| the library's own launcher | its variables `SMP_RANK`, `SMP_SIZE`, ... | the directory or address in `SMP_STORE` |
| mpirun, an mpi4py that loads the same MPI | the launcher's variables | mpi4py's allgather |
| mpirun, no such mpi4py, one machine | the same | a socket of this user, named after the launcher |
| mpirun, no such mpi4py, several machines | the same | `SMP_STORE` and `SMP_SECRET`, exported by the user |
| nothing of these | alone: rank 0 of 1 | nowhere |
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError, SMPDeadlockError, SMPError
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import RankInfo, read_rank_info, read_secret
from smdistributed.modelparallel.tensorflow._shared.ranks.errors import (
    MissingRanksError,
    RanksError,
    RankSettingError,
)
from smdistributed.modelparallel.tensorflow._shared.ranks.meeting import Rendezvous
from smdistributed.modelparallel.tensorflow._shared.ranks.mpi_library import (
    MPIMismatchError,
    find_launcher,
    start_mpi,
)
from smdistributed.modelparallel.tensorflow._shared.ranks.store import Store


@contextmanager
def rank_errors() -> Generator[None]:
    """Convert errors of ranks that cannot connect into the library's exceptions."""
    try:
        yield
    except RankSettingError as error:
        raise SMPConfigurationError(str(error)) from error
    except MissingRanksError as error:
        raise SMPDeadlockError(str(error)) from error
    except RanksError as error:
        raise SMPError(str(error)) from error


@rank_errors()
def find_rendezvous(info: RankInfo, *, timeout_s: float) -> tuple[Rendezvous, Any]:
    """Return the rendezvous that the environment describes, see the table above. Collective.

    Returns:
        The rendezvous, and mpi4py's communicator if the ranks meet by it, else None.
    """
    where, host = os.environ.get("SMP_STORE", ""), os.environ.get("SMP_HOST", "")
    secret = read_secret(required=bool(where)) if info.size > 1 else b""
    if info.started_by in ("mpich", "openmpi") and not where:
        communicator = _mpi_communicator(info)
        if communicator is not None:
            return Rendezvous(info.rank, info.size, communicator.allgather, secret, host), communicator
    if info.size == 1:
        return Rendezvous(info.rank, info.size, lambda value: [value]), None
    if info.local_size != info.size and not where:
        raise SMPConfigurationError(
            f"{info.size} ranks run on several machines, {info.local_size} of them here, and there is no "
            "mpi4py for this mpirun to introduce them: install one, or export SMP_STORE=host:port (of rank 0) and "
            "SMP_SECRET (64 hexadecimal digits) to all ranks"
        )
    # Without a secret, only processes of this user can meet.
    store = Store(where or _launcher(info), info, secret=secret, name="smp", timeout_s=timeout_s)
    return Rendezvous(info.rank, info.size, store.allgather, secret, host, store.close), None


def blame_file(directory: str | Path, rank: int) -> Path:
    """Return the file by which a rank tells the launcher that it fails because of another rank."""
    return Path(directory) / f"blames.{rank}"


def blame_others() -> None:
    """Tell the launcher, if it is the library's own, that this rank fails because another rank is lost."""
    info = read_rank_info()
    directory = os.environ.get("SMP_REPORTS", "")
    if info.started_by == "smp" and directory.startswith("/"):
        with suppress(OSError):
            blame_file(directory, info.rank).touch()


def _mpi_communicator(info: RankInfo) -> Any:
    """Return mpi4py's communicator of all ranks; None, with a line from rank 0 that says why, if it cannot be used."""
    try:
        return start_mpi(find_launcher()).COMM_WORLD
    except ModuleNotFoundError:
        return None
    except (ImportError, MPIMismatchError) as error:
        if info.rank == 0:
            print(f"smp: ranks meet without mpi4py: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return None


def _launcher(info: RankInfo) -> str:
    """Return a path of the launcher: the nearest ancestor without the launcher's variables, the same for all ranks."""
    process = os.getppid()
    needle = b"\0" + info.rank_variable.encode() + b"="
    while process > 1:
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            break
        if needle not in b"\0" + environment:
            break
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return f"/proc/{process}/{started}"
