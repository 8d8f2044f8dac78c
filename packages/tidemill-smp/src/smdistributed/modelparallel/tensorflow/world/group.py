"""Collective operations of a group of ranks on Python objects and arrays.

Every collective call gets the group's next sequence number, and its messages contain that number and the name of the
call. So mismatched calls raise an error instead of mixing their data.

Only messages of ranks that have proved to know the job's secret are unpickled.
"""

import hashlib
import pickle
import threading
from typing import Any

import numpy as np

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.world.world import World

_SMALL_BYTES = 64 << 10
"""Up to this size every rank sends its array to all others: one exchange instead of 2 (n - 1) steps."""


class Group:
    """A subset of the ranks. All members create it with the same ranks and name, and call it in the same order."""

    def __init__(self, world: World, ranks: tuple[int, ...], name: str) -> None:
        self.world = world
        self.ranks = ranks
        """Global ranks of the members."""
        self.name = name
        self.rank = ranks.index(world.rank)
        """Rank of this process in the group."""
        self.size = len(ranks)
        key = hashlib.sha256(repr((name, ranks)).encode()).digest()
        self._key = (int.from_bytes(key[:3], "little") | 1) << 40  # tag 0 belongs to point-to-point messages
        self._calls = 0
        self._lock = threading.RLock()

    def allgather_objects(self, value: Any, *, what: str = "allgather") -> list[Any]:
        """Return the objects of all members, by rank in the group. Collective."""
        gathered = self._exchange(pickle.dumps(value, protocol=5), what)
        return [value if rank == self.rank else pickle.loads(data) for rank, data in enumerate(gathered)]  # noqa: S301

    def barrier(self) -> None:
        """Wait until all members have called this. Collective."""
        self._exchange(b"", "barrier")

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all members, by rank in the group. Collective."""
        gathered = self._exchange(_pack(np.asarray(array)), "allgather of arrays")
        return [_unpack(data) for data in gathered]

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return the array of member `root`. Collective."""
        doing = f"broadcast from rank {root} of the {self.name} group"
        with self._lock:
            tag = self._next_tag()
            if self.rank == root:
                packed = _name(doing) + _pack(np.asarray(array))
                for peer in self._others():
                    self.world.send(peer, tag, packed, doing=doing)
                return np.array(array, copy=True)
            return _unpack(self._receive(self.ranks[root], tag, doing, doing))

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """Return the element-wise sum or mean over the members, bit-equal on all of them. Collective."""
        array = np.asarray(array)
        if op not in ("sum", "mean"):
            raise SMPUsageError(f"'op' is {op!r}; allowed is 'sum' or 'mean'")
        if op == "mean" and array.dtype.kind in "iub":
            raise SMPUsageError(f"the mean of {array.dtype} arrays is not one of them: cast to float, or take op='sum'")
        total = self._sum(array) if self.size > 1 else array.copy()
        return total if op == "sum" else (total / self.size).astype(array.dtype, copy=False)

    # --- inside -----------------------------------------------------------------------------------------------

    def _sum(self, array: np.ndarray) -> np.ndarray:
        if array.nbytes <= _SMALL_BYTES:
            first, *others = [_unpack(data) for data in self._exchange(_pack(array), f"allreduce of {_form(array)}")]
            total = first.copy()
            for other in others:
                total = total + other  # in rank order, so that all ranks get the same bits
            return total.astype(array.dtype, copy=False)
        return self._ring_sum(array)

    def _ring_sum(self, array: np.ndarray) -> np.ndarray:
        """Sum with a ring all-reduce: reduce-scatter, then all-gather of the chunks."""
        doing = f"allreduce of {_form(array)} in the {self.name} group"
        total = np.array(array, copy=True, order="C").reshape(-1)
        chunks = np.array_split(total, self.size)  # views
        right = self.ranks[(self.rank + 1) % self.size]
        left = self.ranks[(self.rank - 1) % self.size]
        with self._lock:
            tag = self._next_tag()
            for turn in range(2 * (self.size - 1)):
                out = chunks[(self.rank - turn) % self.size]
                into = chunks[(self.rank - turn - 1) % self.size]
                self.world.send(right, tag, _name(doing) + out.tobytes(), doing=doing)
                came = np.frombuffer(self._receive(left, tag, doing, doing), dtype=array.dtype)
                if turn < self.size - 1:
                    np.add(into, came, out=into)
                else:
                    into[...] = came
        return total.reshape(array.shape)

    def _exchange(self, payload: bytes, what: str) -> list[bytes | memoryview]:
        doing = f"{what} over the {self.name} group"
        with self._lock:
            tag = self._next_tag()
            for peer in self._others():
                self.world.send(peer, tag, _name(what) + payload, doing=doing)
            return [
                payload if peer == self.world.rank else self._receive(peer, tag, what, doing) for peer in self.ranks
            ]

    def _others(self) -> list[int]:
        # Each rank begins with its successor, so that not all ranks contact the same one first.
        return [self.ranks[(self.rank + step) % self.size] for step in range(1, self.size)]

    def _receive(self, peer: int, tag: int, what: str, doing: str) -> memoryview:
        message = memoryview(self.world.receive(peer, tag, doing=doing))
        size = message[0]
        remote_what = bytes(message[1 : 1 + size]).decode()
        if remote_what != _shorten(what):
            raise SMPUsageError(
                f"{self.world.name_of(peer)} called {remote_what} where this rank, "
                f"{self.world.name_of(self.world.rank)}, called {what}: all ranks of the {self.name} group "
                "must make the same calls in the same order"
            )
        return message[1 + size :]

    def _next_tag(self) -> int:
        self._calls += 1
        return self._key | self._calls


def _shorten(what: str) -> str:
    return what.encode()[:200].decode(errors="ignore")


def _name(what: str) -> bytes:
    name = _shorten(what).encode()
    return bytes([len(name)]) + name


def _form(array: np.ndarray) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _pack(array: np.ndarray) -> bytes:
    form = pickle.dumps((array.dtype.name, array.shape))
    return len(form).to_bytes(4, "little") + form + array.tobytes()


def _unpack(data: bytes | memoryview) -> np.ndarray:
    view = memoryview(data)
    size = int.from_bytes(view[:4], "little")
    name, shape = pickle.loads(view[4 : 4 + size])  # noqa: S301
    return np.frombuffer(view[4 + size :], dtype=np.dtype(name)).reshape(shape)
