"""Invalid streams: all valid records are returned, then comes InternalError, never a silent end or a false record."""

import gzip
import os
import signal
import struct

import pytest
import tensorflow as tf

from streams import MAGIC, encode, flipped, masked, recordio_part, tfrecord

GOOD = [b"first", b"second record"]


def long_header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + masked(packed)


RECORDIO = encode("RecordIO", GOOD)
TFRECORD = encode("TFRecord", GOOD)
BROKEN = {
    "recordio payload cut": ("RecordIO", RECORDIO + recordio_part(b"x" * 1000)[:500], "Truncated RecordIO record"),
    "recordio payload absent": ("RecordIO", RECORDIO + recordio_part(b"x" * 1000)[:8], "Truncated RecordIO record"),
    "recordio header cut": ("RecordIO", RECORDIO + recordio_part(b"x")[:4], "Truncated RecordIO header"),
    "recordio length 1000 flipped to 5000, nothing behind it": (
        "RecordIO",
        RECORDIO + struct.pack("<II", MAGIC, 5000) + b"x" * 1000,
        "Truncated RecordIO record: 4000 more bytes were announced",
    ),
    "recordio length 500 MiB": (
        "RecordIO",
        RECORDIO + struct.pack("<II", MAGIC, 500 << 20) + b"x" * 1000,
        "Record too long: 524288000 bytes",
    ),
    "recordio length 200 MiB": (
        "RecordIO",
        RECORDIO + struct.pack("<II", MAGIC, 200 << 20) + b"x" * 1000,
        "Truncated RecordIO record",
    ),
    "recordio parts without an end": (
        "RecordIO",
        RECORDIO + recordio_part(b"begin", 1) + recordio_part(b"middle", 2),
        "its last part is missing",
    ),
    "recordio part without a begin": ("RecordIO", RECORDIO + recordio_part(b"end", 3), "Invalid RecordIO part: flag 3"),
    "recordio record inside parts": (
        "RecordIO",
        RECORDIO + recordio_part(b"begin", 1) + recordio_part(b"whole", 0),
        "Invalid RecordIO part: flag 0",
    ),
    "recordio undefined flag": ("RecordIO", RECORDIO + recordio_part(b"x", 5), "Invalid RecordIO part: flag 5"),
    "recordio bad magic": (
        "RecordIO",
        RECORDIO + struct.pack("<II", 305419896, 4) + b"abcd",
        "Invalid magic number: 305419896",
    ),
    "tfrecord payload cut": ("TFRecord", TFRECORD + tfrecord(b"x" * 1000)[:500], "CRC check on data failed."),
    "tfrecord checksum cut": ("TFRecord", TFRECORD + tfrecord(b"x" * 1000)[:-2], "CRC check on data failed."),
    "tfrecord data flipped": ("TFRecord", TFRECORD + flipped(tfrecord(b"x" * 50), 20), "CRC check on data failed."),
    "tfrecord header cut": ("TFRecord", TFRECORD + tfrecord(b"x")[:11], "CRC check on header failed."),
    "tfrecord length flipped": ("TFRecord", TFRECORD + flipped(tfrecord(b"x" * 50), 0), "CRC check on header failed."),
    "tfrecord length checksum flipped": (
        "TFRecord",
        TFRECORD + flipped(tfrecord(b"x" * 50), 9),
        "CRC check on header failed.",
    ),
    "tfrecord length 2^63": ("TFRecord", TFRECORD + long_header(1 << 63), "Record too long: 9223372036854775808 bytes"),
    "tfrecord length 2^64-1": ("TFRecord", TFRECORD + long_header((1 << 64) - 1), "Record too long"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_valid_records_are_returned_before_the_error(channels, reader, read, case):
    record_format, stream, text = BROKEN[case]
    channels.write(stream)
    records, error = read(channels.dataset(record_format=record_format))
    assert records == GOOD
    assert text in error
    assert f"channel training, epoch 0, {channels.pipe_dir}/training_0" in error
    assert f"byte offset {len(encode(record_format, GOOD))}, record 2" in error


@pytest.mark.parametrize("record_format", ["TFRecord", "RecordIO"])
def test_gzip_in_a_channel_that_is_not_compressed_is_named(channels, reader, read, record_format):
    channels.write(gzip.compress(encode(record_format, GOOD)))
    records, error = read(channels.dataset(record_format=record_format))
    assert records == []
    assert "It begins as gzip does" in error
    assert "compression='Gzip'" in error


def test_recordio_read_as_tfrecord_is_named(channels, reader, read):
    channels.write(RECORDIO)
    records, error = read(channels.dataset(record_format="TFRecord"))
    assert records == []
    assert "CRC check on header failed. It begins with the magic number of RecordIO" in error
    assert "record_format='RecordIO'" in error


@pytest.mark.parametrize("length", [1 << 39, 1 << 62, (1 << 63) - 1])
def test_no_memory_is_allocated_for_a_length_before_its_data_arrives(channels, reader, read, length):
    channels.write(TFRECORD + long_header(length) + b"x" * 100_000)
    records, error = read(channels.dataset(record_format="TFRecord", max_record_bytes=(1 << 63) - 1))
    assert records == GOOD
    assert f"CRC check on data failed. The record is truncated: {length - 100_000} more bytes" in error


def test_a_bad_header_is_never_skipped(channels, reader, read):
    channels.write(TFRECORD + flipped(tfrecord(b"x" * 50), 9) + tfrecord(b"after"))
    records, error = read(channels.dataset(record_format="TFRecord", max_corrupted_records_to_skip=3))
    assert records == GOOD
    assert "CRC check on header failed." in error


@pytest.mark.parametrize("form", ["a directory", "a link to itself"])
def test_a_file_that_cannot_be_opened_or_read_is_an_error_that_names_it(channels, reader, read, form):
    path = channels.pipe_dir / "training_0"
    if form == "a directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    records, error = read(channels.dataset())
    assert records == []
    assert "Pipe mode: " in error
    assert str(path) in error


def test_a_recordio_length_that_is_too_great_is_found_at_the_next_magic(channels, reader, read):
    swallowing = struct.pack("<II", MAGIC, 5000) + b"x" * 1000 + recordio_part(b"y" * 1000) * 20
    channels.write(RECORDIO + swallowing)
    records, error = read(channels.dataset(record_format="RecordIO"))
    assert records[:2] == GOOD
    assert len(records) == 3  # RecordIO has no checksum, so the damaged record looks valid
    assert "Invalid magic number: " in error


def test_both_readers_raise_the_same_text(channels, read, monkeypatch, request):
    results = {}
    for name in ("native", "python"):
        with monkeypatch.context() as patch:
            if name == "python":
                from sagemaker_tensorflow import dataset, native_library

                patch.setattr(dataset, "load_native_reader", lambda: native_library.NativeLibrary(None, None, "off"))
                patch.setattr(dataset, "_announce_reader", lambda reader, source: None)
            results[name] = []
            for record_format, stream, _ in BROKEN.values():
                (channels.pipe_dir / "training_0").write_bytes(stream)
                (channels.state_dir).mkdir(exist_ok=True)
                (channels.state_dir / ".training-pipe_mode-state").write_text("0")
                records, error = read(channels.dataset(record_format=record_format))
                results[name].append((records, error[error.index("}} ") + 3 : error.index("\n")]))
    assert results["native"] == results["python"]


def test_an_error_is_raised_again_by_the_next_read(channels, reader, read):
    channels.write(b"\0" * 16)
    iterator = channels.dataset(record_format="RecordIO").as_numpy_iterator()
    for _ in range(2):
        with pytest.raises(tf.errors.InternalError, match="Invalid magic number: 0"):
            next(iterator)


def test_missing_final_padding_is_tolerated_unless_strict(channels, reader, read):
    for epoch in range(2):
        channels.write(RECORDIO + recordio_part(b"x", padded=False), epoch)
    assert read(channels.dataset(record_format="RecordIO")) == ([*GOOD, b"x"], "")
    records, error = read(channels.dataset(record_format="RecordIO", strict_padding=True))
    assert records == GOOD
    assert "the padding of the last record is missing" in error


def test_the_longest_record_is_an_argument(channels, reader, read):
    for epoch, record_format in enumerate(("RecordIO", "TFRecord", "TextLine")):
        channels.write(encode(record_format, [b"x" * 100, b"y" * 101]), epoch)
        records, error = read(channels.dataset(record_format=record_format, max_record_bytes=100))
        assert records == [b"x" * 100]
        assert "Record too long: " in error
        assert "max_record_bytes is 100; if the data are sound, pass a greater one" in error


def test_corrupt_tfrecords_are_skipped_up_to_the_number_in_a_row(channels, reader, read, capfd):
    bad = flipped(tfrecord(b"bad"), 13)
    good = tfrecord(b"good")
    channels.write(bad + bad + good + bad + bad + good)
    dataset = channels.dataset(record_format="TFRecord", max_corrupted_records_to_skip=2)
    assert read(dataset) == ([b"good", b"good"], "")
    assert capfd.readouterr().err.count("WARN") == 4
    channels.write(good + bad + bad + bad + good, 1)
    records, error = read(dataset)
    assert records == [b"good"]
    assert "CRC check on data failed." in error


def test_a_truncated_tfrecord_is_not_skipped_as_corrupt(channels, reader, read):
    channels.write(TFRECORD + tfrecord(b"x" * 100)[:50])
    records, error = read(channels.dataset(record_format="TFRecord", max_corrupted_records_to_skip=3))
    assert records == GOOD
    assert "CRC check on data failed. The record is truncated" in error


# --- the outcome of the feeder -----------------------------------------------------------------------------------


def test_a_feeder_killed_between_two_records_is_not_the_end_of_the_epoch(channels, reader, read):
    channels.outcome("2 writing 0 0\n")
    writer = channels.run('(echo first; echo second; exec sleep 600) > "$1"', channels.fifo())
    iterator = channels.dataset().as_numpy_iterator()
    assert [next(iterator), next(iterator)] == [b"first", b"second"]
    os.killpg(writer.pid, signal.SIGKILL)
    with pytest.raises(tf.errors.InternalError, match="the feeder died before it had written everything"):
        next(iterator)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("2 ok 4 1\n", ""),
        ("2 ok 5 1\n", "the feeder wrote 5 bytes, 4 were read: bytes were lost"),
        ("2 writing 0 0\n", "the feeder died"),
        ('2 error 3 0 object "a\u00e9/b"  is gone\n', 'the feeder failed: object "a\u00e9/b"  is gone ['),
        ("2 error 3 0\n", "the feeder failed:  ["),
        ("2 perhaps 4 1\n", "unknown state 'perhaps'"),
        ("3 ok 4 1\n", "has version 3, this reader knows version 2; update tidemill-pipemode"),
        ("3 what comes then", "has version 3"),
        ("2 ok four 1\n", "cannot be read"),
        ("2 ok -4 1\n", "cannot be read"),
        ("2 ok\n", "cannot be read"),
        ("2 ok 4 1", "cannot be read"),
        ("1 ok 4 1\n", "cannot be read"),
        ("half a", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_the_outcome_decides_how_an_epoch_ends(channels, reader, read, outcome, text):
    channels.outcome(outcome)
    channels.write(b"a\nb\n")
    records, error = read(channels.dataset())
    assert records == [b"a", b"b"]
    assert text in error
    assert bool(error) == bool(text)
    assert not text or "training_0.outcome]" in error


def test_the_error_of_a_truncated_record_includes_the_outcome(channels, reader, read):
    channels.outcome("2 error 3 0 object x vanished\n")
    channels.write(RECORDIO[:-5])
    records, error = read(channels.dataset(record_format="RecordIO"))
    assert records == GOOD[:1]
    assert "Truncated RecordIO record" in error
    assert "the feeder failed: object x vanished" in error


def test_half_a_line_of_a_dead_feeder_is_not_a_record(channels, reader, read):
    channels.outcome("2 writing 0 0\n")
    channels.write(b"whole\nhal")
    records, error = read(channels.dataset())
    assert records == [b"whole"]
    assert "the feeder died" in error
