"""Who this process is among the others, and where it meets them: told by whoever started it.

| started by | rank and size from | meets in |
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
from smdistributed.modelparallel.tensorflow.world.mpi_library import MPIMismatchError, find_launcher, start_mpi
from smdistributed.modelparallel.tensorflow.world.stores import DirectoryStore, MPIStore, Store, TCPStore

__all__ = ["Rendezvous", "Standing", "blame_file", "blame_others", "find_rendezvous", "read_standing"]

_SECRET_BYTES = 32


@dataclass(frozen=True)
class Standing:
    """What the environment says of this process."""

    started_by: str
    """`smp`, `mpich`, `openmpi` or `alone`."""
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


@dataclass(frozen=True)
class Rendezvous:
    """What a rank needs to connect with the others."""

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
    """mpi4py's communicator, where it was used."""


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


def read_standing(environment: Mapping[str, str] | None = None) -> Standing:
    """Rank and size as the variables of a launcher tell them.

    Raises:
        SMPConfigurationError: If they are no numbers.
    """
    variables = os.environ if environment is None else environment
    for started_by, names in _VARIABLES.items():
        if names[0] not in variables or names[1] not in variables:
            continue
        rank, size = _number(variables, names[0]), _number(variables, names[1])
        # Without word of the machine, all ranks are taken to be on this one.
        local_rank = _number(variables, names[2]) if names[2] in variables else rank
        local_size = _number(variables, names[3]) if names[3] in variables else size
        return Standing(started_by, rank, size, local_rank, local_size)
    return Standing("alone")


def find_rendezvous(*, timeout_s: float) -> Rendezvous:
    """Where this process meets the others, by what the environment says."""
    standing = read_standing()
    host = os.environ.get("SMP_HOST", "")
    if standing.started_by in ("mpich", "openmpi") and not os.environ.get("SMP_STORE"):
        communicator = _mpi_communicator(standing)
        if communicator is not None:
            secret = communicator.bcast(secrets.token_bytes(_SECRET_BYTES) if standing.rank == 0 else None)
            return _rendezvous(standing, secret, MPIStore(communicator), host, communicator)
    if standing.size == 1:
        return _rendezvous(standing, secrets.token_bytes(_SECRET_BYTES), _NobodyElse(), host)
    where = os.environ.get("SMP_STORE")
    if where:
        secret = _secret_from_environment()
        return _rendezvous(standing, secret, _store_at(where, secret, standing, timeout_s), host)
    if standing.local_size != standing.size:
        raise SMPConfigurationError(
            f"{standing.size} ranks run on several machines, {standing.local_size} of them here, and there is no "
            "mpi4py for this mpirun to introduce them: install one, or export SMP_STORE=host:port (of rank 0) and "
            "SMP_SECRET (64 hexadecimal digits) to all ranks"
        )
    return _meet_below_launcher(standing, timeout_s, host)


def blame_file(directory: str | Path, rank: int) -> Path:
    """What a rank leaves for the launcher when it fails because another one is gone."""
    return Path(directory) / f"blames.{rank}"


def blame_others() -> None:
    """Tell the launcher, if it is the library's own, that this rank fails because another one is gone."""
    standing = read_standing()
    directory = os.environ.get("SMP_STORE", "")
    if standing.started_by == "smp" and directory.startswith("/"):
        with suppress(OSError):
            blame_file(directory, standing.rank).touch()


class _NobodyElse:
    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        del topic
        return [value]

    def close(self) -> None:
        pass


def _rendezvous(standing: Standing, secret: bytes, store: Store, host: str, mpi: Any = None) -> Rendezvous:
    return Rendezvous(
        standing.rank,
        standing.size,
        standing.local_rank,
        standing.local_size,
        secret,
        store,
        host or _own_address(standing),
        mpi,
    )


def _own_address(standing: Standing) -> str:
    if standing.local_size == standing.size:
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
            "SMP_STORE is set but SMP_SECRET is missing or too short: export at least 32 hexadecimal digits, "
            "the same to all ranks of this job and to nobody else"
        )
    return secret


def _store_at(where: str, secret: bytes, standing: Standing, timeout_s: float) -> Store:
    if where.startswith("/"):
        return DirectoryStore(Path(where), rank=standing.rank, size=standing.size, timeout_s=timeout_s)
    host, colon, port = where.rpartition(":")
    if not colon or not port.isdecimal():
        raise SMPConfigurationError(f"SMP_STORE is {where!r}; allowed is host:port, or the path of a directory")
    return TCPStore(host, int(port), secret=secret, rank=standing.rank, size=standing.size, timeout_s=timeout_s)


def _mpi_communicator(standing: Standing) -> Any:
    """Return mpi4py's communicator of all ranks; None, with a line from rank 0 that says why, if it cannot be used."""
    try:
        return start_mpi(find_launcher()).COMM_WORLD
    except ModuleNotFoundError:
        return None
    except (ImportError, MPIMismatchError) as error:
        if standing.rank == 0:
            print(f"smp: ranks meet without mpi4py: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return None


def _meet_below_launcher(standing: Standing, timeout_s: float, host: str) -> Rendezvous:
    directory = _private_directory() / _launcher_name(_VARIABLES[standing.started_by][0])
    directory.mkdir(mode=0o700, exist_ok=True)
    store = DirectoryStore(directory, rank=standing.rank, size=standing.size, timeout_s=timeout_s, is_ours=True)
    # The directory is the user's own, so what lies there is known to the user's processes only.
    (secret, *_) = store.allgather("secret", secrets.token_bytes(_SECRET_BYTES))
    return _rendezvous(standing, secret, store, host)


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
    """The nearest ancestor that does not have the launcher's variables is the launcher: the same for all ranks."""
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
