"""Pipe mode's readers beside the raw FIFO, in one interleaved run: MB/s and CPU time of the reading process.

    .venvs/tf-2.21/bin/python benchmarks/pipe_mode.py [--megabytes 200] [--rounds 3]

For each record size and framing: a process that writes the same bytes into a FIFO by sendfile, and a fresh process
that reads them. Wall time on a busy machine says little; CPU microseconds per record of the reader are the figure to
compare.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FRAMINGS = ("RecordIO", "TFRecord", "TextLine")
SIZES = (100, 1_000, 10_000, 100_000)
READERS = ("raw", "tfdata-file", "native", "native-chain", "python", "from_generator")
WRITER = """
import fcntl, os, sys
source = os.open(sys.argv[1], os.O_RDONLY)
fifo = os.open(sys.argv[2], os.O_WRONLY)
fcntl.fcntl(fifo, 1031, 1 << 20)
while os.sendfile(fifo, source, None, 1 << 30):
    pass
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", nargs="+", default=READERS, choices=READERS)
    options = parser.parse_args()
    for framing in FRAMINGS:
        for size in SIZES:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
                count = write_stream(Path(directory) / "stream", framing, size, options.megabytes)
                measure(Path(directory), framing, size, count, options)


def measure(directory: Path, framing: str, size: int, count: int, options: argparse.Namespace) -> None:
    """All readers in turn, as often as there are rounds."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in options.readers}
    for _ in range(options.rounds):
        for name in options.readers:
            if (name == "tfdata-file" and framing != "TFRecord") or (name == "from_generator" and size < 10_000):
                continue
            seen[name].append(run_reader(directory, name, framing, count))
    for name, results in seen.items():
        if results:
            wall_s, cpu_s = (statistics.median(column) for column in zip(*results, strict=True))
            rate = count * size / wall_s / 1e6
            cpu_us = cpu_s / count * 1e6
            print(f"{framing:9} {size:7} B  {name:15} {rate:8.0f} MB/s  {cpu_us:8.2f} us CPU/record", flush=True)


def write_stream(path: Path, framing: str, size: int, megabytes: int) -> int:
    """Records of equal size, about as many megabytes of them as asked for; returns how many."""
    count = max(50, megabytes * 1_000_000 // size)
    payload = bytes(33 + number % 90 for number in range(size))
    if framing == "TFRecord":
        import tensorflow as tf

        with tf.io.TFRecordWriter(str(path.with_suffix(".one"))) as writer:
            writer.write(payload)
        record = path.with_suffix(".one").read_bytes()
    elif framing == "RecordIO":
        record = struct.pack("<II", 0xCED7230A, size) + payload + b"\0" * (-size % 4)
    else:
        record = payload + b"\n"
    with path.open("wb") as stream:
        for _ in range(count):
            stream.write(record)
    return count


def run_reader(directory: Path, name: str, framing: str, count: int) -> tuple[float, float]:
    """Wall and CPU seconds of one reading, without imports."""
    fifo = directory / "c_0"
    for path in (fifo, directory / ".c-pipe_mode-state"):
        path.unlink(missing_ok=True)
    os.mkfifo(fifo)
    (directory / "inputdataconfig.json").write_text(json.dumps({"c": {"TrainingInputMode": "Pipe"}}))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    reader = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "--read", name, framing, str(directory), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    writer = None
    if name != "tfdata-file":
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory / "stream"), str(fifo)])
    output, errors = reader.communicate()
    if writer is not None:
        writer.kill() if reader.returncode else writer.wait()
    if reader.returncode:
        raise SystemExit(errors)
    wall_s, cpu_s = map(float, output.split()[-2:])
    return wall_s, cpu_s


def read(name: str, framing: str, directory: str, count: int) -> None:
    """In the reading process: read everything in batches of 64, print the seconds."""
    if name == "raw":
        fd = os.open(f"{directory}/c_0", os.O_RDONLY)
        buffer = bytearray(1 << 20)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        while os.readv(fd, [buffer]):
            pass
        print(time.perf_counter() - wall_s, time.process_time() - cpu_s)
        return
    batches = dataset(name, framing, directory)
    iterator = iter(batches)
    seen = int(next(iterator).shape[0])
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for batch in iterator:
        seen += int(batch.shape[0])
    elapsed = time.perf_counter() - wall_s, time.process_time() - cpu_s
    if seen != count:
        raise SystemExit(f"{name} gave {seen} of {count} records")
    print(*elapsed)


def dataset(name: str, framing: str, directory: str):
    """Batches of 64 of the reader's records."""
    import tensorflow as tf

    from sagemaker_tensorflow import PipeModeDataset, native_library
    from sagemaker_tensorflow import dataset as module
    from sagemaker_tensorflow.options import ReaderOptions
    from sagemaker_tensorflow.python_reader import read_epoch

    if name == "tfdata-file":
        return tf.data.TFRecordDataset(f"{directory}/stream").batch(64)
    if name == "from_generator":
        options = ReaderOptions("c", framing, directory, directory)
        signature = tf.TensorSpec([], tf.string)
        return tf.data.Dataset.from_generator(
            lambda: (record for chunk in read_epoch(options) for record in chunk.records), output_signature=signature
        ).batch(64)
    if name == "python":
        absent = native_library.NativeReader(None, "benchmark")
        setattr(module, "load_native_reader", lambda: absent)  # noqa: B010 - replaced as a test would
    records = PipeModeDataset("c", framing, directory, directory, directory)
    if name == "native-chain":
        return records.repeat(1).prefetch(10).map(tf.identity, num_parallel_calls=10).batch(64)
    return records.batch(64)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
