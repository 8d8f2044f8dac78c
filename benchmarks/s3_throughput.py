"""Measure the throughput of the object store through boto3, compared with moto's server in the same run.

    python benchmarks/s3_throughput.py [--rounds 5] [--size-mib 128] [--objects 200] [--only small]

Prints the median of interleaved rounds for both servers, and the ratio; and the CPU time of both servers, which depends
less on other programs. Client and servers share the machine, so only the ratios are meaningful. moto keeps objects in
memory and syncs nothing; tidemill makes each put and each delete durable.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

MOTO_SERVER = Path(__file__).resolve().parents[1] / ".venvs/peers/bin/moto_server"
REGION = "us-west-2"
BUCKET = "throughput"
START_TIMEOUT_S = 60
SMALL_BYTES = 64 * 1024
LISTS = 10
MIB = 1024 * 1024

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Measure = Callable[[Any], float]
"""Performs one kind of operation with a client and returns the rate."""


@dataclass(frozen=True)
class Server:
    """A running server, and a client of it."""

    client: Any
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU time of the server's process so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


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
def tidemill(directory: Path) -> Generator[Server]:
    """Start the service as a user does, and yield it."""
    state = directory / "state"
    command = [sys.executable, "-m", "tidemill.cli", "up", "--foreground", "--port", "0", "--state-dir", str(state)]
    with (directory / "tidemill.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"AWS_DEFAULT_REGION": REGION})
    try:
        service = json.loads(wait_for(state / "service.json", process, log=directory / "tidemill.log"))
        keys = json.loads((state / "keys.json").read_text())
        yield Server(client_of(service["url"], keys["access_key_id"], keys["secret_access_key"]), process.pid)
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def moto(directory: Path) -> Generator[Server]:
    """Start moto's server and yield it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (directory / "moto.log").open("w") as log:
        process = subprocess.Popen([MOTO_SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        client = client_of(f"http://127.0.0.1:{port}", "key", "secret")
        client.list_buckets()  # tried again until it listens
        yield Server(client, process.pid)
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


def measures(directory: Path, *, size_mib: int, objects: int, small_only: bool) -> dict[str, tuple[str, Measure]]:
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

    def head_small(s3: Any) -> None:
        for index in range(objects):
            s3.head_object(Bucket=BUCKET, Key=f"small/{index}")

    def list_small(s3: Any) -> None:
        for _ in range(LISTS):
            s3.list_objects_v2(Bucket=BUCKET, Prefix="small/")

    def delete_small(s3: Any) -> None:
        for index in range(objects):
            s3.delete_object(Bucket=BUCKET, Key=f"small/{index}")

    unit, per_s = "MB/s", "/s"
    megabytes = len(data) / 1e6
    found: dict[str, tuple[str, Measure]] = {
        "put_object": (unit, lambda s3: rate(megabytes, lambda: s3.put_object(Bucket=BUCKET, Key="put", Body=data))),
        "get_object": (unit, lambda s3: rate(megabytes, lambda: get(s3))),
        "upload_file": (unit, lambda s3: rate(megabytes, lambda: s3.upload_file(str(source), BUCKET, "file"))),
        "download_file": (unit, lambda s3: rate(megabytes, lambda: s3.download_file(BUCKET, "file", str(sink)))),
        "put 64 KiB": (per_s, lambda s3: rate(objects, lambda: put_small(s3))),
        "get 64 KiB": (per_s, lambda s3: rate(objects, lambda: get_small(s3))),
        "head": (per_s, lambda s3: rate(objects, lambda: head_small(s3))),
        "list": (per_s, lambda s3: rate(LISTS, lambda: list_small(s3))),
        "delete": (per_s, lambda s3: rate(objects, lambda: delete_small(s3))),
    }
    return {name: each for name, each in found.items() if not small_only or each[0] == per_s}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size-mib", type=int, default=128)
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--only", choices=("small",), help="leave out the operations on one large object")
    arguments = parser.parse_args()
    if not MOTO_SERVER.exists():
        raise SystemExit(f"{MOTO_SERVER} is missing: it is what the service is compared with")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with tidemill(directory) as ours, moto(directory) as theirs:
            servers = {"tidemill": ours, "moto": theirs}
            for server in servers.values():
                server.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
            wanted = measures(
                directory, size_mib=arguments.size_mib, objects=arguments.objects, small_only=arguments.only == "small"
            )
            report(servers, wanted, rounds=arguments.rounds)


def report(servers: dict[str, Server], wanted: dict[str, tuple[str, Measure]], *, rounds: int) -> None:
    """Run one round to warm up and then ``rounds``, both servers in each, and print medians and ratios."""
    found: dict[tuple[str, str], list[float]] = {}
    cpu_s: dict[tuple[str, str], float] = {}
    for turn in range(rounds + 1):
        for what, (_, measure) in wanted.items():
            for who, server in servers.items():
                before_s = server.cpu_s()
                value = measure(server.client)
                if turn:
                    found.setdefault((what, who), []).append(value)
                    cpu_s[what, who] = cpu_s.get((what, who), 0.0) + server.cpu_s() - before_s
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, median of {rounds} rounds")
    print(f"{'':14} {'tidemill':>10} {'moto':>10} {'ratio':>7}  (least - greatest ratio of a round), CPU time of both")
    for what, (unit, _) in wanted.items():
        ours, theirs = found[what, "tidemill"], found[what, "moto"]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        print(
            f"{what:14} {statistics.median(ours):10.1f} {statistics.median(theirs):10.1f}"
            f" {statistics.median(ratios):6.2f}x  ({min(ratios):.2f} - {max(ratios):.2f}) {unit}"
            f", {cpu_s[what, 'tidemill'] / rounds:.2f} and {cpu_s[what, 'moto'] / rounds:.2f} s a round"
        )


if __name__ == "__main__":
    main()
