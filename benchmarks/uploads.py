"""Measure how fast the SDK uploads local data, and how fast it finds data that is unchanged.

    python benchmarks/uploads.py [--files 10000] [--large-gib 5] [--rounds 3]

In each round, in turn: many files of 1 KB by the SDK, and 200 of them by boto3 one after another, as a loop of
`upload_file` does; the same directory again, unchanged; one large file by the SDK, and a plain copy of it that is
synced, which is the speed of the disk. Prints medians and the ratios of the same run.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.console import Console
from tidemill.sdk.upload import LocalData, LocalFile, files_below, upload
from tidemill.testing import Service

MIB = 1024 * 1024
ONE_BY_ONE = 200
COPY_BYTES = 4 * MIB


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
    """Copy a file through memory and sync it."""
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as written:
        shutil.copyfileobj(read, written, COPY_BYTES)
        os.fsync(written.fileno())


def main() -> None:
    """Run the rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--large-gib", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measured: dict[str, list[float]] = {name: [] for name in ("many", "loop", "unchanged", "large", "disk")}
    quiet = Console(StringIO())
    large_mib = int(options.large_gib * 1024)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, Service() as service:
        directory = Path(name)
        client, bucket = service.client("s3"), "uploads"
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        for number in range(options.rounds):
            files = many(directory, options.files, number)

            def put(path: Path) -> None:
                upload(client, LocalData.read(path), bucket=bucket, console=quiet)

            measured["many"].append(timed(lambda: put(files)) / options.files)  # noqa: B023
            few = files_below(files)[:ONE_BY_ONE]
            base = S3Uri(bucket, f"loop-{number}")
            measured["loop"].append(timed(lambda: one_by_one(client, few, base)) / len(few))  # noqa: B023
            measured["unchanged"].append(timed(lambda: put(files)) / options.files)  # noqa: B023
            shutil.rmtree(files)
            if large_mib:
                large = directory / "large.bin"
                with large.open("wb") as file:
                    for _ in range(large_mib):
                        file.write(os.urandom(MIB))
                os.sync()
                data = LocalData.read(large)
                measured["large"].append(timed(lambda: upload(client, data, bucket=bucket, console=quiet)) / large_mib)  # noqa: B023
                measured["disk"].append(timed(lambda: copied(large, directory / "copy.bin")) / large_mib)  # noqa: B023
                for object_ in client.list_objects_v2(Bucket=bucket, Prefix="tidemill-inputs/")["Contents"]:
                    if object_["Size"] > 1024:
                        client.delete_object(Bucket=bucket, Key=object_["Key"])
                (directory / "copy.bin").unlink()
                large.unlink()
    middle = {name: statistics.median(values) for name, values in measured.items() if values}
    print(f"{options.files} files of 1 KB: {middle['many'] * options.files:.2f} s ({1 / middle['many']:.0f}/s)")
    print(f"boto3, one after another: {1 / middle['loop']:.0f}/s; ratio {middle['loop'] / middle['many']:.1f}")
    print(f"unchanged: {middle['unchanged'] * 1e6:.1f} us a file")
    if large_mib:
        print(
            f"{large_mib} MiB: {1 / middle['large']:.0f} MiB/s, a synced copy {1 / middle['disk']:.0f} MiB/s;", end=" "
        )
        print(f"ratio {middle['disk'] / middle['large']:.2f}")


if __name__ == "__main__":
    main()
