"""Measures the memory growth of a rank that trains a model with hardly anything but weights."""

import resource
from pathlib import Path
from typing import Any

LAYERS = 8
MANUAL = {"auto_partition": False, "default_partition": 0, "microbatches": 2}


def weights_bytes(width: int) -> int:
    """Return the size of the model's weights, in bytes."""
    return LAYERS * width * width * 4


def train(width: int, steps: int, limit_bytes: int | None = None) -> dict[str, int]:
    """Train with Adam, and return by how many bytes the peak exceeds the memory before.

    Args:
        width: Width of each layer.
        steps: Number of steps.
        limit_bytes: Additional memory that the process may allocate.
    """
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    class Heavy(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.body = [keras.layers.Dense(width, use_bias=False) for _ in range(LAYERS)]

        def call(self, x: Any, training: bool | None = None) -> Any:
            for number, layer in enumerate(self.body):
                with smp.partition(number * smp.mp_size() // LAYERS):
                    x = layer(x)
            return x

    x = tf.ones([4, width])
    tf.function(lambda x: tf.matmul(x, x, transpose_b=True))(x)  # creates threads and buffers of the runtime
    if limit_bytes is not None:
        limit = _status("VmData") + limit_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    smp.barrier()
    losses = models.smp_steps(Heavy(), keras.optimizers.Adam(1e-3), [(x.numpy(), x.numpy())] * steps)
    return {"peak": _status("VmHWM") - before, "steps": len(losses)}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024
