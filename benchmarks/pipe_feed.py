"""Measure the speed of feeding a Pipe channel, in MB per CPU second of the feeder, and the limits of its parts.

    python benchmarks/pipe_feed.py [--rounds 5] [--mib 256]

The feeder runs as in a job; a separate process drains the FIFO. Objects are in tmpfs. The limit for plain objects is a
bare sendfile(2) loop, and for gzip decompression without writing. Rounds are interleaved, and medians are printed.
"""

import argparse
import fcntl
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tidemill.core.clock import SystemClock
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import ChannelSpec, ObjectFile
from tidemill.shim.feeder import PipeFeeder
from tidemill.shim.feeder.inflate import codec, inflate

MIB = 1 << 20
DRAIN = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\nwhile os.read(fd, 1 << 20): pass"


def objects_of(directory: Path, name: str, contents: list[bytes]) -> list[ObjectFile]:
    """Return objects as a store has them, with their files in ``directory``."""
    made = []
    for index, content in enumerate(contents):
        file = directory / f"{name}-{index}"
        file.write_bytes(content)
        made.append(ObjectFile(uri=f"s3://b/{name}", name=name, file=str(file), size_bytes=len(content), sha256=""))
    return made


def cpu_s() -> float:
    """Return the CPU seconds of this process so far, of all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def feed(directory: Path, objects: list[ObjectFile], **settings: str) -> float:
    """Return the CPU seconds of the feeder for one epoch."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        instance = InstanceDirectory(Path(name))
        (instance.ml / "input/data").mkdir(parents=True)
        instance.channels.mkdir()
        instance.write_channel("c", objects)
        spec = ChannelSpec(name="c", objects=(), input_mode="Pipe", **settings)  # pyrefly: ignore[bad-argument-type]
        feeder = PipeFeeder(instance, [spec], log=print, clock=SystemClock())
        with feeder.running() as start:
            reader = subprocess.Popen([sys.executable, "-c", DRAIN, str(instance.ml / "input/data/c_0")])
            before_s = cpu_s()
            start()
            reader.wait()
            spent_s = cpu_s() - before_s
        outcome = (instance.ml / "input/data/.tidemill/c_0.outcome").read_text()
        if not outcome.startswith("2 ok "):
            raise RuntimeError(f"the epoch did not end well: {outcome}")
        return spent_s


def sendfile_only(directory: Path, objects: list[ObjectFile]) -> float:
    """Return the CPU seconds of a bare sendfile loop over the same objects."""
    fifo = directory / "bare"
    os.mkfifo(fifo)
    try:
        with subprocess.Popen([sys.executable, "-c", DRAIN, str(fifo)]):
            pipe = os.open(fifo, os.O_WRONLY)
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, MIB)
            before_s = cpu_s()
            for each in objects:
                fd = os.open(each.file, os.O_RDONLY)
                offset = 0
                while offset < each.size_bytes:
                    offset += os.sendfile(pipe, fd, offset, each.size_bytes - offset)
                os.close(fd)
            spent_s = cpu_s() - before_s
            os.close(pipe)
    finally:
        fifo.unlink()
    return spent_s


def unpack_only(objects: list[ObjectFile]) -> float:
    """Return the CPU seconds of unpacking the same objects without writing anything."""
    before_s = cpu_s()
    for each in objects:
        with Path(each.file).open("rb", buffering=0) as file:
            for _ in inflate(file, uri=each.uri):
                pass
    return cpu_s() - before_s


def json_lines(size_bytes: int) -> bytes:
    """Return text that compresses well."""
    draw = random.Random(1)
    lines: list[str] = []
    length = 0
    while length < size_bytes:
        line = json.dumps({"id": draw.randrange(10**6), "label": draw.choice("abcdef"), "score": draw.random()})
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines).encode()


def main() -> None:
    """Run all cells and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=256)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        block, text = os.urandom(16 * MIB), json_lines(16 * MIB)
        count = max(1, arguments.mib // 16)
        large = objects_of(directory, "large", [block] * count)
        small = objects_of(directory, "small", [block[: 10 * 1024]] * 20_000)
        packed = objects_of(directory, "packed", [gzip.compress(text, 6)] * count)
        plain_mb, small_mb, text_mb = (n / 1e6 for n in (count * len(block), 20_000 * 10 * 1024, count * len(text)))
        cells: list[tuple[str, float, Callable[[], float]]] = [
            ("plain 16 MiB objects: feeder", plain_mb, lambda: feed(directory, large)),
            ("plain 16 MiB objects: sendfile alone", plain_mb, lambda: sendfile_only(directory, large)),
            ("plain 10 KiB objects: feeder", small_mb, lambda: feed(directory, small)),
            ("plain 10 KiB objects: sendfile alone", small_mb, lambda: sendfile_only(directory, small)),
            ("16 MiB records: feeder", plain_mb, lambda: feed(directory, large, record_wrapper="RecordIO")),
            (f"gzip ({codec.__name__}): feeder", text_mb, lambda: feed(directory, packed, compression="Gzip")),
            (f"gzip ({codec.__name__}): unpacking alone", text_mb, lambda: unpack_only(packed)),
        ]
        rates: dict[str, list[float]] = {label: [] for label, _, _ in cells}
        for _ in range(arguments.rounds):
            for label, megabytes, measure in cells:
                rates[label].append(megabytes / measure())
    print(f"{'MB per CPU second of the writer, median (best)':50}")
    for label, values in rates.items():
        print(f"{label:44} {statistics.median(values):10,.0f} ({max(values):,.0f})")


if __name__ == "__main__":
    main()
