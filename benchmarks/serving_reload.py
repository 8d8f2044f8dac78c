"""Measure how long requests wait while the server changes to a new version of a model.

    .venvs/tf-2.21/bin/python benchmarks/serving_reload.py [--rounds 15] [--seconds 1.5]

A client with one connection sends requests to ``mlp`` (784-512-512-10) without pause. Time is divided into windows. In
every second window the server loads a new version: it reads it, warms it up, swaps it in and frees the old one. The
longest time without an answer in each window is printed, and the ratio of the medians. A quiet machine has pauses too,
hence the many windows.
"""

import argparse
import contextlib
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from serving import BODIES, MODELS, end

POLL_S = 0.05


def main() -> None:
    """Print the longest pauses without and with a reload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    given = parser.parse_args()
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        subprocess.run([sys.executable, "-c", MODELS, name], check=True, capture_output=True)
        base = directory / "served"
        put(directory, base, version=1)
        port = started(directory, base, ends)
        client = SteadyClient(port)
        ends.callback(client.stop)
        quiet: list[float] = []
        reloading: list[float] = []
        for number in range(given.rounds):
            quiet.append(client.longest_ms(given.seconds))
            swap = threading.Thread(target=put, args=(directory, base), kwargs={"version": number + 2})
            threading.Timer(given.seconds / 4, swap.start).start()
            reloading.append(client.longest_ms(given.seconds))
            swap.join()
            assert available(port) == [number + 2], "the window ended before the new version served"
            shutil.rmtree(base / str(number + 1))
        for what, pauses in (("without", quiet), ("with", reloading)):
            shown = ", ".join(f"{each:.1f}" for each in sorted(pauses))
            print(f"longest pause {what} a reload: median {statistics.median(pauses):.2f} ms ({shown})")
        print(f"ratio of the medians: {statistics.median(reloading) / statistics.median(quiet):.2f}")


def put(models: Path, base: Path, *, version: int) -> None:
    """Put a complete version in place by one rename."""
    hidden = base / f".{version}"
    shutil.copytree(models / "mlp" / "1", hidden)
    hidden.rename(base / str(version))


def started(directory: Path, base: Path, ends: contextlib.ExitStack) -> int:
    """Start the server; return its port."""
    config = directory / "models.config"
    entry = f'name: "mlp" base_path: "{base}" model_platform: "tensorflow"'
    config.write_text(f"model_config_list {{ config {{ {entry} }} }}\n")
    options = [f"--model_config_file={config}", f"--file_system_poll_wait_seconds={POLL_S}", "--port", "0"]
    command = [sys.executable, "-m", "tidemill_serving", "--model-dir", str(directory / "none"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ends.callback(end, process)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("server.ready"):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return int(line.rpartition(":")[2])
    raise SystemExit("the server has not started")


def available(port: int) -> list[int]:
    """Return the versions that are available."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/v1/models/mlp")
    statuses = json.loads(connection.getresponse().read())["model_version_status"]
    connection.close()
    return [int(each["version"]) for each in statuses if each["state"] == "AVAILABLE"]


class SteadyClient:
    """A client that sends requests all the time, and notes the longest pause between two answers."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._longest_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send_requests)
        self._thread.start()

    def longest_ms(self, seconds: float) -> float:
        """Wait, and return the longest pause in that time, in milliseconds."""
        self._longest_s = 0.0
        time.sleep(seconds)
        return self._longest_s * 1e3

    def stop(self) -> None:
        """End the client."""
        self._stopped.set()
        self._thread.join()

    def _send_requests(self) -> None:
        last = time.perf_counter()
        while not self._stopped.is_set():
            self._connection.request("POST", "/v1/models/mlp:predict", BODIES["mlp"])
            assert self._connection.getresponse().read()
            now = time.perf_counter()
            self._longest_s = max(self._longest_s, now - last)
            last = now


if __name__ == "__main__":
    main()
