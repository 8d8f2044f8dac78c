"""Measure signed creates and describes per second, the server's CPU time of each, and the disk's raw fdatasync rate.

    python benchmarks/control_plane.py [--requests 3000] [--connections 32] [--rounds 3]

The client shares the machine with the server. Requests are signed before the clock starts, so the figures do not
include signing. A create is a CreateModel: it is committed (fsync) before it is answered, and starts no job.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


def signed(service: Service, operation: str, body: dict[str, object]) -> bytes:
    """Return a complete, signed HTTP request."""
    variables = service.environment
    credentials = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    data = json.dumps(body).encode()
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": f"SageMaker.{operation}"}
    request = AWSRequest("POST", service.url + "/", headers=headers, data=data)
    SigV4Auth(credentials, "sagemaker", variables["AWS_REGION"]).add_auth(request)
    host = urlsplit(service.url).netloc
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(data)}\r\n{lines}\r\n".encode() + data


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode() + (await reader.read(2000)).decode())
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))


async def load(url: str, requests: Sequence[bytes], connections: int) -> tuple[float, list[float]]:
    """Send all requests over some connections. Returns the seconds for all of them, and those of each."""
    parts = urlsplit(url)
    waiting = iter(requests)
    latencies: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for request in waiting:
            begun = time.perf_counter()
            await _exchange(reader, writer, request)
            latencies.append(time.perf_counter() - begun)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return time.perf_counter() - begun, latencies


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fdatasync_rate(directory: Path, seconds: float = 1.0) -> float:
    """Return how many appends of 4 KiB, each followed by fdatasync, the disk does in a second."""
    fd = os.open(directory / "fdatasync", os.O_WRONLY | os.O_CREAT)
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        os.write(fd, bytes(4096))
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / (time.perf_counter() - begun)


def measure(service: Service, name: str, requests: Sequence[bytes], connections: int) -> dict[str, float]:
    """Measure one round of one operation."""
    pid = service.pid
    if pid is None:
        raise RuntimeError(f"the service has ended:\n{service.log}")
    before = cpu_s(pid)
    seconds, latencies = asyncio.run(load(service.url, requests, connections))
    used = cpu_s(pid) - before
    latencies.sort()
    return {
        "rate": len(requests) / seconds,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "cpu_us": used / len(requests) * 1e6,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {"create": [], "describe": []}
    syncs: list[float] = []
    with tempfile.TemporaryDirectory() as directory, Service(state_dir=Path(directory) / "state") as service:
        for _ in range(options.rounds):
            names = [f"m-{uuid.uuid4().hex}" for _ in range(options.requests)]
            container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://bucket/model.tar.gz"}
            creates = [
                signed(
                    service,
                    "CreateModel",
                    {"ModelName": name, "ExecutionRoleArn": ROLE, "PrimaryContainer": container},
                )
                for name in names
            ]
            describes = [signed(service, "DescribeModel", {"ModelName": name}) for name in names]
            syncs.append(fdatasync_rate(Path(directory)))
            results["create"].append(measure(service, "create", creates, options.connections))
            results["describe"].append(measure(service, "describe", describes, options.connections))
    sync = statistics.median(syncs)
    print(f"raw fdatasync/s: {sync:.0f}  (rounds: {', '.join(f'{s:.0f}' for s in syncs)})")
    for name, rounds in results.items():
        rate = statistics.median(r["rate"] for r in rounds)
        print(
            f"{name:9} {rate:7.0f}/s  = {rate / sync:5.2f} x fdatasync"
            f"  p99 {statistics.median(r['p99_ms'] for r in rounds):6.1f} ms"
            f"  server CPU {statistics.median(r['cpu_us'] for r in rounds):5.0f} us a request"
            f"  (rounds: {', '.join(format(r['rate'], '.0f') for r in rounds)})"
        )


if __name__ == "__main__":
    main()
