"""No record is lost, doubled or reordered, for all framings, sizes, splits of a stream, and kills."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Channels
from streams import encode

FORMATS = ("RecordIO", "TFRecord", "TextLine")
DEADLINE_S = 60
CHECKED = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Epoch:
    """The actions of a writer, and the expected result of its reader."""

    record_format: str
    records: list[bytes]
    cuts: list[float]
    """Positions at which the stream is split, as fractions of its length."""
    killed_at: float | None
    """Position at which the writer is killed, or None if it finishes."""

    @cached_property
    def frames(self) -> list[bytes]:
        return [encode(self.record_format, [record]) for record in self.records]

    @cached_property
    def stream(self) -> bytes:
        whole = b"".join(self.frames)
        return whole if self.killed_at is None else whole[: int(self.killed_at * len(whole))]

    @property
    def pieces(self) -> list[bytes]:
        stream = self.stream
        edges = sorted({0, len(stream), *(int(cut * len(stream)) for cut in self.cuts)})
        return [stream[begin:end] for begin, end in itertools.pairwise(edges)]

    @property
    def whole_records(self) -> list[bytes]:
        ends = itertools.accumulate(map(len, self.frames))
        return [record for record, end in zip(self.records, ends, strict=True) if end <= len(self.stream)]


def records(record_format: str) -> st.SearchStrategy[list[bytes]]:
    small = st.binary(max_size=60)
    # Above the reader's own limits, from which strings are on the heap, and data is read directly into records.
    large = st.builds(lambda byte, size: byte * size, st.binary(min_size=1, max_size=1), st.integers(20_000, 40_000))
    record = st.one_of(small, small, small, large)
    if record_format == "TextLine":
        record = record.map(lambda line: line.replace(b"\n", b"\r"))
    return st.lists(record, min_size=1, max_size=12)


@st.composite
def epochs(draw: st.DrawFn) -> list[Epoch]:
    record_format = draw(st.sampled_from(FORMATS))
    share = st.floats(0, 1, exclude_max=True)
    return [
        Epoch(
            record_format,
            draw(records(record_format)),
            draw(st.lists(share, max_size=12)),
            draw(st.one_of(st.none(), st.none(), share)),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]


@contextmanager
def channel() -> Iterator[Channels]:
    """Yield a channel for one example."""
    with tempfile.TemporaryDirectory() as directory:
        made = Channels(Path(directory))
        try:
            yield made
        finally:
            made.end_writers()


def write(channels: Channels, number: int, epoch: Epoch) -> None:
    """Start the writer of an epoch, whose outcome file says `writing` before there is a FIFO."""
    channels.outcome("2 writing 0 0\n", number)
    outcome = channels.pipe_dir / ".tidemill" / f"training_{number}.outcome"
    command = [sys.executable, "-S", Path(__file__).with_name("paced_writer.py"), channels.fifo(number), outcome]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    channels.writers.append(writer)
    plan = {"pieces": [piece.hex() for piece in epoch.pieces], "killed": epoch.killed_at is not None}
    assert writer.stdin is not None
    with writer.stdin as pipe:
        pipe.write(json.dumps(plan).encode())


def read_epoch(dataset: tf.data.Dataset, form: str) -> tuple[list[bytes], str]:
    """Read an iteration to its end. The records of an incomplete batch also come before an error."""
    given: list[bytes] = []
    try:
        if form == "batch":
            for batch in dataset.batch(1).as_numpy_iterator():
                given.extend(batch)
        else:
            given.extend(dataset.prefetch(3).as_numpy_iterator() if form == "prefetch" else dataset.as_numpy_iterator())
    except tf.errors.InternalError as error:
        return given, str(error)
    return given, ""


@settings(CHECKED, max_examples=40)
@given(plan=epochs(), form=st.sampled_from(["plain", "batch", "prefetch"]))
def test_complete_records_are_read_once_and_in_order_for_every_behavior_of_a_writer(reader, plan, form):
    with channel() as channels:
        for number, epoch in enumerate(plan):
            write(channels, number, epoch)
        dataset = channels.dataset(record_format=plan[0].record_format)
        for number, epoch in enumerate(plan):
            given_records, error = read_epoch(dataset, form)
            assert given_records == epoch.whole_records
            assert channels.next_epoch == str(number + 1)
            assert ("the feeder died" in error) == (epoch.killed_at is not None)
            assert bool(error) == (epoch.killed_at is not None)


READ_SOME = """
import sys
from sagemaker_tensorflow import PipeModeDataset
root, record_format = sys.argv[1:]
dataset = PipeModeDataset("training", record_format, root + "/state", root + "/data", root + "/config")
for record in dataset.prefetch(2).as_numpy_iterator():
    print(record.hex() or "empty", flush=True)
print("end", flush=True)
"""


@settings(CHECKED, max_examples=4)
@given(
    record_format=st.sampled_from(FORMATS),
    counts=st.lists(st.integers(0, 300), min_size=2, max_size=3),
    stalls=st.booleans(),
)
def test_the_process_after_a_killed_one_reads_the_next_epoch(reader, scripts, record_format, counts, stalls):
    with channel() as channels:
        sources = [[b"%d of epoch %d" % (index, number) for index in range(400)] for number in range(len(counts) + 1)]
        for number, source in enumerate(sources):
            epoch = Epoch(record_format, source, [index / 9 for index in range(9)], None)
            write(channels, number, epoch)
        for number, count in enumerate(counts):
            process = scripts.start(READ_SOME, channels.root, record_format, reader=reader)
            lines = [process.stdout.readline().strip() for _ in range(max(count, 1))]
            process.send_signal(signal.SIGKILL)
            assert process.wait(DEADLINE_S) == -signal.SIGKILL
            assert [bytes.fromhex(line) for line in lines] == sources[number][: len(lines)]
            assert channels.next_epoch == str(number + 1)
        if stalls:  # a writer that is killed before there is a FIFO uses up no epoch
            last = channels.pipe_dir / f"training_{len(counts)}"
            hidden = last.rename(last.with_name("hidden"))
            lock = channels.state_dir / ".training-pipe_mode-lock"
            lock.unlink()
            process = scripts.start(READ_SOME, channels.root, record_format, reader=reader)
            while not lock.exists():  # until the reader has looked for the FIFO
                os.sched_yield()
            process.close()
            hidden.rename(last)
        records, error = read_epoch(channels.dataset(record_format=record_format), "plain")
        assert (records, error) == (sources[-1], "")
        assert channels.next_epoch == str(len(sources))


@pytest.mark.parametrize("record_format", FORMATS)
def test_without_an_outcome_file_a_stream_that_ends_between_records_is_complete(channels, reader, read, record_format):
    (channels.pipe_dir / "source").write_bytes(encode(record_format, [b"one", b"three"]))
    writer = channels.run('(cat "$2"; kill -9 0) > "$1"', channels.fifo(), channels.pipe_dir / "source")
    assert read(channels.dataset(record_format=record_format)) == ([b"one", b"three"], "")
    assert writer.wait(DEADLINE_S) == -signal.SIGKILL
