"""Determine the rank of this process and the place where ranks meet, from the variables of the launcher.

| started by | rank and size from | ranks meet in |
|---|---|---|
| the library's own launcher | its variables `SMP_RANK`, `SMP_SIZE`, ... | the directory or address in `SMP_STORE` |
| mpirun, an mpi4py that loads the same MPI | the launcher's variables | mpi4py's allgather |
| mpirun, no such mpi4py, one machine | the same | a directory of this user, named after the launcher |
| mpirun, no such mpi4py, several machines | the same | `SMP_STORE` and `SMP_SECRET`, exported by the user |
| nothing of these | alone: rank 0 of 1 | nowhere |
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow._shared.mpi_library import MPIMismatchError, find_launcher, start_mpi
from smdistributed.modelparallel.tensorflow.world.encryption import encrypts
from smdistributed.modelparallel.tensorflow.world.stores import DirectoryStore, MPIStore, Store, TCPStore

__all__ = ["RankInfo", "Rendezvous", "blame_file", "blame_others", "find_rendezvous", "read_rank_info"]

_SECRET_BYTES = 32


@dataclass(frozen=True)
class RankInfo:
    """Rank and size of this process, from the environment."""

    started_by: str
    """`smp`, `mpich`, `openmpi` or `alone`."""
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


@dataclass(frozen=True)
class Rendezvous:
    """The information that a rank needs to connect to the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    secret: bytes
    """Known to the ranks of this job only."""
    store: Store
    host: str = "127.0.0.1"
    """The address of this machine, for ranks on others."""
    mpi: Any = None
    """mpi4py's communicator, if it was used."""


_VARIABLES = {
    # started by: rank, size, local rank, local size
    "smp": ("SMP_RANK", "SMP_SIZE", "SMP_LOCAL_RANK", "SMP_LOCAL_SIZE"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}


def read_rank_info(environment: Mapping[str, str] | None = None) -> RankInfo:
    """Return rank and size from the variables of the launcher.

    Raises:
        SMPConfigurationError: If a variable is not a number.
    """
    variables = os.environ if environment is None else environment
    for started_by, names in _VARIABLES.items():
        if names[0] not in variables or names[1] not in variables:
            continue
        rank, size = _number(variables, names[0]), _number(variables, names[1])
        # Without a local rank, assume that all ranks are on this machine.
        local_rank = _number(variables, names[2]) if names[2] in variables else rank
        local_size = _number(variables, names[3]) if names[3] in variables else size
        return RankInfo(started_by, rank, size, local_rank, local_size)
    return RankInfo("alone")


def find_rendezvous(*, timeout_s: float) -> Rendezvous:
    """Return the rendezvous that the environment describes, see the table above."""
    info = read_rank_info()
    host = os.environ.get("SMP_HOST", "")
    if info.started_by in ("mpich", "openmpi") and not os.environ.get("SMP_STORE"):
        communicator = _mpi_communicator(info)
        if communicator is not None:
            # A secret that all ranks were started with does not cross the network, as MPI's messages do.
            given = _secret_from_environment() if os.environ.get("SMP_SECRET") or encrypts() else b""
            secret = given or communicator.bcast(secrets.token_bytes(_SECRET_BYTES) if info.rank == 0 else None)
            return _rendezvous(info, secret, MPIStore(communicator), host, communicator)
    if info.size == 1:
        return _rendezvous(info, secrets.token_bytes(_SECRET_BYTES), _NobodyElse(), host)
    where = os.environ.get("SMP_STORE")
    if where:
        secret = _secret_from_environment()
        return _rendezvous(info, secret, _store_at(where, secret, info, timeout_s), host)
    if info.local_size != info.size:
        raise SMPConfigurationError(
            f"{info.size} ranks run on several machines, {info.local_size} of them here, and there is no "
            "mpi4py for this mpirun to introduce them: install one, or export SMP_STORE=host:port (of rank 0) and "
            "SMP_SECRET (64 hexadecimal digits) to all ranks"
        )
    return _rendezvous_below_launcher(info, timeout_s, host)


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


class _NobodyElse:
    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        del topic
        return [value]

    def close(self) -> None:
        pass


def _rendezvous(info: RankInfo, secret: bytes, store: Store, host: str, mpi: Any = None) -> Rendezvous:
    return Rendezvous(
        info.rank,
        info.size,
        info.local_rank,
        info.local_size,
        secret,
        store,
        host or _own_address(info),
        mpi,
    )


def _own_address(info: RankInfo) -> str:
    if info.local_size == info.size:
        return "127.0.0.1"
    return socket.gethostbyname(socket.gethostname())


def _number(variables: Mapping[str, str], name: str) -> int:
    try:
        return int(variables[name])
    except ValueError as error:
        raise SMPConfigurationError(f"{name} is {variables[name]!r}; allowed is an int") from error


def _secret_from_environment() -> bytes:
    text = os.environ.get("SMP_SECRET", "")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) < 16:
        raise SMPConfigurationError(
            "SMP_STORE or SMP_ENCRYPTION is set but SMP_SECRET is missing or too short: export at least 32 "
            "hexadecimal digits, the same to all ranks of this job and to nobody else"
        )
    return secret


def _store_at(where: str, secret: bytes, info: RankInfo, timeout_s: float) -> Store:
    if where.startswith("/"):
        return DirectoryStore(Path(where), rank=info.rank, size=info.size, timeout_s=timeout_s)
    host, colon, port = where.rpartition(":")
    if not colon or not port.isdecimal():
        raise SMPConfigurationError(f"SMP_STORE is {where!r}; allowed is host:port, or the path of a directory")
    return TCPStore(host, int(port), secret=secret, rank=info.rank, size=info.size, timeout_s=timeout_s)


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


def _rendezvous_below_launcher(info: RankInfo, timeout_s: float, host: str) -> Rendezvous:
    directory = _private_directory() / _launcher_name(_VARIABLES[info.started_by][0])
    directory.mkdir(mode=0o700, exist_ok=True)
    store = DirectoryStore(directory, rank=info.rank, size=info.size, timeout_s=timeout_s, is_owned=True)
    # Only this user's processes can read the directory.
    (secret, *_) = store.allgather("secret", secrets.token_bytes(_SECRET_BYTES))
    return _rendezvous(info, secret, store, host)


def _private_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"smp-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise SMPConfigurationError(
            f"{directory} must be a directory of this user with mode 0700, but it is not: remove it, or set TMPDIR"
        )
    return directory


def _launcher_name(variable: str) -> str:
    """Return a name of the launcher: the nearest ancestor without the launcher's variables, the same for all ranks."""
    process = os.getppid()
    needle = b"\0" + variable.encode() + b"="
    while process > 1:
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            break
        if needle not in b"\0" + environment:
            break
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{process}-{started}"
