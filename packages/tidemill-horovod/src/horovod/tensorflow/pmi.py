"""Exchange bytes between the processes of MPICH's mpirun without MPI, through its process manager.

Python 3.7 has no wheel of mpi4py. The manager speaks PMI version 1: lines of text over a socket that each process
inherits, for a space of keys and values that all processes share.
"""

from __future__ import annotations

import atexit
import os
import socket
from functools import lru_cache

from horovod.tensorflow._shared.ranks.errors import RanksError

_DESCRIPTOR, _RANK, _SIZE = "PMI_FD", "PMI_RANK", "PMI_SIZE"
_PART_BYTES = 256
"""Values have at most 1,024 characters in MPICH; two of them are one byte here."""


def is_available() -> bool:
    """Return whether this process can reach the process manager of its mpirun."""
    return all(name in os.environ for name in (_DESCRIPTOR, _RANK, _SIZE))


@lru_cache(maxsize=1)
def process_manager() -> ProcessManager:
    """Return the process manager, to which a process may introduce itself only once."""
    return ProcessManager(int(os.environ[_DESCRIPTOR]))


class ProcessManager:
    """The process manager of this process's mpirun.

    Args:
        descriptor: The inherited socket.

    Raises:
        RanksError: If the manager does not speak this protocol.
    """

    def __init__(self, descriptor: int) -> None:
        self.rank, self.size = int(os.environ[_RANK]), int(os.environ[_SIZE])
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._lines = self._socket.makefile("r", encoding="ascii", newline="\n")
        self._exchanges = 0
        self._ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
        self._space = self._ask("get_my_kvsname", "my_kvsname")["kvsname"]
        atexit.register(self._ask, "finalize", "finalize_ack")  # without it, mpirun calls the exit abnormal

    def allgather(self, value: bytes) -> list[bytes]:
        """Return the values of all processes, by rank. Collective.

        Raises:
            RanksError: If the manager refuses or has ended.
        """
        self._exchanges += 1
        parts = [value[begin : begin + _PART_BYTES].hex() for begin in range(0, len(value), _PART_BYTES)]
        self._put(f"{self.rank}-parts", str(len(parts)))
        for number, part in enumerate(parts):
            self._put(f"{self.rank}-{number}", part)
        self._ask("barrier_in", "barrier_out")
        return [self._value_of(rank) for rank in range(self.size)]

    def _value_of(self, rank: int) -> bytes:
        parts = range(int(self._get(f"{rank}-parts")))
        return b"".join(bytes.fromhex(self._get(f"{rank}-{number}")) for number in parts)

    def _put(self, key: str, value: str) -> None:
        self._ask(f"put kvsname={self._space} key={self._key(key)} value={value}", "put_result")

    def _get(self, key: str) -> str:
        return self._ask(f"get kvsname={self._space} key={self._key(key)}", "get_result")["value"]

    def _key(self, key: str) -> str:
        return f"horovod-{self._exchanges}-{key}"

    def _ask(self, command: str, answer: str) -> dict[str, str]:
        try:
            self._socket.sendall(f"cmd={command}\n".encode("ascii"))
            line = self._lines.readline()
        except OSError as error:
            raise RanksError(f"mpirun cannot be reached: {error}") from error
        words = [word.partition("=") for word in line.split()]
        found = {name: value for name, _, value in words}
        if found.get("cmd") != answer or found.get("rc", "0") != "0":
            raise RanksError(f"mpirun answers {line.strip()!r} to {command!r}; expected is {answer}")
        return found
