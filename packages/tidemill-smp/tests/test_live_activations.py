"""How many microbatches' activations a rank keeps at the same time, counted at allocation and release."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {"auto_partition": False, "default_partition": 0}
BATCH = 8


ATTEMPTS = 5


@pytest.mark.parametrize(
    ("partitions", "pipeline", "active", "expected"),
    [
        (2, "interleaved", None, [2, 1]),
        (2, "simple", None, [BATCH, 1]),
        (3, "interleaved", None, [3, 2, 1]),
        (3, "simple", None, [BATCH, BATCH, 1]),
        (3, "interleaved", 2, [2, 2, 1]),
        (3, "simple", 4, [4, 4, 1]),
    ],
)
def test_activations_are_kept_for_as_many_microbatches_as_the_schedule_allows(
    partitions: int, pipeline: str, active: int | None, expected: list[int]
) -> None:
    seen = [0] * partitions
    for _ in range(ATTEMPTS):
        counts = ranks.run(partitions, count_live, pipeline, active, config=CONFIG)
        assert all(count <= most for count, most in zip(counts, expected, strict=True)), counts
        # TensorFlow occasionally copies an array and frees it immediately, so that one is missed.
        seen = [max(pair) for pair in zip(seen, counts, strict=True)]
        if seen == expected:
            return
    raise AssertionError(f"expected {expected}, seen at most {seen} in {ATTEMPTS} runs")


ALIGNMENT = 64
"""TensorFlow uses an array's memory without copying if it has this alignment."""


class Counter:
    """Number of live arrays, and its maximum."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.alive = self.most = 0

    def array(self, like: np.ndarray) -> np.ndarray:
        """Return a copy that is counted until its memory is freed."""
        memory = np.empty(like.nbytes + ALIGNMENT, np.uint8)
        weakref.finalize(memory, self.freed)
        begin = -memory.ctypes.data % ALIGNMENT
        copy = memory[begin : begin + like.nbytes].view(like.dtype).reshape(like.shape)
        copy[...] = like
        with self.lock:
            self.alive += 1
            self.most = max(self.most, self.alive)
        return copy

    def freed(self) -> None:
        with self.lock:
            self.alive -= 1


def count_live(pipeline: str, active: int | None) -> int:
    """Train two steps of `BATCH` microbatches, and return the count on this rank."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    counter = Counter()

    @tf.custom_gradient
    def keeping(x: Any) -> Any:
        """A slow op that keeps an array for the backward pass."""
        # TensorFlow frees released arrays at its next call into Python, so make such a call before counting.
        kept = tf.numpy_function(counter.array, [tf.numpy_function(np.copy, [x], x.dtype)], x.dtype)
        kept.set_shape(x.shape)
        return tf.identity(x), lambda upstream: upstream + 1e-6 * kept

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.body = [keras.layers.Dense(16) for _ in range(smp.mp_size())]

        def call(self, x: Any, training: bool | None = None) -> Any:
            for place, layer in enumerate(self.body):
                with smp.partition(place):
                    x = keeping(layer(x))
            return x

    x = np.ones([BATCH, 16], "float32")
    with configured(microbatches=BATCH, pipeline=pipeline, active_microbatches=active):
        models.smp_steps(Net(), keras.optimizers.SGD(0.1), [(x, x)] * 2)
    gc.collect()
    assert counter.alive == 0
    return counter.most
