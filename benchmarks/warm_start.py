"""Measure the time from the start of the runtime to the script's first line after ``import tensorflow``: warm and cold.

Run it in an environment with TensorFlow: ``python warm_start.py [ROUNDS]``. Warm and cold starts are interleaved;
compare the ratio of the minima.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = "import tensorflow as tf\nprint('first line', tf.__version__)\n"


def main(rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        (base / "ml" / "input" / "config").mkdir(parents=True)
        (base / "ml" / "code").mkdir()
        (base / "ml" / "code" / "train.py").write_text(SCRIPT)
        config = base / "ml" / "input" / "config" / "hyperparameters.json"
        config.write_text(json.dumps({"sagemaker_program": "train.py"}))
        variables = {"PATH": os.environ["PATH"], "HOME": place, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        socket = base / "socket"
        command = [sys.executable, "-m", "tidemill_runtime", "warm", "--socket", str(socket), "--import", "tensorflow"]
        zygote = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE)
        assert zygote.stderr is not None
        started = time.perf_counter()
        for line in zygote.stderr:
            if b"warm.ready" in line:
                break
        print(f"zygote ready after {time.perf_counter() - started:.2f} s")
        job = {**variables, "HOME": str(base / "none"), "SAGEMAKER_BASE_DIR": str(base / "ml")}
        times: dict[str, list[float]] = {"cold": [], "warm": []}
        try:
            for _ in range(rounds):
                times["cold"].append(first_line_s(job))
                times["warm"].append(first_line_s({**job, "TIDEMILL_WARM_SOCKET": str(socket)}))
        finally:
            zygote.terminate()
            zygote.communicate()
    for name, values in times.items():
        print(f"{name}: min {min(values):.3f} s, median {statistics.median(values):.3f} s over {rounds} rounds")
    print(f"cold / warm (minima): {min(times['cold']) / min(times['warm']):.1f}")


def first_line_s(variables: dict[str, str]) -> float:
    """Run one job, and return the seconds until its first line."""
    shutil.rmtree(Path(variables["HOME"]) / ".keras", ignore_errors=True)  # every job has its own HOME
    started = time.perf_counter()
    command = [sys.executable, "-m", "tidemill_runtime", "train"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed_s = time.perf_counter() - started
        _, errors = process.communicate()
    assert line.startswith(b"first line"), errors.decode()
    assert b"warm.skipped" not in errors, errors.decode()
    return elapsed_s


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
