"""What it costs and saves to have glibc give the memory of large tensors back to the system as soon as they are freed.

    .venvs/tf-2.21/bin/python benchmarks/malloc_threshold.py --rounds 5

For each model and each value of MALLOC_MMAP_THRESHOLD_, a process of its own trains for some steps to warm up and then for
those that are counted: CPU seconds (user and system), page faults, and the peak of the resident memory beyond that of
imported TensorFlow. Rounds are interleaved, and a ratio is always to glibc's own default in the same round.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VARIABLE = "MALLOC_MMAP_THRESHOLD_"
THRESHOLDS: dict[str, str | None] = {"default": None, "64 KiB": "65536", "256 KiB": "262144", "1 MiB": "1048576"}


def dense() -> tuple[Any, Any, Any]:
    """The model of smp_memory.py: 8 layers of 2048 x 2048, 4 rows."""
    import keras
    import numpy as np

    body = [keras.layers.Dense(2048, use_bias=False) for _ in range(8)]
    rows = np.ones((4, 2048), "float32")
    return keras.Sequential(body), rows, rows


def medium() -> tuple[Any, Any, Any]:
    """32 layers of 256 x 256, 512 rows: weights of 256 KiB, activations of 512 KiB."""
    import keras
    import numpy as np

    body = [keras.layers.Dense(256, activation="relu") for _ in range(32)]
    rows = np.ones((512, 256), "float32")
    return keras.Sequential(body), rows, rows


def small() -> tuple[Any, Any, Any]:
    """32 layers of 128 x 128, 256 rows: weights of 64 KiB, activations of 128 KiB."""
    import keras
    import numpy as np

    body = [keras.layers.Dense(128, activation="relu") for _ in range(32)]
    rows = np.ones((256, 128), "float32")
    return keras.Sequential(body), rows, rows


def transformer() -> tuple[Any, Any, Any]:
    """4 blocks of width 128 over 16 sequences of 64: activations of 512 KiB to 2 MiB."""
    import keras
    import numpy as np

    x = inputs = keras.Input((64, 128))
    for _ in range(4):
        y = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 32)(y, y)
        y = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.Dense(128)(keras.layers.Dense(512, activation="gelu")(y))
    rows = np.ones((16, 64, 128), "float32")
    return keras.Model(inputs, x), rows, rows


def convolution() -> tuple[Any, Any, Any]:
    """Convolutions over 32 images of 32 x 32 with 32 and 64 channels: activations of 2 to 8 MiB."""
    import keras
    import numpy as np

    layers = [
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
    return keras.Sequential(layers), np.ones((32, 32, 32, 3), "float32"), np.ones((32, 10), "float32")


STEPS = {dense: 10, medium: 40, small: 150, transformer: 15, convolution: 10}
BY_NAME = {model.__name__: model for model in STEPS}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of TensorFlow, in each of its two pools")
    parser.add_argument("--models", nargs="+", default=list(BY_NAME), choices=list(BY_NAME))
    parser.add_argument("--child", choices=list(BY_NAME), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child)))
        return
    print(f"{'model':12} {'threshold':9} {'CPU ms a step':>22} {'ratio':>18} {'faults':>8} {'peak MB':>8} {'ratio':>6}")
    for name in options.models:
        results: dict[str, list[dict[str, float]]] = {label: [] for label in THRESHOLDS}
        for number in range(options.rounds):
            labels = list(THRESHOLDS)
            for label in labels[number % len(labels) :] + labels[: number % len(labels)]:
                results[label].append(run(name, THRESHOLDS[label], options.threads))
        for label in THRESHOLDS:
            print_row(name, label, results[label], results["default"])


def run(name: str, threshold: str | None, threads: int) -> dict[str, float]:
    """One process."""
    pools = {f"TF_NUM_{kind}OP_THREADS": str(threads) for kind in ("INTRA", "INTER")}
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **pools}
    environment.pop(VARIABLE, None)
    if threshold is not None:
        environment[VARIABLE] = threshold
    done = subprocess.run(
        [sys.executable, __file__, "--child", name], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str) -> dict[str, float]:
    """Train, in this process."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    tf.function(lambda x: tf.matmul(x, x))(tf.ones([64, 64]))  # threads and buffers of the runtime are there
    before = status("VmRSS")
    model, x, y = BY_NAME[name]()
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    for _ in range(3):
        model.train_on_batch(x, y)
    steps = STEPS[BY_NAME[name]]
    first, wall = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    for _ in range(steps):
        model.train_on_batch(x, y)
    last = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user": (last.ru_utime - first.ru_utime) / steps,
        "system": (last.ru_stime - first.ru_stime) / steps,
        "wall": (time.monotonic() - wall) / steps,
        "faults": (last.ru_minflt - first.ru_minflt) / steps,
        "peak": status("VmHWM") - before,
    }


def print_row(name: str, label: str, results: list[dict[str, float]], defaults: list[dict[str, float]]) -> None:
    """Medians, and the least and greatest."""
    cpu = [one["user"] + one["system"] for one in results]
    ratios = [mine / (one["user"] + one["system"]) for mine, one in zip(cpu, defaults, strict=True)]
    system = statistics.median(one["system"] for one in results)
    peak, other = (statistics.median(one["peak"] for one in some) for some in (results, defaults))
    print(
        f"{name:12} {label:9} {statistics.median(cpu) * 1e3:8.1f} ({system * 1e3:6.1f} sys) "
        f"{statistics.median(ratios):6.3f} ({min(ratios):.2f}, {max(ratios):.2f}) "
        f"{statistics.median(one['faults'] for one in results):8.0f} {peak / 1e6:8.0f} {peak / other:6.2f}",
        flush=True,
    )


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


if __name__ == "__main__":
    main()
