"""Measure how fast the SDK uploads local data, and how fast it finds data that is unchanged.

    python benchmarks/uploads.py [--files 10000] [--large-gib 5] [--rounds 3]

In each round, in turn: many files of 1 KB by the SDK, and 200 of them by boto3 one after another, as a loop of
`upload_file` does; the same directory again, unchanged; one large file by the SDK, which hands it to the service, the
same file by one signed put of boto3, and a copy of it by `cp` and `sync`, which is the speed of the disk. Every second
round does these three in the opposite order. Prints medians, also of the ratios of each round, and the CPU time of
client and service together.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
from boto3.s3.transfer import TransferConfig

from tidemill.core.names import S3Uri
from tidemill.sdk.console import Console
from tidemill.sdk.upload import LocalData, LocalFile, files_below, upload
from tidemill.testing import Service

MIB = 1024 * 1024
GIB = 1024 * MIB
ONE_BY_ONE = 200


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes."""
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def many(directory: Path, count: int, round_number: int) -> Path:
    """Write ``count`` files of 1 KB with new content; return their directory."""
    target = directory / f"many-{round_number}"
    for index in range(count):
        file = target / f"{index % 100:02}" / f"{index:06}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(1024))
    os.sync()
    return target


def one_by_one(client: Any, files: tuple[LocalFile, ...], base: S3Uri) -> None:
    """Upload files as a loop of boto3's ``upload_file``."""
    for file in files:
        client.upload_file(str(file.path), base.bucket, (base / file.name).key)


def copied(source: Path, target: Path) -> None:
    """Copy a file and sync the copy."""
    subprocess.run(["cp", "--reflink=never", source, target], check=True)
    subprocess.run(["sync", target], check=True)
    target.unlink()


def cpu_s(service: Service) -> float:
    """Return the CPU seconds of this process, of its children that have ended, and of the service."""
    times = psutil.Process(service.pid).cpu_times()
    return sum(os.times()[:4]) + times.user + times.system


class Large:
    """One large file, uploaded and copied.

    Args:
        service: The service.
        directory: Directory for the file.
        size_bytes: Size of the file.
    """

    def __init__(self, service: Service, directory: Path, size_bytes: int) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in ("handed", "sent", "disk", "digest")}
        self.cpu: dict[str, list[float]] = {name: [] for name in self.seconds}
        self._service, self._directory, self._size_bytes = service, directory, size_bytes

    def measure(self, client: Any, bucket: str, *, backwards: bool) -> None:
        """Measure one round, with new content."""
        file = self._directory / "large.bin"
        with file.open("wb") as opened:
            for _ in range(self._size_bytes // MIB):
                opened.write(os.urandom(MIB))
        os.sync()
        found: list[LocalData] = []
        self._timed("digest", lambda: found.append(LocalData.read(file)))
        config = TransferConfig(multipart_threshold=self._size_bytes + 1, use_threads=False)
        work: dict[str, Callable[[], object]] = {
            "handed": lambda: upload(client, found[0], bucket=bucket, console=Console(StringIO())),
            "sent": lambda: client.upload_file(str(file), bucket, "tidemill-inputs/sent", Config=config),
            "disk": lambda: copied(file, self._directory / "copy.bin"),
        }
        for name in reversed(work) if backwards else work:
            self._timed(name, work[name])
            for entry in client.list_objects_v2(Bucket=bucket, Prefix="tidemill-inputs/").get("Contents", []):
                if entry["Size"] > 1024:
                    client.delete_object(Bucket=bucket, Key=entry["Key"])
        file.unlink()

    def report(self) -> None:
        """Print speeds, CPU time and ratios."""
        gib = self._size_bytes / GIB
        for name in self.seconds:
            speed = self._size_bytes / MIB / statistics.median(self.seconds[name])
            ratios = [disk / own for disk, own in zip(self.seconds["disk"], self.seconds[name], strict=True)]
            print(
                f"{gib:g} GiB, {name}: {speed:.0f} MiB/s, {statistics.median(self.cpu[name]) / gib:.2f} s of CPU for"
                f" 1 GiB; ratio {statistics.median(ratios):.2f} ({', '.join(f'{each:.2f}' for each in ratios)})"
            )

    def _timed(self, name: str, work: Callable[[], object]) -> None:
        begin_s = cpu_s(self._service)
        self.seconds[name].append(timed(work))
        self.cpu[name].append(cpu_s(self._service) - begin_s)


def main() -> None:
    """Run the rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--large-gib", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measured: dict[str, list[float]] = {name: [] for name in ("many", "loop", "unchanged")}
    quiet = Console(StringIO())
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, Service() as service:
        directory = Path(name)
        client, bucket = service.client("s3"), "uploads"
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        large = Large(service, directory, int(options.large_gib * 1024) * MIB)
        for number in range(options.rounds):
            if options.files:
                files = many(directory, options.files, number)

                def put(path: Path) -> None:
                    upload(client, LocalData.read(path), bucket=bucket, console=quiet)

                measured["many"].append(timed(lambda: put(files)) / options.files)  # noqa: B023
                few = files_below(files)[:ONE_BY_ONE]
                base = S3Uri(bucket, f"loop-{number}")
                measured["loop"].append(timed(lambda: one_by_one(client, few, base)) / len(few))  # noqa: B023
                measured["unchanged"].append(timed(lambda: put(files)) / options.files)  # noqa: B023
                shutil.rmtree(files)
            if options.large_gib:
                large.measure(client, bucket, backwards=number % 2 == 1)
    if options.files:
        middle = {name: statistics.median(values) for name, values in measured.items()}
        print(f"{options.files} files of 1 KB: {middle['many'] * options.files:.2f} s ({1 / middle['many']:.0f}/s)")
        print(f"boto3, one after another: {1 / middle['loop']:.0f}/s; ratio {middle['loop'] / middle['many']:.1f}")
        print(f"unchanged: {middle['unchanged'] * 1e6:.1f} us a file")
    if options.large_gib:
        large.report()


if __name__ == "__main__":
    main()
