"""Measure the throughput of the object store through boto3, compared with moto's server in the same run.

    python benchmarks/s3_throughput.py [--rounds 5] [--size-mib 128] [--objects 200]

Prints the median of interleaved rounds for both servers, and the ratio. Client and servers share the machine, so only
the ratios are meaningful. moto keeps objects in memory and syncs nothing; tidemill makes each put durable.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

MOTO_SERVER = Path(__file__).resolve().parents[1] / ".venvs/peers/bin/moto_server"
REGION = "us-west-2"
BUCKET = "throughput"
START_TIMEOUT_S = 60
SMALL_BYTES = 64 * 1024
MIB = 1024 * 1024

Measure = Callable[[Any], float]
"""Performs one kind of operation with a client and returns the rate."""


def client_of(url: str, access_key: str, secret_key: str) -> Any:
    """Return a boto3 client with default settings."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(retries={"total_max_attempts": 10, "mode": "standard"}),
    )


@contextmanager
def tidemill(directory: Path) -> Generator[Any]:
    """Start the service as a user does, and yield a client of it."""
    state = directory / "state"
    command = [sys.executable, "-m", "tidemill.cli", "up", "--foreground", "--port", "0", "--state-dir", str(state)]
    with (directory / "tidemill.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"AWS_DEFAULT_REGION": REGION})
    try:
        service = json.loads(wait_for(state / "service.json", process, log=directory / "tidemill.log"))
        keys = json.loads((state / "keys.json").read_text())
        yield client_of(service["url"], keys["access_key_id"], keys["secret_access_key"])
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def moto(directory: Path) -> Generator[Any]:
    """Start moto's server and yield a client of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (directory / "moto.log").open("w") as log:
        process = subprocess.Popen([MOTO_SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        client = client_of(f"http://127.0.0.1:{port}", "key", "secret")
        client.list_buckets()  # tried again until it listens
        yield client
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_for(path: Path, process: "subprocess.Popen[bytes]", *, log: Path) -> str:
    """Wait for a file that a starting process writes, and return its content."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the service did not start; its log says:\n{log.read_text()[-4000:]}")
        time.sleep(0.05)
    return path.read_text()


def measures(directory: Path, *, size_mib: int, objects: int) -> dict[str, tuple[str, Measure]]:
    """Return the unit and the function of each measurement, by name."""
    data = os.urandom(size_mib * MIB)
    source, sink = directory / "source", directory / "sink"
    source.write_bytes(data)
    small = data[:SMALL_BYTES]

    def rate(amount: float, work: Callable[[], object]) -> float:
        begun = time.perf_counter()
        work()
        return amount / (time.perf_counter() - begun)

    def get(s3: Any) -> None:
        body = s3.get_object(Bucket=BUCKET, Key="put")["Body"]
        while body.read(MIB):
            pass

    def put_small(s3: Any) -> None:
        for index in range(objects):
            s3.put_object(Bucket=BUCKET, Key=f"small/{index}", Body=small)

    def get_small(s3: Any) -> None:
        for index in range(objects):
            s3.get_object(Bucket=BUCKET, Key=f"small/{index}")["Body"].read()

    unit = "MB/s"
    megabytes = len(data) / 1e6
    return {
        "put_object": (unit, lambda s3: rate(megabytes, lambda: s3.put_object(Bucket=BUCKET, Key="put", Body=data))),
        "get_object": (unit, lambda s3: rate(megabytes, lambda: get(s3))),
        "upload_file": (unit, lambda s3: rate(megabytes, lambda: s3.upload_file(str(source), BUCKET, "file"))),
        "download_file": (unit, lambda s3: rate(megabytes, lambda: s3.download_file(BUCKET, "file", str(sink)))),
        "put 64 KiB": ("obj/s", lambda s3: rate(objects, lambda: put_small(s3))),
        "get 64 KiB": ("obj/s", lambda s3: rate(objects, lambda: get_small(s3))),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size-mib", type=int, default=128)
    parser.add_argument("--objects", type=int, default=200)
    arguments = parser.parse_args()
    if not MOTO_SERVER.exists():
        raise SystemExit(f"{MOTO_SERVER} is missing: it is what the service is compared with")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with tidemill(directory) as ours, moto(directory) as theirs:
            clients = {"tidemill": ours, "moto": theirs}
            for client in clients.values():
                client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
            wanted = measures(directory, size_mib=arguments.size_mib, objects=arguments.objects)
            report(clients, wanted, rounds=arguments.rounds)


def report(clients: dict[str, Any], wanted: dict[str, tuple[str, Measure]], *, rounds: int) -> None:
    """Run one round to warm up and then ``rounds``, both servers in each, and print medians and ratios."""
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for what, (_, measure) in wanted.items():
            for who, client in clients.items():
                value = measure(client)
                if turn:
                    found.setdefault((what, who), []).append(value)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, median of {rounds} rounds")
    print(f"{'':14} {'tidemill':>10} {'moto':>10} {'ratio':>7}  (least - greatest ratio of a round)")
    for what, (unit, _) in wanted.items():
        ours, theirs = found[what, "tidemill"], found[what, "moto"]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        print(
            f"{what:14} {statistics.median(ours):10.1f} {statistics.median(theirs):10.1f}"
            f" {statistics.median(ratios):6.2f}x  ({min(ratios):.2f} - {max(ratios):.2f}) {unit}"
        )


if __name__ == "__main__":
    main()
