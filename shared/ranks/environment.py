"""Read the environment variables that tell a process its rank, the job's secret, and whether to encrypt."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..encryption.certificate import find_obstacle  # noqa: TID252 - the package above has another name in each copy
from .errors import RankSettingError

_ENCRYPTION_VARIABLE = "SMP_ENCRYPTION"
"""`1` puts TLS around every TCP connection between ranks; `0` (default) does not."""
_SECRET_VARIABLE = "SMP_SECRET"  # noqa: S105 - a name
_SECRET_BYTES = 16
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


@dataclass(frozen=True)
class RankInfo:
    """Rank and size of this process, from the environment."""

    started_by: str
    """`smp` (tidemill's launcher), `mpich`, `openmpi` or `alone`."""
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def rank_variable(self) -> str:
        """The environment variable with the rank; only for processes that a launcher started."""
        return _VARIABLES[self.started_by][0]


def read_rank_info() -> RankInfo:
    """Return rank and size from the variables of the launcher.

    Raises:
        RankSettingError: If a variable is not a number.
    """
    for started_by, (rank_name, size_name, local_rank_name, local_size_name) in _VARIABLES.items():
        if rank_name not in os.environ or size_name not in os.environ:
            continue
        rank, size = _number(rank_name), _number(size_name)
        # Without a local rank, assume that all ranks are on this machine.
        local_rank = _number(local_rank_name) if local_rank_name in os.environ else rank
        local_size = _number(local_size_name) if local_size_name in os.environ else size
        return RankInfo(started_by, rank, size, local_rank, local_size)
    return RankInfo("alone")


def encrypts() -> bool:
    """Return whether TCP connections between ranks are encrypted.

    Raises:
        RankSettingError: If the variable has another value than 0 and 1, or a package for TLS is missing.
    """
    value = os.environ.get(_ENCRYPTION_VARIABLE, "0")
    if value not in ("", "0", "1"):
        raise RankSettingError(f"{_ENCRYPTION_VARIABLE} is {value!r}; allowed is 0 or 1")
    obstacle = find_obstacle() if value == "1" else ""
    if obstacle:
        raise RankSettingError(f"{_ENCRYPTION_VARIABLE} is 1: {obstacle}")
    return value == "1"


def read_secret(*, required: bool) -> bytes:
    """Return the secret with which all ranks were started; also checks whether this rank can encrypt.

    Args:
        required: Whether the ranks need a secret to meet. They always need one to encrypt.

    Returns:
        At least 16 bytes; empty if there is no secret and none is needed.

    Raises:
        RankSettingError: If the secret is needed and missing, or malformed; or as `encrypts`.
    """
    text = os.environ.get(_SECRET_VARIABLE, "")
    if not encrypts() and not required and not text:
        return b""
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise RankSettingError(
            f"{_SECRET_VARIABLE} has {len(text)} characters; allowed are at least {2 * _SECRET_BYTES} hexadecimal "
            "digits, the same for all ranks of this job and for nobody else: `openssl rand -hex 32` makes a new one. "
            f"SMP_STORE, {_ENCRYPTION_VARIABLE} and several machines need it"
        )
    return secret


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError as error:
        raise RankSettingError(f"{name} is {os.environ[name]!r}; allowed is an int") from error
