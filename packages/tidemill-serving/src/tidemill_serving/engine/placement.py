"""Choose the thread that runs a signature, from measurements during the warm-up of its model.

A run on the event loop needs no hand-over to another thread, and requests that arrive meanwhile share the next run; for
small models both reduce cost and latency. But it delays ``/ping`` and other connections. So a signature runs on the
loop if one row takes at most 0.3 ms, or a full batch at most 2 ms; otherwise on a batch thread. Graphs with loops
always run on batch threads, because a run on one row of zeros does not predict their time. Running operations on the
calling thread saves hand-overs but loses parallelism in wide graphs, so both ways are timed and the faster one is used.
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Signature
from tidemill_serving.errors import RequestError

__all__ = ["Placement", "measure"]

_ROW_LIMIT_S = 0.000_3
_BATCH_LIMIT_S = 0.002
_BATCH_ROWS = 32
_REPEATS = 7
_BUDGET_S = 0.2
_POOL_ADVANTAGE = 0.8  # required ratio of times: on the idle machine of the measurement the pool is at its best


@dataclass(frozen=True, slots=True)
class Placement:
    """How to run a signature.

    Attributes:
        on_loop: Run on the event loop's thread instead of a batch thread.
        pooled: Distribute the operations over TensorFlow's threads.
        one_row_s: Time of a run with one row, in seconds, by the faster way; None if the model accepted no generated
            feed.
    """

    on_loop: bool
    pooled: bool
    one_row_s: float | None


def measure(model: LoadedModel, signature: Signature) -> Placement:
    """Time one row of zeros (or empty strings) both ways. The first run also warms the signature up."""
    try:
        feeds = [_blank(spec.shape, spec.dtype) for spec in signature.inputs.values()]
        inline_s = _time(model, signature, feeds, pooled=False)
        pooled_s = _time(model, signature, feeds, pooled=True)
    except (RequestError, MemoryError):  # e.g. for an empty string that the model parses as an image
        return Placement(on_loop=False, pooled=False, one_row_s=None)
    pooled = pooled_s < inline_s * _POOL_ADVANTAGE
    on_loop = not pooled and not model.has_loops and _is_short(model, signature, one_row_s=inline_s)
    return Placement(on_loop=on_loop, pooled=pooled, one_row_s=min(pooled_s, inline_s))


def _is_short(model: LoadedModel, signature: Signature, *, one_row_s: float) -> bool:
    """Return whether a run on the event loop delays other requests by less than a hand-over would cost."""
    if one_row_s <= _ROW_LIMIT_S:
        return True
    if one_row_s > _BATCH_LIMIT_S or not signature.batchable:
        return False
    try:
        batch = [_blank((_BATCH_ROWS, *(spec.shape or ())[1:]), spec.dtype) for spec in signature.inputs.values()]
        return _time(model, signature, batch, pooled=False) <= _BATCH_LIMIT_S
    except (RequestError, MemoryError):  # the model accepts single rows only
        return False


def _time(model: LoadedModel, signature: Signature, feeds: list[Array], *, pooled: bool) -> float:
    begin = time.perf_counter()
    model.run(signature, feeds, pooled=pooled)
    times: list[float] = []
    while not times or (len(times) < _REPEATS and time.perf_counter() - begin < _BUDGET_S):
        start = time.perf_counter()
        model.run(signature, feeds, pooled=pooled)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _blank(shape: tuple[int, ...] | None, dtype: "np.dtype[object]") -> Array:
    sizes = tuple(1 if size < 0 else size for size in shape or ())
    return np.full(sizes, b"", dtype=object) if dtype.kind == "O" else np.zeros(sizes, dtype=dtype)
