"""Measure cost and gain of a glibc setting that returns the memory of large tensors to the system when they are freed.

    .venvs/tf-2.21/bin/python benchmarks/malloc_threshold.py --rounds 5 [--onednn]

For each model and each setting, a separate process trains: some steps to warm up, then the measured steps. The figures
are CPU seconds (user and system), page faults, and the peak of the resident memory above that after the import of
TensorFlow. For each setting, one process imports TensorFlow once and forks the others. Rounds are interleaved. A ratio
compares with the first setting, glibc's default, in the same round.

With oneDNN, TensorFlow's default on CPUs with AVX-512 VNNI, TensorFlow keeps a pool for tensors of more than 256 KiB,
so the setting has little effect. Without --onednn, this program switches oneDNN off, as it is on other CPUs.
"""

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20


def tunables(**values: int) -> str:
    """Return the value of GLIBC_TUNABLES."""
    return ":".join(f"glibc.malloc.{name}={value}" for name, value in values.items())


SETTINGS = {
    "default": "",
    "64 KiB": tunables(mmap_threshold=64 * KIB),
    "256 KiB": tunables(mmap_threshold=256 * KIB),
    "1 MiB": tunables(mmap_threshold=MIB),
    "1 MiB, trim 16": tunables(mmap_threshold=MIB, trim_threshold=16 * MIB),
    "ranks": tunables(mmap_threshold=MIB, trim_threshold=16 * MIB, hugetlb=1),
}
"""In this order: the size from which blocks are mapped, the free memory kept at the end of a heap, huge pages."""


def dense() -> tuple[Any, Any, Any]:
    """The model of smp_memory.py: 8 layers of 2048 x 2048, 4 rows."""
    import keras
    import numpy as np

    body = [keras.layers.Dense(2048, use_bias=False) for _ in range(8)]
    rows = np.ones((4, 2048), "float32")
    return keras.Sequential(body), rows, rows


def dense_64() -> tuple[Any, Any, Any]:
    """The same with 64 rows."""
    import numpy as np

    model, *_ = dense()
    rows = np.ones((64, 2048), "float32")
    return model, rows, rows


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


STEPS = {dense: 6, dense_64: 6, medium: 20, small: 80, transformer: 10, convolution: 6}
BY_NAME = {model.__name__: model for model in STEPS}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of TensorFlow, in each of its two pools")
    parser.add_argument("--models", nargs="+", default=list(BY_NAME), choices=list(BY_NAME))
    parser.add_argument("--onednn", action="store_true", help="leave oneDNN to TensorFlow's choice")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with ExitStack() as stack:
        servers = {label: stack.enter_context(server(SETTINGS[label], options)) for label in options.settings}
        print(
            f"{'model':12} {'threshold':15} {'CPU ms a step':>22} {'ratio':>18} {'faults':>8} {'peak MB':>8}"
            f" {'ratio':>6}"
        )
        for name in options.models:
            results: dict[str, list[dict[str, float]]] = {label: [] for label in servers}
            for number in range(options.rounds):
                first = number % len(servers)
                for label in options.settings[first:] + options.settings[:first]:
                    results[label].append(run(name, servers[label]))
            for label in servers:
                print_row(name, label, results[label], results[options.settings[0]])


@contextmanager
def server(setting: str, options: argparse.Namespace) -> Generator[subprocess.Popen[str]]:
    """Start a process that imports TensorFlow and waits for names of models."""
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "GLIBC_TUNABLES": setting}
    variables |= {f"TF_NUM_{kind}OP_THREADS": str(options.threads) for kind in ("INTRA", "INTER")}
    if not options.onednn:
        variables["TF_ENABLE_ONEDNN_OPTS"] = "0"
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.communicate()


def run(name: str, process: subprocess.Popen[str]) -> dict[str, float]:
    """Let a server fork, and return what the forked process measured."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def serve() -> None:
    """Fork a process for each name of a model on standard input."""
    importlib.import_module("keras")
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            print(json.dumps(measured(line.strip())), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


def measured(name: str) -> dict[str, float]:
    """Train in this process and measure."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    # This creates the threads and buffers of the runtime, which must not count.
    tf.function(tf.linalg.matmul)(tf.ones([64, 64]), tf.ones([64, 64]))
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
    """Print medians, minima and maxima."""
    cpu = [one["user"] + one["system"] for one in results]
    ratios = [mine / (one["user"] + one["system"]) for mine, one in zip(cpu, defaults, strict=True)]
    system = statistics.median(one["system"] for one in results)
    peak, other = (statistics.median(one["peak"] for one in some) for some in (results, defaults))
    print(
        f"{name:12} {label:15} {statistics.median(cpu) * 1e3:8.1f} ({system * 1e3:6.1f} sys) "
        f"{statistics.median(ratios):6.3f} ({min(ratios):.2f}, {max(ratios):.2f}) "
        f"{statistics.median(one['faults'] for one in results):8.0f} {peak / 1e6:8.0f} {peak / other:6.2f}",
        flush=True,
    )


def status(field: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


if __name__ == "__main__":
    main()
