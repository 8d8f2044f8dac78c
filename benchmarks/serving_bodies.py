"""Measure how much requests with large bodies delay those of a quick model beside them.

    .venvs/tf-2.21/bin/python benchmarks/serving_bodies.py [--seconds 3] [--rounds 5]

A model that answers from the event loop gets a small request every 2 ms. Meanwhile another process sends bodies of 1 MB
to another model, some per second. The kinds of bodies take turns in each round: none, numbers (which the native library
reads), strings, and base64. Printed are the medians of the rounds' percentiles of the quick model's latencies, which
count from the intended times of the requests, and of the large requests' latencies.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from serving_load import Client, request_of

MODELS = """
import sys, tensorflow as tf
def save(name, spec, function):
    module = tf.Module()
    module.serve = tf.function(function, input_signature=[spec])
    tf.saved_model.save(module, f"{sys.argv[1]}/{name}/1", signatures={"serving_default": module.serve})
save("quick", tf.TensorSpec([None], tf.float32, name="x"), lambda x: {"y": 0.5 * x + 2.0})
save("numbers", tf.TensorSpec([None, None], tf.float32, name="x"), lambda x: {"y": tf.reduce_sum(x, 1)})
lengths = tf.strings.length
save("strings", tf.TensorSpec([None, None], tf.string, name="x"), lambda x: {"y": tf.reduce_sum(lengths(x), 1)})
save("bytes", tf.TensorSpec([None], tf.string, name="x"), lambda x: {"y": lengths(x)})
"""
BODY_BYTES = 1_000_000
BODIES = {
    "numbers": lambda: [[index / 7 for index in range(BODY_BYTES // 19)]],
    "strings": lambda: [["a text of 20 letters"] * (BODY_BYTES // 24)],
    "bytes": lambda: [{"b64": base64.b64encode(os.urandom(BODY_BYTES * 3 // 4)).decode()}],
}
EVERY_S = 0.002
BODIES_PER_S = 8
NONE = "none"


def request(model: str, instances: object) -> bytes:
    return request_of(f"/v1/models/{model}:predict", json.dumps({"instances": instances}).encode())


async def ask(port: int, body: bytes, *, every_s: float, seconds: float) -> list[float]:
    """Send requests at equal intervals; return the latencies in milliseconds from the intended times."""
    loop = asyncio.get_running_loop()
    times_ms: list[float] = []

    def answered(client: Client) -> None:
        times_ms.append((time.perf_counter() - client.begin_s) * 1e3)
        client.begin_s = 0.0
        idle.append(client)

    def failed(error: Exception) -> None:
        loop.stop()
        raise error

    async def connect() -> Client:
        return (await loop.create_connection(lambda: Client(answered, failed), "127.0.0.1", port))[1]

    idle = [await connect() for _ in range(4)]
    begin_s, sent = time.perf_counter(), int(seconds / every_s)
    for turn in range(sent):
        due_s = begin_s + turn * every_s
        if (pause_s := due_s - time.perf_counter()) > 0:
            await asyncio.to_thread(time.sleep, pause_s)  # the loop's own timers count whole milliseconds
        (idle.pop() if idle else await connect()).send(body, due_s)
    while len(times_ms) < sent:
        await asyncio.sleep(0.01)
    return times_ms


def measure(port: int, kind: str, seconds: float) -> tuple[float, ...]:
    """Return the percentiles of the quick model, and the median of the large requests."""
    large = None
    if kind != NONE:
        command = [sys.executable, __file__, "--send", kind, "--port", str(port), "--seconds", str(seconds)]
        large = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert large.stdout is not None
        assert large.stdout.readline() == "ready\n"
    times_ms = sorted(uvloop.run(ask(port, request("quick", [1.0]), every_s=EVERY_S, seconds=seconds)))
    percentiles = (times_ms[int(len(times_ms) * part)] for part in (0.5, 0.9, 0.99))
    return (*percentiles, float(large.communicate()[0]) if large is not None else float("nan"))


def send(port: int, kind: str, seconds: float) -> None:
    """Send the large bodies, and print the median of their latencies."""
    body = request(kind, BODIES[kind]())
    print("ready", flush=True)
    print(statistics.median(uvloop.run(ask(port, body, every_s=1 / BODIES_PER_S, seconds=seconds))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--send", choices=BODIES, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        send(given.port, given.send, given.seconds)
        return
    found: dict[str, list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", MODELS, directory], check=True, stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "tidemill_serving", "--model-dir", directory, "--port", "0"]
        log = Path(directory) / "log"
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
            try:
                while not (ready := re.search(r"server.ready .*http://127\.0\.0\.1:(\d+)", log.read_text())):
                    assert server.poll() is None, log.read_text()
                    time.sleep(0.1)
                for round_ in range(given.rounds + 1):
                    for kind in (NONE, *BODIES):
                        result = measure(int(ready[1]), kind, given.seconds if round_ else 1.0)
                        if round_:  # the first one warms up
                            found.setdefault(kind, []).append(result)
            finally:
                server.send_signal(signal.SIGTERM)
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(
        f"| {BODIES_PER_S} bodies of 1 MB a second | quick p50 ms | p90 | p99 | large p50 ms |\n|---|---|---|---|---|"
    )
    for kind, results in found.items():
        print(
            f"| {kind} | " + " | ".join(f"{statistics.median(each):.3g}" for each in zip(*results, strict=True)) + " |"
        )


if __name__ == "__main__":
    main()
