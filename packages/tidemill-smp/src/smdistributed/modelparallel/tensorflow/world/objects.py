"""Send Python objects between ranks, for `smp.send`, `smp.recv_from` and `smp.broadcast`."""

import pickle
import threading
from typing import Any

from smdistributed.modelparallel.tensorflow.world.world import World

_TAG = 0


class Objects:
    """Point-to-point messages; a sender waits until the receiver has received the object."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: dict[int, int] = {}
        self._lock = threading.Lock()

    def send(self, value: Any, peers: tuple[int, ...], *, doing: str) -> None:
        """Send an object to some ranks, and return when all have received it."""
        payload = pickle.dumps(value, protocol=5)
        counts = {}
        for peer in peers:
            with self._lock:
                counts[peer] = self._sent[peer] = self._sent.get(peer, 0) + 1
                self._world.send(peer, _TAG, payload, doing=doing)
        for peer, count in counts.items():
            self._world.wait_acknowledged(peer, count, doing=doing)

    def receive(self, peer: int, *, doing: str) -> Any:
        """Wait for the next object from a rank."""
        payload = self._world.receive(peer, _TAG, doing=doing)
        self._world.acknowledge(peer, doing=doing)
        return pickle.loads(payload)  # noqa: S301
