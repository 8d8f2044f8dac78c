"""Where a signature runs, measured when its model is warmed up.

A run of 0.3 ms or less is done right on the event loop; a longer one on a batch thread, so that ``/ping`` and other
connections go on. So is every run of a graph with loops, of which one row of zeros says little. Running operations on
the calling thread saves hand-overs but loses parallelism in wide graphs, so both ways are timed and the faster one is
taken.
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Signature
from tidemill_serving.errors import RequestError

__all__ = ["INLINE_LIMIT_S", "Placement", "measure"]

INLINE_LIMIT_S = 0.000_3
_REPEATS = 7
_BUDGET_S = 0.2
_POOL_ADVANTAGE = 0.8  # the pool must be clearly faster: what is measured on an idle machine is its best case


@dataclass(frozen=True, slots=True)
class Placement:
    """How to run a signature.

    Attributes:
        on_loop: Run on the event loop's thread, else on a batch thread.
        pooled: Let TensorFlow spread the operations over its threads.
        one_row_s: Time of one row, the faster way; None where no feed could be made up that the model takes.
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
    except (RequestError, MemoryError):  # e.g. an empty string where the model parses an image
        return Placement(on_loop=False, pooled=False, one_row_s=None)
    pooled = pooled_s < inline_s * _POOL_ADVANTAGE
    one_row_s = min(pooled_s, inline_s)
    on_loop = inline_s <= INLINE_LIMIT_S and not pooled and not model.has_loops
    return Placement(on_loop=on_loop, pooled=pooled, one_row_s=one_row_s)


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
