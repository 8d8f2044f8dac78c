"""What the model server costs on top of the model: CPU per request and requests per second, in one run.

    .venvs/tf-2.21/bin/python benchmarks/serving_overhead.py [--seconds 2] [--rounds 3]

Contenders, interleaved: the server under 1, 8 and 32 connections, and the bare in-process callable of the same engine
with batches of 1 and 32 rows. Two models: ``half_plus_two`` (nothing to compute) and ``mlp`` (784-512-512-10, one row
of 784 numbers a request). CPU is that of the server's process alone, user and system; on a busy machine it is the
number to trust. The best round counts. Also printed: time from the start of the process to its first answer.
"""

import argparse
import asyncio
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

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
model = open_engine("binding").load(path)
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
BODIES = {
    "half_plus_two": json.dumps({"instances": [1.0]}),
    "mlp": json.dumps({"instances": [[round(index / 784, 4) for index in range(784)]]}),
}
CONNECTIONS = (1, 8, 32)
BATCHES = (1, 32)


@dataclass(frozen=True)
class Result:
    """One measurement; CPU in microseconds per request (or row), latencies in milliseconds."""

    cpu_us: float
    rps: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


class Client(asyncio.Protocol):
    """One connection that sends the same request again as soon as the answer is there."""

    def __init__(self, request: bytes, until_s: float, done: asyncio.Future[list[float]]) -> None:
        self.request, self.until_s, self.done = request, until_s, done
        self.times_s: list[float] = []
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.sent_s = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]  # pyrefly: ignore[missing-attribute]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self.buffer.decode()))
            return
        now_s = time.perf_counter()
        self.times_s.append(now_s - self.sent_s)
        self.buffer = b""
        if now_s < self.until_s:
            self.send()
        else:
            self.transport.close()
            self.done.set_result(self.times_s)


async def load(port: int, model: str, connections: int, seconds: float) -> None:
    """Drive the server and print the latencies' summary: the body of the load generator's process."""
    body = BODIES[model].encode()
    request = (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    loop = asyncio.get_running_loop()
    until_s = time.perf_counter() + seconds
    futures: list[asyncio.Future[list[float]]] = [loop.create_future() for _ in range(connections)]
    begin = time.perf_counter()
    for future in futures:
        await loop.create_connection(lambda future=future: Client(request, until_s, future), "127.0.0.1", port)
    times = sorted(itertools.chain.from_iterable(await asyncio.gather(*futures)))
    summary = {
        "requests": len(times),
        "seconds": time.perf_counter() - begin,
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[int(len(times) * 0.99)] * 1e3,
    }
    print(json.dumps(summary))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", nargs=4, metavar=("PORT", "MODEL", "CONNECTIONS", "SECONDS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        import uvloop

        port, model, connections, seconds = given.load
        uvloop.run(load(int(port), model, int(connections), float(seconds)))
        return
    with tempfile.TemporaryDirectory() as directory:
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([sys.executable, "-c", MODELS, directory], check=True, env=quiet, stderr=subprocess.DEVNULL)
        report(Path(directory), seconds=given.seconds, rounds=given.rounds)


def report(directory: Path, *, seconds: float, rounds: int) -> None:
    """Run every contender ``rounds`` times and print the best of each."""
    server, port, first_answer_s, start_cpu_s = start_server(directory)
    results: dict[tuple[str, str], list[Result]] = {}
    try:
        for _ in range(rounds):
            for model in BODIES:
                for rows in BATCHES:
                    found = measure_callable(directory / model / "1", rows, seconds)
                    results.setdefault((model, f"callable, {rows} rows"), []).append(found)
                for connections in CONNECTIONS:
                    found = measure_server(server.pid, port, model, connections, seconds)
                    results.setdefault((model, f"server, c={connections}"), []).append(found)
        memory_kb = memory_of(server.pid)
    finally:
        server.terminate()
        server.wait()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, best of {rounds} rounds of {seconds:g} s")
    print(f"start to first answer: {first_answer_s:.2f} s wall, {start_cpu_s:.2f} s CPU; PSS {memory_kb / 1024:.0f} MB")
    print(f"{'model':14} {'contender':18} {'CPU us/row':>10} {'rows/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'x limit':>8}")
    for (model, contender), found in results.items():
        best = min(found, key=lambda result: result.cpu_us)
        limit = min(result.cpu_us for result in results[model, "callable, 32 rows"])
        fastest = max(result.rps for result in found)
        print(
            f"{model:14} {contender:18} {best.cpu_us:10.1f} {fastest:9.0f} {best.p50_ms:8.2f} {best.p99_ms:8.2f}"
            f" {best.cpu_us / limit:8.2f}"
        )


def start_server(directory: Path) -> tuple[subprocess.Popen[str], int, float, float]:
    """Start the server and wait for its first answer; also how long that took and what CPU it used."""
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
    connection.request("POST", "/v1/models/half_plus_two:predict", BODIES["half_plus_two"])
    assert connection.getresponse().status == 200
    elapsed_s = time.perf_counter() - begin
    return server, port, elapsed_s, cpu_s(server.pid)


def measure_server(pid: int, port: int, model: str, connections: int, seconds: float) -> Result:
    """CPU of the server and latencies of its clients under a number of connections."""
    subprocess_load(port, model, connections, 0.2)
    before_s = cpu_s(pid)
    summary = subprocess_load(port, model, connections, seconds)
    used_s = cpu_s(pid) - before_s
    requests = summary["requests"]
    return Result(used_s / requests * 1e6, requests / summary["seconds"], summary["p50_ms"], summary["p99_ms"])


def measure_callable(path: Path, rows: int, seconds: float) -> Result:
    """The same engine without a server."""
    command = [sys.executable, "-c", CALLABLE, str(path), str(rows), str(seconds)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return Result(**json.loads(done.stdout))


def subprocess_load(port: int, model: str, connections: int, seconds: float) -> dict[str, float]:
    """Run the load generator in a process of its own."""
    arguments = ["--load", str(port), model, str(connections), str(seconds)]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    summary: dict[str, float] = json.loads(done.stdout)
    return summary


def cpu_s(pid: int) -> float:
    """User and system time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Proportional set size in KiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])  # type: ignore[index]  # pyrefly: ignore


if __name__ == "__main__":
    main()
