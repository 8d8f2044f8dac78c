"""Measure the costs of each engine of an endpoint, in interleaved rounds: its start, its memory and each call.

    .venvs/tf-2.21/bin/python benchmarks/serving_engine.py [--rounds 3] [--calls 5000]

Start: CPU time of the server's process (user and system) until its first answer, and its memory at that time. For a
page that several processes share, PSS counts each one's part; RSS counts the whole page, as for an endpoint that is
alone on its machine. Calls: CPU time per call of a process that runs a signature again and again. `ctypes` is the
engine c_api without its native library. Medians; the machine's load distorts even CPU times, so compare within one run
only.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from serving import BODIES, MODELS, cpu_s

CALLS = """
import json, sys, time
from pathlib import Path
import numpy as np
from tidemill_serving.engine import native_call, open_engine
from tidemill_serving._shared.native_build.compiling import CompileError

def no_library(sources):
    raise CompileError("left out")

directory, name, calls = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if name == "ctypes":
    native_call.find_library = no_library
engine = open_engine("session" if name == "session" else "c_api")
results = {}
for model_name, rows in (("half_plus_two", 1), ("mlp", 32)):
    model = engine.load(directory / model_name / "1")
    signature = model.signatures["serving_default"]
    (spec,) = signature.inputs.values()
    feeds = [np.random.default_rng(0).random((rows, *spec.shape[1:]), dtype=np.float32)]
    number = calls if rows == 1 else max(1, calls // 20)
    for _ in range(50):
        model.run(signature, feeds, pooled=False)
    begin = time.process_time()
    for _ in range(number):
        model.run(signature, feeds, pooled=False)
    results[f"{model_name}, {rows} rows"] = (time.process_time() - begin) / number * 1e6
print(json.dumps(results))
"""
ENGINES = ("c_api", "session")
CALLERS = ("c_api", "ctypes", "session")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5000, help="runs of one measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([sys.executable, "-c", MODELS, directory], check=True, env=quiet, stderr=subprocess.DEVNULL)
        starts: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        calls: dict[str, list[dict[str, float]]] = {caller: [] for caller in CALLERS}
        for _ in range(given.rounds):
            for engine in ENGINES:
                starts[engine].append(start(Path(directory, "half_plus_two"), engine))
            for caller in CALLERS:
                calls[caller].append(measure_calls(Path(directory), caller, given.calls))
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, medians of {given.rounds} rounds")
    for title, table in (("start to first answer", starts), ("CPU us a call", calls)):
        print(title)
        for name, found in table.items():
            medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
            print(f"  {name:8}", ", ".join(f"{key} {value:.2f}" for key, value in medians.items()))


def start(model_dir: Path, engine: str) -> dict[str, float]:
    """Start a server, send one request, and return the CPU time and the memory until the answer."""
    command = [sys.executable, "-m", "tidemill_serving", "--model-dir", str(model_dir), "--port", "0"]
    server = subprocess.Popen(
        [*command, "--engine", engine], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    try:
        port = next(int(line.rpartition(":")[2]) for line in server.stdout if line.startswith("server.ready"))
        send_request(port)
        memory = Path(f"/proc/{server.pid}/smaps_rollup").read_text()
        kilobytes = {kind: int(re.findall(rf"^{kind}:\s+(\d+)", memory, re.MULTILINE)[0]) for kind in ("Pss", "Rss")}
        return {"CPU s": cpu_s(server.pid)} | {f"{kind.upper()} MB": kb / 1024 for kind, kb in kilobytes.items()}
    finally:
        server.terminate()
        server.stdout.close()
        server.wait()


def send_request(port: int) -> None:
    """Send one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/invocations", BODIES["half_plus_two"], {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def measure_calls(directory: Path, caller: str, calls: int) -> dict[str, float]:
    """Return the CPU time of a call of each model, in microseconds, measured in a separate process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CALLS, str(directory), caller, str(calls)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    results: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return results


if __name__ == "__main__":
    main()
