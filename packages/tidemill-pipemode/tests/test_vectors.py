"""`repeat`, `prefetch` and `batch` work on whole vectors of records, with the same results as on single records."""

import pytest
import tensorflow as tf


@pytest.mark.parametrize("ahead", [0, 1, 10, tf.data.AUTOTUNE, None])
def test_batches_span_epochs_and_vectors(channels, reader, read, ahead):
    for epoch in range(3):
        channels.write(b"".join(b"%d.%d\n" % (epoch, number) for number in range(5)), epoch)
    dataset = channels.dataset().repeat(3).prefetch(ahead).batch(4)
    batches = [batch.tolist() for batch in dataset.as_numpy_iterator()]
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    assert [record for batch in batches for record in batch] == [b"%d.%d" % (e, n) for e in range(3) for n in range(5)]
    assert channels.next_epoch == "3"


def test_single_records_are_returned_after_repeat_and_prefetch(channels, reader, read):
    for epoch in range(2):
        channels.write(b"a\nb\n", epoch)
    dataset = channels.dataset().repeat(2).prefetch(10)
    assert dataset.element_spec == tf.TensorSpec([], tf.string)
    lengths = dataset.map(tf.strings.length, num_parallel_calls=10)
    assert list(lengths.as_numpy_iterator()) == [1] * 4


@pytest.mark.parametrize("count", [None, -1, "tensor"])
def test_an_endless_repeat_ends_at_an_empty_epoch_as_in_tf_data(channels, reader, read, count):
    channels.write(b"a\nb\n", 0)
    channels.write(b"c\n", 1)
    # A slow writer: the reader returns an empty vector before the end.
    channels.run('exec 3> "$1"; sleep 0.5', channels.fifo(2))
    dataset = channels.dataset().repeat(tf.constant(-1, tf.int64) if count == "tensor" else count)
    assert read(dataset) == ([b"a", b"b", b"c"], "")
    assert channels.next_epoch == "3"


def test_a_counted_repeat_continues_after_an_empty_epoch(channels, reader, read):
    channels.write(b"a\n", 0)
    channels.write(b"", 1)
    channels.write(b"b\n", 2)
    assert read(channels.dataset().repeat(3)) == ([b"a", b"b"], "")
