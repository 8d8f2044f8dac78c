"""Measure writing and reading checkpoints through `s3://`, compared with the same bytes through boto3.

    .venvs/tf-2.21/bin/python benchmarks/s3_files.py [--size-mib 1024] [--rounds 3]

Prints the median rates of interleaved rounds in MiB/s of wall time, and the ratios. boto3 uploads and downloads with
its defaults, several parts at once, from and to memory. Writing a checkpoint includes two renames; reading includes the
copy into the variable.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
ROOT = Path(__file__).resolve().parents[1]
MIB = 1024 * 1024
BUCKET = "files"


def service_variables(directory: Path) -> dict[str, str]:
    """Start a service, and return the variables by which boto3 finds it."""
    tidemill = ROOT / ".venv/bin/tidemill"
    environment = os.environ | {"TIDEMILL_STATE_DIR": str(directory)}
    subprocess.run([tidemill, "up", "--port", "0"], env=environment, check=True, stdout=subprocess.DEVNULL)
    printed = subprocess.run([tidemill, "env", "--json"], env=environment, check=True, capture_output=True, text=True)
    return json.loads(printed.stdout)


def ways(size: int) -> dict[str, Callable[[], Any]]:
    """Return the functions to measure, by name."""
    import boto3
    import tensorflow as tf

    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    variable = tf.Variable(tf.random.normal([size // 4]))
    checkpoint = tf.train.Checkpoint(variable=variable)
    content = variable.numpy().tobytes()

    def read_by_boto3() -> None:
        target = io.BytesIO()
        s3.download_fileobj(BUCKET, "plain", target)
        assert target.getbuffer().nbytes == size  # parts arrive in any order, so the position is no measure of progress

    return {
        "write by boto3": lambda: s3.upload_fileobj(io.BytesIO(content), BUCKET, "plain"),
        "write checkpoint": lambda: checkpoint.write(f"s3://{BUCKET}/checkpoint"),
        "read by boto3": read_by_boto3,
        "read checkpoint": lambda: checkpoint.read(f"s3://{BUCKET}/checkpoint").assert_consumed(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as directory:
        os.environ.update(service_variables(Path(directory, "state")))
        try:
            import tidemill_tensorflow

            tidemill_tensorflow.activate()
            measured = ways(arguments.size_mib * MIB)
            rates: dict[str, list[float]] = {name: [] for name in measured}
            for _ in range(arguments.rounds):
                for name, run in measured.items():
                    begin = time.perf_counter()
                    run()
                    rates[name].append(arguments.size_mib / (time.perf_counter() - begin))
        finally:
            down = [ROOT / ".venv/bin/tidemill", "down"]
            subprocess.run(down, env=os.environ | {"TIDEMILL_STATE_DIR": f"{directory}/state"}, check=False)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:18} {medians[name]:7.0f} MiB/s  ({', '.join(f'{value:.0f}' for value in values)})")
    print(f"write: {medians['write checkpoint'] / medians['write by boto3']:.2f} of boto3's rate (goal 0.8)")
    print(f"read:  {medians['read checkpoint'] / medians['read by boto3']:.2f} of boto3's rate (goal 0.8)")


if __name__ == "__main__":
    sys.exit(main())
