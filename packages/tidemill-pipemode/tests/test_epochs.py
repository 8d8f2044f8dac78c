"""The FIFO that an iteration reads."""

import subprocess
import sys
import threading

import pytest
import tensorflow as tf


def test_repeat_continues_with_the_next_fifo(channels, reader, read):
    for epoch in range(3):
        channels.write(f"{epoch}\n".encode(), epoch)
    assert read(channels.dataset().repeat(3)) == ([b"0", b"1", b"2"], "")
    assert channels.next_epoch == "3"


def test_a_second_iteration_and_a_second_dataset_continue_with_the_next_fifo(channels, reader, read):
    for epoch in range(3):
        channels.write(f"{epoch}\n".encode(), epoch)
    dataset = channels.dataset()
    assert read(dataset)[0] == [b"0"]
    assert read(dataset)[0] == [b"1"]
    assert read(channels.dataset())[0] == [b"2"]


def test_a_used_state_directory_continues_with_its_next_epoch(channels, reader, read):
    channels.state_dir.mkdir()
    (channels.state_dir / ".training-pipe_mode-state").write_text("41\n")
    channels.write(b"later\n", 41)
    assert read(channels.dataset())[0] == [b"later"]
    assert channels.next_epoch == "42"


def test_a_damaged_counter_is_an_error_that_names_it(channels, reader, read):
    channels.state_dir.mkdir()
    (channels.state_dir / ".training-pipe_mode-state").write_text("four")
    channels.fifo()
    records, error = read(channels.dataset())
    assert records == []
    assert ".training-pipe_mode-state" in error
    assert "four" in error


def test_channels_have_separate_counters_and_are_read_in_parallel(channels, reader, read):
    channels.write(b"a\nb\n")
    channels.write(b"1\n2\n", channel="validation")
    both = tf.data.Dataset.zip((channels.dataset(), channels.dataset("validation")))
    assert [tuple(map(bytes, pair)) for pair in both.as_numpy_iterator()] == [(b"a", b"1"), (b"b", b"2")]


def test_two_concurrent_iterations_never_read_the_same_epoch(channels, reader):
    for epoch in range(8):
        channels.write(f"{epoch}\n".encode(), epoch)
    seen: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(channels.dataset().repeat(2).as_numpy_iterator())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [f"{epoch}".encode() for epoch in range(8)]


def test_both_readers_and_other_processes_share_the_counter(channels, read, monkeypatch):
    script = (
        "import sys; from sagemaker_tensorflow import epochs, options\n"
        "o = options.ReaderOptions('training', 'TextLine', sys.argv[1], sys.argv[2])\n"
        "print(epochs.try_to_open_next_epoch(o)[0])"
    )
    for epoch in range(2):
        channels.write(f"{epoch}\n".encode(), epoch)
    assert read(channels.dataset())[0] == [b"0"]
    arguments = [sys.executable, "-c", script, str(channels.state_dir), str(channels.pipe_dir)]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout == "1\n"
    assert channels.next_epoch == "2"


def test_a_regular_file_may_replace_a_fifo(channels, reader, read):
    (channels.pipe_dir / "training_0").write_bytes(b"from\na file")
    assert read(channels.dataset()) == ([b"from", b"a file"], "")


def test_a_fifo_that_never_appears_is_an_error_and_uses_up_no_epoch(channels, reader, read):
    records, error = read(channels.dataset(path_timeout_s=0.3))
    assert records == []
    assert f"File does not exist: {channels.pipe_dir}/training_0" in error
    assert channels.next_epoch == "0"


def test_a_fifo_that_appears_late_is_read(channels, reader, read):
    (channels.pipe_dir / "source").write_bytes(b"late\n")
    channels.run(
        'sleep 0.3; mkfifo "$1"; cat "$2" > "$1"', channels.pipe_dir / "training_0", channels.pipe_dir / "source"
    )
    assert read(channels.dataset()) == ([b"late"], "")


def test_an_iterator_cannot_be_checkpointed(channels, reader):
    iterator = iter(channels.dataset())
    with pytest.raises((tf.errors.UnimplementedError, tf.errors.FailedPreconditionError)):
        tf.train.Checkpoint(iterator=iterator).write(str(channels.pipe_dir / "checkpoint"))


def test_the_first_readers_of_a_process_may_be_created_by_concurrent_threads():
    script = """
import sys
import threading
import tensorflow as tf
from sagemaker_tensorflow import status_op

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def make():
    together.wait()
    with tf.Graph().as_default():
        status_op.raise_status(tf.constant(0, tf.int64))

threads = [threading.Thread(target=make) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("made")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout == "made\n", done.stderr
