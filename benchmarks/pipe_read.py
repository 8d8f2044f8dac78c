"""Our readers of Pipe mode, AWS's, TensorFlow's and the raw FIFO, compared in one interleaved run.

    .venvs/tf-2.21/bin/python benchmarks/pipe_read.py [--megabytes 100] [--records 300000] [--rounds 5]

Each reader is a separate process. It reads the bytes that another process writes into a FIFO with sendfile. The readers
of a cell (one framing and one size) take turns, in another order in each round, while the others sleep. Wall time says
little on a busy machine: compare the CPU time of the reading process per record. Records are `tf.train.Example`s of
about the named size; in the framing of text lines they are plain text.

    raw             readv of the FIFO into one buffer: the limit
    from_generator  tf.data.Dataset.from_generator, one record at a time
    tf-file         TensorFlow's TFRecordDataset on the same bytes in a plain file in tmpfs
    aws, ours       PipeModeDataset.batch(64)
    *-parse         .repeat(20).prefetch(10).map(parse, num_parallel_calls=10).batch(64), over 20 FIFOs

AWS's reader is its wheel sagemaker-tensorflow 2.14.0.1.20.0 on TensorFlow 2.14, in an environment that this script
makes below .venvs on first use. Leave this file alone while it runs: TensorFlow compiles the functions from its text.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venvs/bench-tf-2.14"
FRAMINGS = ("TFRecord", "RecordIO", "TextLine")
SIZES = (100, 1_000, 10_000, 100_000)
READERS = ("raw", "from_generator", "tf-file", "tf-file-parse", "aws", "ours", "aws-parse", "ours-parse")
EPOCHS = 20
BATCH = 64
GENERATED = 5_000  # records for from_generator: these are enough to show the cost of one
WRITER = """
import fcntl, os, sys
source, size, *fifos = sys.argv[1:]
source, size = os.open(source, os.O_RDONLY), int(size)
for number, name in enumerate(fifos):
    fifo = os.open(name, os.O_WRONLY)
    fcntl.fcntl(fifo, fcntl.F_SETPIPE_SZ, 1 << 20)
    offset, end = size * number, size * (number + 1)
    while offset < end:
        offset += os.sendfile(fifo, source, offset, end - offset)
    os.close(fifo)
"""

Cell = dict[str, list[tuple[float, float]]]


def main() -> None:
    """Measure every cell, then print which goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100, help="at most so much in a cell")
    parser.add_argument("--records", type=int, default=300_000, help="at most so many in a cell")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--framings", nargs="+", default=FRAMINGS, choices=FRAMINGS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--readers", nargs="+", default=READERS, choices=READERS)
    options = parser.parse_args()
    make_peer()
    costs: dict[tuple[str, int], dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        readers = {name: stack.enter_context(Reader(name)) for name in options.readers}
        for framing in options.framings:
            for size in options.sizes:
                with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
                    costs[framing, size] = measure(Path(name), framing, size, readers, options)
    judge(costs)


def make_peer() -> None:
    """Make the environment of AWS's reader: TensorFlow 2.14 on this Python, and the wheel for CPython 3.10 in `aws`."""
    if (PEER / "ready").exists():
        return
    uv = str(ROOT / ".venv/bin/uv")
    python = ["--python", str(PEER)]
    subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(PEER)], check=True)
    install = [uv, "pip", "install", "-q", *python, "--require-hashes", "-r"]
    subprocess.run([*install, str(ROOT / "requirements/bench-tf-2.14.txt")], check=True)
    wheel = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.10", "--target", str(PEER / "aws")]
    subprocess.run([*install, str(ROOT / "requirements/bench-aws.txt"), *wheel], check=True)
    (PEER / "ready").touch()


# --- measuring ------------------------------------------------------------------------------------------------------


class Reader:
    """A process that reads each time it is asked to."""

    def __init__(self, name: str) -> None:
        self.name = name
        python, environment = sys.executable, {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if name.startswith("aws"):
            python = str(PEER / "bin/python")
            environment["PYTHONPATH"] = str(PEER / "aws")
        self._process = subprocess.Popen(
            [python, "-W", "ignore", __file__, "--read", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def read(self, framing: str, directory: Path, count: int) -> tuple[float, float]:
        """Return wall and CPU seconds of one reading, without the first batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{framing} {directory} {count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"{self.name} failed, {framing}: {' '.join(answer)}")
        return float(answer[0]), float(answer[1])

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def measure(
    directory: Path, framing: str, size: int, all_readers: dict[str, Reader], options: argparse.Namespace
) -> dict[str, float]:
    """Print and return the median CPU microseconds per record of each reader."""
    count = max(EPOCHS, min(options.records, options.megabytes * 1_000_000 // size) // EPOCHS * EPOCHS)
    record = framed(framing, payload(framing, size))
    with (directory / "stream").open("wb") as stream:
        for _ in range(count):
            stream.write(record)
    readers = [name for name in all_readers if framing == "TFRecord" or not name.startswith("tf-")]
    seen: Cell = {name: [] for name in readers}
    for _ in range(options.rounds):
        for name in random.sample(readers, len(readers)):
            wanted = min(count, GENERATED) if name == "from_generator" else count
            wall_s, cpu_s = run_reader(directory, all_readers[name], framing, len(record), wanted)
            seen[name].append((wanted * len(record) / wall_s / 1e6, cpu_s / wanted * 1e6))
    print(f"\n{framing}, {size} B, {count} records: MB/s median (best); CPU us per record median (least, greatest)")
    for name, results in seen.items():
        rates, costs = (list(column) for column in zip(*results, strict=True))
        print(
            f"  {name:15} {statistics.median(rates):7.0f} ({max(rates):5.0f})"
            f"  {statistics.median(costs):8.2f} ({min(costs):.2f}, {max(costs):.2f})",
            flush=True,
        )
    return {name: statistics.median(cost for _, cost in results) for name, results in seen.items()}


def run_reader(directory: Path, reader: Reader, framing: str, record_bytes: int, count: int) -> tuple[float, float]:
    """Let a reader read once, while a separate process writes. Returns wall and CPU seconds of the reader."""
    epochs = EPOCHS if reader.name in ("aws-parse", "ours-parse") else 1
    fifos = [directory / f"c_{epoch}" for epoch in range(epochs)]
    for left in (*directory.glob("c_*"), *directory.glob(".c-pipe_mode-*")):
        left.unlink()
    for fifo in fifos:
        os.mkfifo(fifo)
    if reader.name == "aws-parse":
        # TensorFlow's repeat makes one iterator more than it reads, and AWS's iterator takes a FIFO when it is made.
        (directory / f"c_{epochs}").touch()
    (directory / "inputdataconfig.json").write_text(json.dumps({"c": {"TrainingInputMode": "Pipe"}}))
    if reader.name.startswith("tf-"):
        return reader.read(framing, directory, count)
    size = str(count // epochs * record_bytes)
    command = [sys.executable, "-S", "-c", WRITER, str(directory / "stream"), size, *map(str, fifos)]
    with subprocess.Popen(command) as writer:
        try:
            return reader.read(framing, directory, count)
        except BaseException:
            writer.kill()
            raise


def judge(costs: dict[tuple[str, int], dict[str, float]]) -> None:
    """Print the goals as ratios of the medians; for each of them more than 1 is good."""
    print(f"\n{'':17} {'aws-parse/ours-parse':>22} {'aws/ours':>10} {'tf-file/ours':>13} {'ours/raw':>9}")
    missed: list[str] = []
    for (framing, size), cost in costs.items():
        ratios = {
            "chain": (cost.get("aws-parse", 0) / cost.get("ours-parse", 1), 1.0),
            "batch": (cost.get("aws", 0) / cost.get("ours", 1), 2.0 if size <= 1_000 and framing != "TextLine" else 0),
            "file": (cost.get("tf-file", 0) / cost.get("ours", 1), 1.0 if framing == "TFRecord" else 0),
        }
        missed += [f"{framing} {size} B {name}" for name, (ratio, goal) in ratios.items() if 0 < ratio < goal]
        columns = [ratio for ratio, _ in ratios.values()]
        floor = cost.get("ours", 0) / cost.get("raw", 1)
        print(f"{framing:9} {size:7} {columns[0]:22.2f} {columns[1]:10.2f} {columns[2]:13.2f} {floor:9.1f}")
    print("missed: " + ("; ".join(missed) or "none"))


# --- data -----------------------------------------------------------------------------------------------------------


def payload(framing: str, size: int) -> bytes:
    """Return an Example as the extension's documentation reads it, or a line of text; at most `size` bytes."""
    if framing == "TextLine":
        return bytes(33 + number % 90 for number in range(size))
    import tensorflow as tf

    def example(numbers: int) -> bytes:
        data = tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[b"".join(struct.pack("<d", n) for n in range(numbers))])
        )
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
        features = tf.train.Features(feature={"data": data, "labels": label})
        return tf.train.Example(features=features).SerializeToString()

    numbers = size // 8
    while len(example(numbers)) > size:
        numbers -= 1
    return example(numbers)


def framed(framing: str, data: bytes) -> bytes:
    """Return one record with its framing."""
    if framing == "TextLine":
        return data + b"\n"
    if framing == "RecordIO":
        return struct.pack("<II", 0xCED7230A, len(data)) + data + b"\0" * (-len(data) % 4)
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as name:
        with tf.io.TFRecordWriter(f"{name}/one") as writer:
            writer.write(data)
        return Path(name, "one").read_bytes()


# --- in the reading process -----------------------------------------------------------------------------------------


def serve(name: str) -> None:
    """For each line of standard input, read what it names and answer with the seconds."""
    for line in sys.stdin:
        framing, directory, count = line.split()
        try:
            answer = read_raw(directory) if name == "raw" else read(name, framing, directory, int(count))
        except Exception as error:  # noqa: BLE001 - the caller prints it
            answer = "failed:", f"{type(error).__name__}: {error}".replace("\n", " ")
        print(*answer, flush=True)


def read_raw(directory: str) -> tuple[float, float]:
    """Read the raw bytes and do nothing with them: the limit."""
    fd = os.open(f"{directory}/c_0", os.O_RDONLY)
    buffer = bytearray(1 << 20)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    while os.readv(fd, [buffer]):
        pass
    os.close(fd)
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def read(name: str, framing: str, directory: str, count: int) -> tuple[float, float]:
    """Read everything in batches."""
    iterator = iter(dataset(name, framing, directory))
    seen = rows(next(iterator))
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for batch in iterator:
        seen += rows(batch)
    elapsed = time.perf_counter() - wall_s, time.process_time() - cpu_s
    if seen != count:
        raise ValueError(f"{seen} of {count} records")
    return elapsed


def rows(batch: Any) -> int:
    """Return how many records a batch has, parsed or not."""
    return int((batch[1] if isinstance(batch, tuple) else batch).shape[0])


def dataset(name: str, framing: str, directory: str) -> Any:
    """Return a data set of batches of the reader's records."""
    import tensorflow as tf

    if name == "from_generator":
        from sagemaker_tensorflow.options import ReaderOptions
        from sagemaker_tensorflow.python_reader import read_epoch

        options = ReaderOptions("c", framing, directory, directory)
        return tf.data.Dataset.from_generator(
            lambda: (record for chunk in read_epoch(options) for record in chunk.records),
            output_signature=tf.TensorSpec([], tf.string),
        ).batch(BATCH)
    if name.startswith("tf-file"):
        records = tf.data.TFRecordDataset(f"{directory}/stream")
    else:
        from sagemaker_tensorflow import PipeModeDataset

        records = PipeModeDataset("c", framing, directory, directory, directory)
    if not name.endswith("-parse"):
        return records.batch(BATCH)
    if not name.startswith("tf-file"):
        records = records.repeat(EPOCHS)
    records = records.prefetch(10)
    return records.map(parse_line if framing == "TextLine" else parse, num_parallel_calls=10).batch(BATCH)


def parse(record: Any) -> Any:
    """Parse an Example as the documentation does."""
    import tensorflow as tf

    features = {"data": tf.io.FixedLenFeature([], tf.string), "labels": tf.io.FixedLenFeature([], tf.int64)}
    parsed = tf.io.parse_single_example(record, features)
    return {"data": tf.io.decode_raw(parsed["data"], tf.float64)}, parsed["labels"]


def parse_line(record: Any) -> Any:
    """Parse a line into its bytes and its length."""
    import tensorflow as tf

    return tf.io.decode_raw(record, tf.uint8), tf.strings.length(record)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        serve(sys.argv[2])
    else:
        main()
