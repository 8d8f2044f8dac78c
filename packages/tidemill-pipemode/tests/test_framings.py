"""Valid streams through FIFOs, with both readers."""

import random

import pytest
import tensorflow as tf

from streams import encode, recordio_part

FORMATS = ("RecordIO", "TFRecord", "TextLine")
SIZES = (0, 1, 2, 3, 4, 21, 22, 23, 24, 100, 4095, 16_384, 65_537, 262_144, 300_001, 1_500_003)


def records_of(sizes: tuple[int, ...]) -> list[bytes]:
    generator = random.Random(7)
    return [generator.randbytes(size).replace(b"\n", b"\r") for size in sizes]


@pytest.mark.parametrize("record_format", FORMATS)
def test_records_of_every_size_are_read_unchanged(channels, reader, read, record_format):
    records = records_of(SIZES * (1 if reader == "python" else 3))
    (channels.pipe_dir / "source").write_bytes(stream := fast_encode(record_format, records))
    channels.outcome(f"2 ok {len(stream)} 1\n")
    channels.run('cat "$1" > "$2"', channels.pipe_dir / "source", channels.fifo())
    assert read(channels.dataset(record_format=record_format)) == (records, "")


@pytest.mark.parametrize("record_format", FORMATS)
def test_a_stream_that_arrives_byte_by_byte_has_the_same_records(channels, reader, read, record_format):
    records = records_of((0, 5, 23, 40))
    (channels.pipe_dir / "source").write_bytes(encode(record_format, records))
    channels.run('dd if="$1" of="$2" bs=1 2>/dev/null', channels.pipe_dir / "source", channels.fifo())
    assert read(channels.dataset(record_format=record_format)) == (records, "")


@pytest.mark.parametrize("record_format", FORMATS)
def test_an_empty_stream_is_an_epoch_without_records(channels, reader, read, record_format):
    channels.write(b"")
    assert read(channels.dataset(record_format=record_format)) == ([], "")


def test_parts_of_a_recordio_record_are_concatenated_without_a_separator(channels, reader, read):
    long = b"m" * 70_001
    parts = (recordio_part(b"begin", 1), recordio_part(long, 2), recordio_part(b"", 2), recordio_part(b"end", 3))
    channels.write(recordio_part(b"before") + b"".join(parts) + recordio_part(b"after"))
    assert read(channels.dataset(record_format="RecordIO")) == ([b"before", b"begin" + long + b"end", b"after"], "")


def test_only_a_line_feed_ends_a_line(channels, reader, read):
    channels.write(b"one\r\n\n\rtwo\x00\nlast")
    assert read(channels.dataset()) == ([b"one\r", b"", b"\rtwo\x00", b"last"], "")


def test_a_record_is_returned_as_soon_as_it_has_arrived(channels, reader):
    channels.run('(echo first; sleep 60) > "$1"', channels.fifo())
    iterator = iter(channels.dataset())
    assert next(iterator).numpy() == b"first"
    del iterator  # must not wait for the writer either


def test_batches_equal_those_of_tf_data(channels, reader):
    lines = [f"{number}".encode() for number in range(10)]
    for epoch in range(3):
        channels.write(b"\n".join(lines), epoch)
    dataset = channels.dataset()
    assert [list(batch) for batch in dataset.batch(4).as_numpy_iterator()] == [lines[:4], lines[4:8], lines[8:]]
    assert [list(batch) for batch in dataset.batch(4, True).as_numpy_iterator()] == [lines[:4], lines[4:8]]
    parallel = dataset.batch(4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True, name="b")
    assert [len(batch) for batch in parallel.as_numpy_iterator()] == [4, 4, 2]


def fast_encode(record_format: str, records: list[bytes]) -> bytes:
    """Like `encode`, but with TensorFlow's own writer for the checksums of long records."""
    if record_format != "TFRecord":
        return encode(record_format, records)
    path = f"ram://pipemode-{len(records)}"
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return tf.io.read_file(path).numpy()
