"""Measure the time from `fit()` to the first line of the script, with channels of different sizes.

    python benchmarks/channels.py [--rounds 5] [--large-gib 20] [--files 100000]

The data is in the service's own S3. The large object is a sparse file, which the store adopts in the same way as a
job's model. The benchmark prints medians of interleaved rounds, ratios to the channel of 1 MB, and the time per file:
for the first job with these files, which links them, and for later jobs, which share its links. In one further round,
which is not timed, it measures the peak memory (RSS) of the service and of the largest of the instance's processes.
"""

import argparse
import asyncio
import contextlib
import hashlib
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from fitting import fit
from tidemill.core.clock import SystemClock
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.store import ObjectStore
from tidemill.testing import Service

MIB = 1 << 20
SCRIPT = "import time; print('AT', time.time(), flush=True)\n"


async def fill(state_dir: Path, sizes: dict[str, int], files: int) -> None:
    """Put one sparse object per size, and many files of 100 bytes, into the bucket ``data`` of a stopped store."""
    with SqliteDatabase.open(state_dir / "state.db", metadata=metadata) as database:
        store = ObjectStore(database, state_dir / "objects", clock=SystemClock())
        await store.ensure_bucket("data")
        for name, size in sizes.items():
            file = state_dir / name
            with file.open("wb") as writer:
                writer.truncate(size)
            sha256, md5, piece = hashlib.sha256(), hashlib.md5(usedforsecurity=False), bytes(MIB)
            for _ in range(size // MIB):
                sha256.update(piece)
                md5.update(piece)
            await store.adopt(
                "data", f"{name}/x", file, sha256=sha256.hexdigest(), md5=md5.hexdigest(), size_bytes=size
            )
        at_once = 200
        for start in range(0, files, at_once):
            numbers = range(start, min(start + at_once, files))
            await asyncio.gather(*(store.put_bytes("data", f"files/{n:07}", b"%100d" % n) for n in numbers))
        await store.close()


def by_fit(service: Service, script: Path, name: str) -> float:
    """Return the seconds from `fit()` to the script's line."""
    begun, output = fit(service, script, {"train": f"s3://data/{name}/"})
    return float(next(line.split()[-1] for line in output.splitlines() if "AT " in line)) - begun


class Peaks:
    """Context that measures peak memory (RSS, in MiB) of a service, and of the largest process below it.

    Attributes:
        service_mib: Peak of the service.
        instance_mib: Largest peak of the processes that the service started, except those that end within 10 ms.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.service_mib = self.instance_mib = 0.0

    def __enter__(self) -> "Peaks":
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # sets the peak to the present size
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        self.service_mib = self.peak_mib(self._pid)

    def _sample(self) -> None:
        service = psutil.Process(self._pid)
        while not self._ended.wait(0.01):
            for process in service.children(recursive=True):
                with contextlib.suppress(OSError, StopIteration):
                    self.instance_mib = max(self.instance_mib, self.peak_mib(process.pid))

    @staticmethod
    def peak_mib(pid: int) -> float:
        """Return the peak memory of a process since it began or its peak was reset."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large-gib", type=int, default=20)
    parser.add_argument("--files", type=int, default=100_000)
    arguments = parser.parse_args()
    sizes = {"1MB": MIB, "1GB": 1024 * MIB, f"{arguments.large_gib}GB": arguments.large_gib * 1024 * MIB}
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as directory:
        state_dir, script = Path(directory, "state"), Path(directory, "train.py")
        script.write_text(SCRIPT)
        with Service(state_dir=state_dir):
            pass  # the first start creates the state directory
        begun = time.monotonic()
        asyncio.run(fill(state_dir, sizes, arguments.files))
        print(f"filled in {time.monotonic() - begun:.0f} s", flush=True)
        with Service(state_dir=state_dir) as service:
            names = [*sizes, "files"]
            measured: dict[str, list[float]] = {name: [] for name in names}
            assert service.pid is not None
            by_fit(service, script, "1MB")
            before_mib = Peaks.peak_mib(service.pid)
            first_s = by_fit(service, script, "files")
            first_mib = Peaks.peak_mib(service.pid)
            print(f"peak of the service: {before_mib:.0f} MiB, {first_mib:.0f} MiB after the first job with many files")
            for _ in range(arguments.rounds):
                for name in names:
                    measured[name].append(by_fit(service, script, name))
            for name in names:
                with Peaks(service.pid) as peaks:
                    by_fit(service, script, name)
                print(f"{name:6} peak: service {peaks.service_mib:.0f} MiB, instance {peaks.instance_mib:.0f} MiB")
    medians = {name: statistics.median(values) for name, values in measured.items()}
    for name, values in measured.items():
        ratio = medians[name] / medians["1MB"]
        print(f"{name:6} median {medians[name]:6.3f} s (min {min(values):.3f}, max {max(values):.3f})  x{ratio:.2f}")
    for which, seconds in (("first job", first_s), ("later jobs", medians["files"])):
        more_us = (seconds - medians["1MB"]) / arguments.files * 1e6
        print(f"{arguments.files} files, {which}: {more_us:.1f} us a file more than the channel of one file")


if __name__ == "__main__":
    main()
