"""Choose the thread that runs a signature: from its graph, then from the times of its first requests.

A run on the event loop needs no hand-over to another thread, and requests that arrive meanwhile share the next run; for
small models both reduce cost and latency. But it delays ``/ping`` and other connections. Running operations on the
calling thread saves hand-overs but loses parallelism in wide graphs.

The model is never run to find this out, since a run may change its variables, and may take any time on values that no
client sent. The traits of the graph decide where they can: small dense networks run on the event loop; graphs with
effects run on batch threads, as in TF Serving. Any other signature starts on batch threads, where the runs of requests
are timed in both ways.
"""

from dataclasses import dataclass, field

from tidemill_serving.engine.base import Signature

_ROW_LIMIT_S = 0.000_3
_RUN_LIMIT_S = 0.002
_RUNS = 5
_POOL_ADVANTAGE = 0.8  # required ratio of times: the pool is at its best while the machine is idle


@dataclass(frozen=True, slots=True)
class Placement:
    """How to run a signature.

    Attributes:
        on_loop: Run on the event loop's thread instead of a batch thread.
        pooled: Distribute the operations over TensorFlow's threads.
    """

    on_loop: bool
    pooled: bool


def initial_placement(signature: Signature) -> tuple[Placement, "PlacementTrial | None"]:
    """Return the placement that the graph of a signature allows, and the trial that may change it, if any.

    Args:
        signature: The signature; only its traits are read.

    Returns:
        The placement, and the trial of its first runs, or None.
    """
    traits = signature.traits
    if traits.has_effects:  # on one thread, operations that wait for each other could wait forever
        return Placement(on_loop=False, pooled=True), None
    if traits.is_small:
        return Placement(on_loop=True, pooled=False), None
    return Placement(on_loop=False, pooled=False), PlacementTrial(
        may_use_loop=not traits.has_loops, batchable=signature.batchable
    )


@dataclass(slots=True)
class _Times:
    """Times of runs whose feeds have about the same size.

    Attributes:
        rows: Fewest rows of a run.
        best_s: Shortest time of each way, by ``pooled``. Other work of the machine only lengthens runs.
        runs: Number of runs of each way, by ``pooled``.
    """

    rows: int
    best_s: dict[bool, float] = field(default_factory=dict)
    runs: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})


class PlacementTrial:
    """Compares the times of a signature's runs on batch threads, and decides its placement.

    The ways are used in turn, and only runs whose feeds have about the same size are compared. A signature whose runs
    take at most 0.3 ms per row and 2 ms in all moves to the event loop.

    Args:
        may_use_loop: The time of a run does not depend on the values fed.
        batchable: Requests may share a run, so that runs of more rows may take less time per row.
    """

    def __init__(self, *, may_use_loop: bool, batchable: bool) -> None:
        self._may_use_loop = may_use_loop
        self._batchable = batchable
        self._pooled: bool | None = None
        self._sizes: dict[int, _Times] = {}

    def pooled(self, size_bytes: int) -> bool:
        """Return the way to run feeds of this size.

        Returns:
            True for a pool of threads inside of operations, False for one thread.
        """
        if self._pooled is not None:
            return self._pooled
        times = self._sizes.get(size_bytes.bit_length())
        return times is not None and times.runs[True] < times.runs[False]

    def add(self, elapsed_s: float, *, pooled: bool, rows: int, size_bytes: int, fits_loop: bool) -> Placement | None:
        """Record a run; return the placement once it is decided.

        Args:
            elapsed_s: Time of the run in seconds.
            pooled: The way of the run.
            size_bytes: Size of its feeds in bytes.
            fits_loop: Requests of this size may run on the event loop.
        """
        times = self._sizes.setdefault(size_bytes.bit_length(), _Times(rows))
        times.rows = min(times.rows, rows)
        times.runs[pooled] += 1
        times.best_s[pooled] = min(elapsed_s, times.best_s.get(pooled, elapsed_s))
        if self._pooled is None:
            if min(times.runs.values()) < _RUNS:
                return None
            self._pooled = times.best_s[True] < times.best_s[False] * _POOL_ADVANTAGE
        if self._pooled or not self._may_use_loop:
            return Placement(on_loop=False, pooled=self._pooled)
        if times.runs[False] < _RUNS or not fits_loop:
            return None
        best_s = times.best_s[False]
        if best_s <= min(_ROW_LIMIT_S * times.rows, _RUN_LIMIT_S):
            return Placement(on_loop=True, pooled=False)
        if best_s > _RUN_LIMIT_S or not self._batchable:
            return Placement(on_loop=False, pooled=False)
        return None  # runs of more rows may take less time per row
