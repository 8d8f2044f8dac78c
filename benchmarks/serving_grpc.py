"""Measure the server's CPU time of a small Predict over gRPC, compared with grpcio's own echo server.

    .venvs/tf-2.21/bin/python benchmarks/serving_grpc.py [--seconds 2] [--rounds 5]

The echo server is a grpcio server with eight threads that only returns the bytes of the request. The client keeps 32
calls of ``half_plus_two`` in flight, on four channels, in a separate process. Rounds are interleaved. The CPU time is
the user and system time of the server's process; the benchmark prints the median of the rounds.
"""

import argparse
import contextlib
import functools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import grpc  # pyrefly: ignore[missing-import]  # comes with TensorFlow

from serving import MODELS, cpu_s, end
from tidemill_serving.messages.definitions import messages

METHOD = "/tensorflow.serving.PredictionService/Predict"
IN_FLIGHT, CHANNELS, THREADS = 32, 4, 8
ECHO = f"""
import concurrent.futures, grpc, signal, threading
handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(concurrent.futures.ThreadPoolExecutor({THREADS}), options=(("grpc.so_reuseport", 0),))
service, method = {METHOD.strip("/").split("/")!r}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {{method: handler}}),))
print("port", server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
stop.wait()
"""


def main() -> None:
    """Print the CPU time per call of both servers, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load is not None:
        print(json.dumps(load(given.load, seconds=given.seconds)))
        return
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", MODELS, directory], check=True, capture_output=True)
        servers = {
            "echo": started([sys.executable, "-c", ECHO], r"port (\d+)", ends),
            "Predict": started(
                [sys.executable, "-m", "tidemill_serving", "--model-dir", directory, "--grpc-port", "0", "--port", "0"],
                r"grpc\.ready .*:(\d+)$",
                ends,
            ),
        }
        report(servers, seconds=given.seconds, rounds=given.rounds)


def started(command: list[str], ready: str, ends: contextlib.ExitStack) -> tuple[int, int]:
    """Start a server; return its process id and port."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ends.callback(end, process)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(ready, line):
            port = int(found[1])
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process.pid, port
    raise SystemExit(f"{command[-1]} has not started")


def report(servers: dict[str, tuple[int, int]], *, seconds: float, rounds: int) -> None:
    """Measure the servers in turn, and print the results."""
    cpu_us: dict[str, list[float]] = {name: [] for name in servers}
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, (pid, port) in servers.items():
            begin_s = cpu_s(pid)
            command = [sys.executable, __file__, "--load", str(port), "--seconds", str(seconds)]
            counts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cpu_us[name].append((cpu_s(pid) - begin_s) * 1e6 / counts["calls"])
            rates[name].append(counts["calls"] / counts["seconds"])
    for name in servers:
        rate = statistics.median(rates[name])
        print(f"{name:8} {statistics.median(cpu_us[name]):7.1f} us of CPU a call, {rate:.0f} calls/s")
    ratios = [ours / echo for ours, echo in zip(cpu_us["Predict"], cpu_us["echo"], strict=True)]
    print(f"Predict / echo: {statistics.median(ratios):.2f} ({', '.join(f'{each:.2f}' for each in ratios)})")


def load(port: int, *, seconds: float) -> dict[str, float]:
    """Keep calls in flight for a time; return the measured figures."""
    request = messages().PredictRequest()
    request.model_spec.name = "half_plus_two"
    tensor = request.inputs["x"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=1)
    tensor.float_val.append(1.5)
    data = request.SerializeToString()
    finished = threading.Event()
    lock = threading.Lock()
    counts = {"calls": 0, "running": 0}
    end_s = time.monotonic() + seconds

    def call(method: grpc.UnaryUnaryMultiCallable) -> None:
        method.future(data).add_done_callback(functools.partial(again, method))

    def again(method: grpc.UnaryUnaryMultiCallable, done: grpc.Future) -> None:
        done.result()
        with lock:
            counts["calls"] += 1
            if time.monotonic() >= end_s:
                counts["running"] -= 1
                if not counts["running"]:
                    finished.set()
                return
        call(method)

    begin_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        # Channels with equal options would share one connection.
        channels = [
            stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", options=(("tidemill.number", number),)))
            for number in range(CHANNELS)
        ]
        counts["running"] = IN_FLIGHT
        for number in range(IN_FLIGHT):
            call(channels[number % CHANNELS].unary_unary(METHOD))
        finished.wait()
    return {"calls": counts["calls"], "seconds": time.monotonic() - begin_s}


if __name__ == "__main__":
    main()
