"""Measure FastFile mode with a remote S3: reading a large object in order, and the start of a job with many objects.

    python benchmarks/fast_files.py [--rounds 3] [--mib 1024] [--files 100000]

A second service on this machine is the remote S3. Each round downloads the object with boto3, then runs one job in
FastFile mode and one in File mode that read it once. A job's time starts with `fit()`. Sizes are in MiB.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

from fitting import fit
from tidemill.core.clock import SystemClock
from tidemill.sdk import TrainingInput
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.store import ObjectStore
from tidemill.testing import Service

MIB = 1 << 20
BUCKET = "far-data"
SCRIPT = """
import os, time
print('AT', time.time(), flush=True)
directory = os.environ['SM_CHANNEL_TRAIN']
began, buffer, total = time.perf_counter(), bytearray(1 << 20), 0
if os.path.exists(directory + '/x'):
    with open(directory + '/x', 'rb', buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    print('READ', total / (1 << 20) / (time.perf_counter() - began), flush=True)
else:
    count = len(os.listdir(directory))
    print('LISTED', count, time.perf_counter() - began, flush=True)
print('END', time.time(), flush=True)
"""


async def fill(state_dir: Path, size_bytes: int, files: int) -> None:
    """Put one random object, and many files of 100 bytes, into the bucket of a stopped store."""
    with SqliteDatabase.open(state_dir / "state.db", metadata=metadata) as database:
        store = ObjectStore(database, state_dir / "objects", clock=SystemClock())
        await store.ensure_bucket(BUCKET)
        await store.put_bytes(BUCKET, "large/x", os.urandom(size_bytes))
        at_once = 200
        for start in range(0, files, at_once):
            numbers = range(start, min(start + at_once, files))
            await asyncio.gather(*(store.put_bytes(BUCKET, f"files/{n:07}", b"%100d" % n) for n in numbers))
        await store.close()


def by_fit(service: Service, script: Path, name: str, mode: str) -> dict[str, float]:
    """Return the last number of each line that the script printed, and the seconds from `fit()` to two of them."""
    begun, output = fit(service, script, {"train": TrainingInput(f"s3://{BUCKET}/{name}/", input_mode=mode)})
    lines = [line.split() for line in output.splitlines()]
    found = {word: float(line[-1]) for line in lines for word in ("AT", "READ", "LISTED", "END") if word in line[:-1]}
    return {**found, "AT": found["AT"] - begun, "END": found["END"] - begun}


def by_boto3(remote: Service, target: Path) -> float:
    """Return the seconds of a plain download to a file."""
    begun = time.perf_counter()
    remote.client("s3").download_file(BUCKET, "large/x", str(target))
    seconds = time.perf_counter() - begun
    target.unlink()
    return seconds


def show(name: str, values: list[float], unit: str) -> None:
    print(f"{name:52} median {statistics.median(values):8.2f} {unit} (min {min(values):.2f}, max {max(values):.2f})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=100_000)
    arguments = parser.parse_args()
    measured: dict[tuple[str, str], list[float]] = {}

    def note(name: str, unit: str, value: float) -> None:
        measured.setdefault((name, unit), []).append(value)

    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as directory:
        far_dir, script = Path(directory, "far"), Path(directory, "train.py")
        script.write_text(SCRIPT)
        with Service(state_dir=far_dir):
            pass  # the first start creates the state directory
        asyncio.run(fill(far_dir, arguments.mib * MIB, arguments.files))
        with contextlib.ExitStack() as stack:
            far = stack.enter_context(Service(state_dir=far_dir))
            keys = {name: far.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
            settings = {"remote_s3": {"far-*": {"endpoint_url": far.url}}}
            variables = {**keys, "AWS_EC2_METADATA_DISABLED": "true"}
            service = stack.enter_context(Service(settings=settings, variables=variables))
            by_fit(service, script, "large", "FastFile")
            for _ in range(arguments.rounds):
                note("boto3 download_file", "MiB/s", arguments.mib / by_boto3(far, Path(directory, "copy")))
                for mode in ("FastFile", "File"):
                    found = by_fit(service, script, "large", mode)
                    note(f"{mode}: read by the script", "MiB/s", found["READ"])
                    note(f"{mode}: first line", "s", found["AT"])
                    note(f"{mode}: everything read", "s", found["END"])
                if arguments.files:
                    found = by_fit(service, script, "files", "FastFile")
                    note(f"FastFile, {arguments.files} objects: first line", "s", found["AT"])
                    note(f"FastFile, {arguments.files} objects: os.listdir", "s", found["LISTED"])
    for (name, unit), values in measured.items():
        show(name, values, unit)


if __name__ == "__main__":
    main()
