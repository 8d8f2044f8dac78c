"""Read many streams with a library that contains sanitizers; run it under LD_PRELOAD, as a separate process.

    python sanitized_reads.py LIBRARY DIRECTORY

Reads valid and invalid streams from FIFOs and files, with batches, repeats, iterators that are dropped in the middle,
and a wait that a signal ends. Prints the number of streams.
"""

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tensorflow as tf

import streams
from conftest import Channels
from sagemaker_tensorflow import waits
from sagemaker_tensorflow._shared.native_build import loading
from test_failures import BROKEN

library, root = Path(sys.argv[1]), Path(sys.argv[2])
loading.find_library = lambda sources: (library, "sanitized")

channels = Channels(root)
count = 0


def stream(content: bytes, record_format: str, **options: object) -> tf.data.Dataset:
    """Return a dataset of the next epoch, whose FIFO is being written."""
    global count
    channels.write(content, count)
    count += 1
    return channels.dataset(record_format=record_format, **options)


def read(dataset: tf.data.Dataset) -> tuple[list[bytes], bool]:
    records: list[bytes] = []
    try:
        records.extend(dataset.as_numpy_iterator())  # keeps the records before an error
    except tf.errors.InternalError:
        return records, True
    return records, False


for record_format in ("RecordIO", "TFRecord", "TextLine"):
    records = [bytes([65 + size % 26]) * size for size in (0, 1, 22, 23, 24, 1000, 20_000, 400_000)]
    content = streams.encode(record_format, records)
    assert read(stream(content, record_format)) == (records, False)
    assert read(stream(content, record_format, benchmark=True, benchmark_records_interval=2)) == (records, False)
    batches = list(stream(content, record_format).batch(3).as_numpy_iterator())
    assert [record for batch in batches for record in batch] == records
    stream(content, record_format)
    channels.outcome(f"2 ok {len(content)} 1\n", count - 1)
    assert read(channels.dataset(record_format=record_format)) == (records, False)
    iterator = iter(stream(content * 20, record_format).prefetch(2))
    assert next(iterator).numpy() == records[0]
    del iterator
    for options in ({}, {"max_record_bytes": 10}):
        (channels.pipe_dir / f"training_{count}").write_bytes(content[:-1])
        count += 1
        read(channels.dataset(record_format=record_format, **options))

for record_format, content, _ in BROKEN.values():
    records, failed = read(stream(content, record_format))
    assert failed
    assert len(records) == 2

dataset = stream(
    streams.tfrecord(b"x") + streams.flipped(streams.tfrecord(b"bad"), 13), "TFRecord", max_corrupted_records_to_skip=1
)
assert read(dataset) == ([b"x"], False)

channels.fifo(count)
ended = threading.Event()


def interrupt() -> None:
    """Send signals until the wait has ended: a signal before it begins does not end it."""
    while not ended.wait(0.5):
        os.write(waits._WaitState.write_end, bytes([15]))


interrupter = threading.Thread(target=interrupt)
interrupter.start()
try:
    next(iter(channels.dataset()))
except tf.errors.AbortedError:
    count += 1
ended.set()
interrupter.join()

channels.end_writers()
print(f"{count} streams")
