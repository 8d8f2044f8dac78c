"""Allreduce between processes: tidemill-horovod, TensorFlow's gRPC ring, and MPI's own, interleaved in one run.

    .venvs/tf-2.21/bin/python benchmarks/allreduce.py             # 2 processes
    .venvs/tf-2.21/bin/python benchmarks/allreduce.py --ranks 4   # 4 processes: not a fair measurement on fewer cores
    .venvs/tf-2.21/bin/python benchmarks/allreduce.py --network 4gbit   # the step, on a network of this rate

Each round times every implementation once at each size, after a call that is not timed. The minimum and the median over
the rounds are printed. Then two training steps are compared: one sends gradients while the backward pass still runs,
the other after it. Between processes of one machine, sending uses the processor, like the backward pass.
With --network the ranks use sockets in a network namespace with a limited rate, so that sending is mostly waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "64 MB": 64 << 20}
"""Bytes of a float32 tensor. The float16 tensor has as many elements, so half the bytes."""
CALLS = {"4 KB": 40, "1 MB": 8, "64 MB": 1}
"""Calls in a round. The round counts with their mean."""


def main() -> None:
    """Start the ranks; or, started as a rank, measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tcp", action="store_true", help="sockets instead of shared memory")
    parser.add_argument("--network", metavar="RATE", help="only the step, at this rate: 4gbit, for example")
    options = parser.parse_args()
    if "PMI_RANK" in os.environ:
        measure(options)
        return
    if options.network and "BENCHMARK_NETWORK" not in os.environ:
        enter_network(options.network)
    ports = []
    for _ in range(options.ranks):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    environment = {
        **os.environ,
        "BENCHMARK_PORTS": " ".join(map(str, ports)),
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HOROVOD_TIDEMILL_TRANSPORT": "tcp" if options.tcp or options.network else "auto",
    }
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun"
    command = [mpirun, "-np", str(options.ranks), sys.executable, *sys.argv]
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def enter_network(rate: str) -> None:
    """Run this program again, in a network namespace whose loopback device is limited to ``rate`` bits a second."""
    limit = 'ip link set lo up && tc qdisc add dev lo root tbf rate "$0" burst 256kb latency 100ms && exec "$@"'
    command = ["unshare", "--net", "--map-root-user", "sh", "-c", limit, rate, sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, "BENCHMARK_NETWORK": rate})


def measure(options: argparse.Namespace) -> None:
    """Measure, as one of the ranks."""
    import tensorflow as tf
    from mpi4py import MPI

    import horovod.tensorflow as hvd

    everyone = MPI.COMM_WORLD
    if options.network:
        hvd.init()
    else:
        seconds = calls(everyone, hvd, tf, options.rounds)
        if everyone.Get_rank() == 0:
            report(seconds, everyone.Get_size())
    steps = overlap(hvd, tf, options.rounds)
    if everyone.Get_rank() == 0:
        for name, values in steps.items():
            print(f"step, {name}: {min(values) * 1e3:.1f} ms ({statistics.median(values) * 1e3:.1f})")
    everyone.Barrier()
    hvd.shutdown()
    os._exit(0)  # a normal exit would wait for the servers of the strategy


def calls(everyone: Any, hvd: Any, tf: Any, rounds: int) -> dict[tuple[str, str, str], list[float]]:
    """Return the seconds of an allreduce by size, dtype and way, one value for each round."""
    import numpy as np

    rank = everyone.Get_rank()
    workers = [f"127.0.0.1:{port}" for port in os.environ["BENCHMARK_PORTS"].split()]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    import horovod.tensorflow as hvd

    hvd.init()

    def ring_of(value: Any) -> Callable[[], Any]:
        @tf.function
        def reduce() -> Any:
            return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", value))

        return reduce

    ways: dict[tuple[str, str, str], Callable[[], Any]] = {}
    for name, bytes_ in SIZES.items():
        for dtype in (tf.float32, tf.float16):
            tensor = tf.cast(tf.fill([bytes_ // 4], 1.0), dtype)
            ways[name, dtype.name, "tidemill"] = lambda tensor=tensor: hvd.allreduce(tensor, op=hvd.Sum)
            if dtype == tf.float32:
                ways[name, dtype.name, "TensorFlow's ring"] = ring_of(tensor)
                sent, got = np.ones(bytes_ // 4, "float32"), np.empty(bytes_ // 4, "float32")
                ways[name, dtype.name, "MPI"] = lambda sent=sent, got=got: everyone.Allreduce(sent, got)
    seconds: dict[tuple[str, str, str], list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, call in ways.items():
            call()  # not timed: the threads of this way slept while another was measured
            everyone.Barrier()
            began = time.perf_counter()
            for _ in range(CALLS[way[0]]):
                call()
            if number > 0:  # the first round also traces and allocates
                seconds[way].append((time.perf_counter() - began) / CALLS[way[0]])
    return seconds


def overlap(hvd: Any, tf: Any, rounds: int) -> dict[str, list[float]]:
    """Time a training step of 12 dense layers: without the other ranks, with overlap, and without overlap."""
    weights = [tf.Variable(tf.random.normal([768, 768], stddev=0.03)) for _ in range(12)]
    batch = tf.random.normal([256, 768])

    def loss_and_gradients() -> Any:
        with tf.GradientTape() as tape:
            hidden = batch
            for weight in weights:
                hidden = tf.tanh(hidden @ weight)
            loss = tf.reduce_mean(hidden**2)
        return loss, tape

    def apply(gradients: Any) -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(1e-3 * gradient)

    @tf.function
    def alone() -> None:
        loss, tape = loss_and_gradients()
        apply(tape.gradient(loss, weights))

    @tf.function
    def overlapped() -> None:
        loss, tape = loss_and_gradients()
        apply(hvd.DistributedGradientTape(tape).gradient(loss, weights))

    @tf.function
    def after() -> None:
        loss, tape = loss_and_gradients()
        gradients = tape.gradient(loss, weights)
        with tf.control_dependencies(gradients):  # no overlap: nothing is sent before all gradients are computed
            gradients = [tf.identity(gradient) for gradient in gradients]
        apply(hvd.grouped_allreduce(gradients))

    steps = {"one rank's work alone": alone, "gradients travel meanwhile": overlapped, "gradients travel after": after}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            hvd.barrier()
            began = time.perf_counter()
            step()
            hvd.barrier()
            if number > 1:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def report(seconds: dict[tuple[str, str, str], list[float]], size: int) -> None:
    """Print the minimum and the median of each, and their ratio to MPI's."""
    print(f"{size} processes; microseconds, least (median)")
    for (name, dtype, way), values in seconds.items():
        mpi = seconds[name, "float32", "MPI"]
        ratio = min(values) / min(mpi)
        more = (min(values) - min(mpi)) * 1e6
        print(
            f"{name:>6} {dtype:8} {way:18} {min(values) * 1e6:10.1f} ({statistics.median(values) * 1e6:10.1f})  "
            f"{ratio:6.2f} of MPI, {more:+10.1f}"
        )


if __name__ == "__main__":
    main()
