"""Measure the cost of the model server in addition to that of the model: CPU per request and requests per second.

    .venvs/tf-2.21/bin/python benchmarks/serving.py [--seconds 2] [--rounds 3] [--peers]

These are measured in turn: the server under 1, 8 and 32 connections; the callable of the same engine in one process,
without a server, with batches of 1 and 32 rows; and a socket server on the same event loop that answers each read with
constant bytes, which is the lower limit for a server in Python. There are two models: ``half_plus_two`` (almost no
computation) and ``mlp`` (784-512-512-10, one row of 784 numbers per request). ``--peers`` also measures FastAPI,
LitServe and BentoML with ``half_plus_two`` under 32 connections, after ``make serving-peers``; `serving_models.py`
compares them with models that people serve. The CPU time is the user and system
time of the server's process and its children; on a busy machine it is the only reliable figure. The best round counts.
The time from the start of the process to its first answer is also printed, and the CPU time to read an image of
224 x 224 x 3 numbers from JSON, in two precisions.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_load import closed_loop, request_of
from serving_peers import PEERS, Peer, end, start_peer, tree

MODELS = """
import sys, tensorflow as tf, keras
class Half(tf.Module):
    def __init__(self):
        self.a, self.b = tf.Variable(0.5), tf.Variable(2.0)
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def predict(self, x):
        return {"y": self.a * x + self.b}
half = Half()
tf.saved_model.save(half, sys.argv[1] + "/half_plus_two/1", signatures={"serving_default": half.predict})
dense = keras.layers.Dense
layers = [keras.Input((784,)), dense(512, "relu"), dense(512, "relu"), dense(10, "softmax")]
keras.Sequential(layers).export(sys.argv[1] + "/mlp/1", verbose=False)
"""
CALLABLE = """
import json, sys, time, resource
from pathlib import Path
import numpy as np
from tidemill_serving.engine import open_engine
path, rows, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
model = open_engine().load(path)
signature = model.signatures["serving_default"]
(spec,) = signature.inputs.values()
feeds = [np.random.default_rng(0).random((rows, *spec.shape[1:]), dtype=np.float32)]
for _ in range(20):
    model.run(signature, feeds, pooled=False)
def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
begin, cpu, runs = time.perf_counter(), cpu_s(), 0
while time.perf_counter() - begin < seconds:
    model.run(signature, feeds, pooled=False)
    runs += 1
print(json.dumps({"cpu_us": (cpu_s() - cpu) / runs / rows * 1e6, "rps": runs * rows / (time.perf_counter() - begin)}))
"""
ECHO = """
import asyncio, uvloop
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 32\\r\\n\\r\\n" + b" " * 32
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
uvloop.run(main())
"""
DECODE = """
import json, time
from types import SimpleNamespace
import numpy as np
from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.rest.predict import read_document, read_request
spec = TensorSpec("x:0", np.dtype("float32"), "float", None)
class Model:
    signatures = {"serving_default": Signature("serving_default", "predict", {"x": spec}, {"y": spec})}
    unusable = {}
def best_ms(read, body):
    times = []
    for _ in range(15):
        begin = time.process_time()
        read(body, model)
        times.append(time.process_time() - begin)
    return min(times) * 1e3
model, found = Model(), {}
image = np.random.default_rng(0).random((1, 224, 224, 3), dtype=np.float32)
for name, values in (("8 digits", image.astype(float).round(8)), ("float32 as Python writes it", image.astype(float))):
    body = json.dumps({"instances": values.tolist()}).encode()
    found[name] = best_ms(read_request, body), best_ms(read_document, body)
print(json.dumps(found))
"""
ROW = [1.0]
BODIES = {
    "half_plus_two": json.dumps({"instances": ROW}),
    "mlp": json.dumps({"instances": [[round(index / 784, 4) for index in range(784)]]}),
}
BASES = {"half_plus_two": "callable, 1 rows", "mlp": "callable, 32 rows"}
CONNECTIONS = (1, 8, 32)
BATCHES = (1, 32)


@dataclass(frozen=True)
class Result:
    """One measurement; CPU in microseconds per request (or row), latencies in milliseconds."""

    cpu_us: float
    rps: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="also measure FastAPI, LitServe and BentoML")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([sys.executable, "-c", MODELS, directory], check=True, env=quiet, stderr=subprocess.DEVNULL)
        peers = tuple(PEERS.values()) if given.peers else ()
        report(Path(directory), peers, seconds=given.seconds, rounds=given.rounds)


def report(directory: Path, peers: Sequence[Peer], *, seconds: float, rounds: int) -> None:
    """Measure each server and callable ``rounds`` times, and print the best round of each."""
    with contextlib.ExitStack() as ends:
        target, body = "/v1/models/half_plus_two:predict", BODIES["half_plus_two"].encode()
        server, port, first_answer_s, start_cpu_s = start_server(directory, target, body)
        ends.callback(end, server)
        echo, echo_port = start_echo()
        ends.callback(end, echo)
        others = [(peer, start_peer(peer, directory / "half_plus_two" / "1", ROW, ends)) for peer in peers]
        results: dict[tuple[str, str], list[Result]] = {}
        requests = {name: request_of(f"/v1/models/{name}:predict", body.encode()) for name, body in BODIES.items()}
        for _ in range(rounds):
            found = measure_server(echo.pid, echo_port, requests["half_plus_two"], 32, seconds)
            results.setdefault(("half_plus_two", "constant bytes, c=32"), []).append(found)
            for peer, started in others:
                request = request_of(*peer.json_request(ROW))
                found = measure_server(started.pid, started.port, request, 32, seconds)
                results.setdefault(("half_plus_two", f"{peer.name}, c=32"), []).append(found)
            for model in BODIES:
                for rows in BATCHES:
                    found = measure_callable(directory / model / "1", rows, seconds)
                    results.setdefault((model, f"callable, {rows} rows"), []).append(found)
                for connections in CONNECTIONS:
                    found = measure_server(server.pid, port, requests[model], connections, seconds)
                    results.setdefault((model, f"server, c={connections}"), []).append(found)
        memory_kb = memory_of(server.pid)
    decoded = subprocess.run([sys.executable, "-c", DECODE], check=True, capture_output=True, text=True)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, best of {rounds} rounds of {seconds:g} s")
    print(f"start to first answer: {first_answer_s:.2f} s wall, {start_cpu_s:.2f} s CPU; PSS {memory_kb / 1024:.0f} MB")
    for name, (native_ms, python_ms) in json.loads(decoded.stdout).items():
        print(f"JSON of 224 x 224 x 3 numbers, {name}: {native_ms:.2f} ms CPU; without the library {python_ms:.2f} ms")
    print(f"{'model':14} {'contender':20} {'CPU us/row':>10} {'rows/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'x bare':>8}")
    for (model, contender), found in results.items():
        best = min(found, key=lambda result: result.cpu_us)
        limit = min(result.cpu_us for result in results[model, BASES[model]])
        fastest = max(result.rps for result in found)
        print(
            f"{model:14} {contender:20} {best.cpu_us:10.1f} {fastest:9.0f} {best.p50_ms:8.2f} {best.p99_ms:8.2f}"
            f" {best.cpu_us / limit:8.2f}"
        )


def start_server(directory: Path, target: str, body: bytes) -> tuple[subprocess.Popen[str], int, float, float]:
    """Start the server and wait for its first answer. Also returns the seconds until then, and the CPU seconds."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "tidemill_serving", "--model-dir", str(directory), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = 0
    for line in server.stdout:
        if match := re.match(r"server\.ready .*:(\d+)$", line):
            port = int(match[1])
            break
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", target, body)
    assert connection.getresponse().status == 200
    elapsed_s = time.perf_counter() - begin
    return server, port, elapsed_s, cpu_s(server.pid)


def start_echo() -> tuple[subprocess.Popen[str], int]:
    """Start the server of constant bytes."""
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def measure_server(pid: int, port: int, request: bytes, connections: int, seconds: float) -> Result:
    """Return the CPU of the server and the latencies of its clients under a number of connections."""
    closed_loop(port, [request], connections=connections, seconds=0.2)
    before_s = cpu_s(pid)
    load = closed_loop(port, [request], connections=connections, seconds=seconds)
    used_s = cpu_s(pid) - before_s
    return Result(used_s / load.requests * 1e6, load.rps, load.p50_ms, load.p99_ms)


def measure_callable(path: Path, rows: int, seconds: float) -> Result:
    """Measure the same engine without a server."""
    command = [sys.executable, "-c", CALLABLE, str(path), str(rows), str(seconds)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return Result(**json.loads(done.stdout))


def cpu_s(pid: int) -> float:
    """Return the user and system time of a process and its descendants, including their threads."""
    ticks = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the proportional set size in KiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])  # type: ignore[index]  # pyrefly: ignore


if __name__ == "__main__":
    main()
