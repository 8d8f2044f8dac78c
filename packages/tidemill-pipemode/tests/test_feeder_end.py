"""A reader never waits for a feeder that has ended: by kill -9, a signal, an error, or after its last epoch."""

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
import tensorflow as tf

from feeders import DEADLINE_S, feeding, open_files, stop
from sagemaker_tensorflow import epochs
from sagemaker_tensorflow.options import ReaderOptions

# Writes each epoch and removes its FIFO as soon as a reader has opened it, as a quick feeder does.
QUICK_FEEDER = """
import os, sys

for epoch in range(int(sys.argv[2])):
    path = f"{sys.argv[1]}/training_{epoch}"
    while True:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            pass
    os.write(fd, b"line\\n")
    os.close(fd)
    os.unlink(path)
"""
KILLED = "it was killed, or died without a word"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    return path


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return a file larger than a FIFO's buffer: its feeder cannot finish until a reader reads it all."""
    path = tmp_path / "endless"
    path.write_bytes(b"line\n" * 1_000_000)
    return path


def until(condition: Callable[[], bool]) -> None:
    """Poll a condition on files, for whose changes there is no notification."""
    while not condition():
        os.sched_yield()


class Reading:
    """Reads a dataset to its end in a thread."""

    def __init__(self, read, dataset: tf.data.Dataset) -> None:
        self._result: list[tuple[list[bytes], str]] = []
        self._thread = threading.Thread(target=lambda: self._result.append(read(dataset)), daemon=True)
        self._thread.start()

    def result(self) -> tuple[list[bytes], str]:
        self._thread.join(DEADLINE_S)
        assert self._result, "the reader still waits"
        return self._result[0]


@contextmanager
def fed(channels, *arguments: object):
    """Yield a feeder that has created the FIFO of its first epoch."""
    first = channels.pipe_dir / ".tidemill" / "training.feeder"
    with feeding(channels.pipe_dir, *arguments) as feeder:
        until(lambda: first.exists() and any(path.is_fifo() for path in channels.pipe_dir.glob("training_*")))
        yield feeder


def fifos(channels) -> list[str]:
    return sorted(path.name for path in channels.pipe_dir.iterdir() if path.is_fifo())


def outcome(channels, epoch: int) -> str:
    return (channels.pipe_dir / ".tidemill" / f"training_{epoch}.outcome").read_text()


def test_the_epoch_after_a_kill_raises_and_is_not_used_up(channels, reader, read, lines):
    dataset = channels.dataset(path_timeout_s=0.2)
    with fed(channels, lines) as feeder:
        assert read(dataset) == ([b"one", b"two"], "")
        until(lambda: "training_1" in fifos(channels))
        assert feeder.end(signal.SIGKILL)[0] == -signal.SIGKILL
    records, error = read(dataset)
    assert records == []
    assert f"Nobody fills {channels.pipe_dir}/training_1. The feeder of channel training ended before epoch 1" in error
    assert KILLED in error
    assert "--first-epoch 1" in error
    assert channels.next_epoch == "1"
    with feeding(channels.pipe_dir, lines, "--first-epoch", 1):
        assert read(channels.dataset()) == ([b"one", b"two"], "")


def test_a_reader_that_has_opened_the_fifo_of_a_killed_feeder_raises(channels, reader, read, lines):
    with fed(channels, lines) as feeder:
        stop(feeder)
        reading = Reading(read, channels.dataset())
        until(lambda: (channels.state_dir / ".training-pipe_mode-state").exists() and channels.next_epoch == "1")
        feeder.end(signal.SIGKILL)
        records, error = reading.result()
    assert records == []
    assert f"Nobody fills {channels.pipe_dir}/training_0. The feeder of channel training ended before epoch 0" in error
    assert KILLED in error
    assert "--first-epoch 1" in error


def test_a_reader_that_waits_for_a_fifo_gets_an_error_after_the_kill(channels, reader, read, lines):
    with fed(channels, lines, "--first-epoch", 7) as feeder:
        reading = Reading(read, channels.dataset())
        until((channels.state_dir / ".training-pipe_mode-lock").exists)
        feeder.end(signal.SIGKILL)
        records, error = reading.result()
    assert records == []
    assert f"File does not exist: {channels.pipe_dir}/training_0. The feeder of channel training ended" in error
    assert channels.next_epoch == "0"


def test_a_repeated_dataset_ends_with_the_feeder(channels, reader, read, lines):
    with fed(channels, lines, "--epochs", 2) as feeder:
        reading = Reading(read, channels.dataset(path_timeout_s=0.2).repeat().prefetch(2))
        assert feeder.end()[0] == 0
        records, error = reading.result()
    assert records == [b"one", b"two"] * 2
    assert f"File does not exist: {channels.pipe_dir}/training_2." in error
    assert "it streamed all epochs that it was started for" in error
    assert fifos(channels) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_feeder_in_order(channels, number, lines):
    with fed(channels, lines) as feeder:
        until(lambda: "training_1" in fifos(channels))
        status, errors = feeder.end(number)
    assert status == 128 + number
    assert f"{number.name} ends the feeder of channel training" in errors
    assert fifos(channels) == []
    for epoch in (0, 1):
        assert re.fullmatch(rf"2 error \d+ 0 {number.name} stopped it\n", outcome(channels, epoch))


def test_the_reader_of_a_stopped_feeder_raises(channels, reader, read, lines):
    with fed(channels, lines) as feeder:
        feeder.end(signal.SIGTERM)
    records, error = read(channels.dataset(path_timeout_s=0.2))
    assert records == []
    assert "The feeder of channel training ended before epoch 0: SIGTERM stopped it." in error


def test_a_signal_in_the_middle_of_an_epoch_is_an_error_of_its_reader(channels, reader, endless):
    with fed(channels, endless) as feeder:
        iterator = channels.dataset().batch(1000).as_numpy_iterator()
        next(iterator)
        assert feeder.end(signal.SIGTERM)[0] == 128 + signal.SIGTERM
        with pytest.raises(tf.errors.InternalError, match="the feeder failed: SIGTERM stopped it"):
            for _ in iterator:
                pass
    assert fifos(channels) == []


def test_a_failed_feeder_leaves_no_fifo(channels, reader, read, tmp_path):
    packed = tmp_path / "lines.gz"
    packed.write_bytes(b"no gzip at all")
    with fed(channels, packed, "--gzip") as feeder:
        records, error = read(channels.dataset(path_timeout_s=0.2).repeat(2))
        assert records == []
        assert "the feeder failed" in error
        assert feeder.end()[0] == 1
        records, error = read(channels.dataset(path_timeout_s=0.2))
    assert "The feeder of channel training ended before epoch 1: " in error
    assert "lines.gz" in error or "Not a gzipped file" in error
    assert fifos(channels) == []


def test_a_new_feeder_within_the_time_limit_replaces_the_old_one(channels, reader, read, lines, tmp_path):
    for attempt in range(5):  # the time limit is 0.1 s, which a new process may miss on a busy machine
        root = tmp_path / f"attempt-{attempt}"
        root.mkdir()
        records, error = read_over_a_new_feeder(type(channels)(root), read, lines)
        if records == [b"one", b"two"] and not error:
            return
        assert "The feeder of channel training ended before epoch" in error
    pytest.fail("five feeders came too late")


def read_over_a_new_feeder(channels, read, lines) -> tuple[list[bytes], str]:
    """Begin to read after a feeder was killed, just before the next one begins."""
    with fed(channels, lines) as feeder:
        feeder.end(signal.SIGKILL)
    turn = os.open(channels.config_dir, os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)  # the new feeder waits for this lock just before it begins
    with feeding(channels.pipe_dir, lines, "--epochs", 1, "--config-dir", channels.config_dir) as feeder:
        until(lambda: channels.config_dir in open_files(feeder.pid))
        reading = Reading(read, channels.dataset())
        until((channels.state_dir / ".training-pipe_mode-lock").exists)
        os.close(turn)
        return reading.result()


def test_a_new_feeder_removes_the_files_of_a_killed_one(channels, lines):
    with fed(channels, lines, "--first-epoch", 7) as feeder:
        until(lambda: "training_8" in fifos(channels))
        feeder.end(signal.SIGKILL)
    (channels.pipe_dir / "training_99.txt").touch()
    by_hand = channels.fifo(5)
    with fed(channels, lines):
        until(lambda: "training_1" in fifos(channels))
        assert fifos(channels) == ["training_0", "training_1", by_hand.name]


def test_no_reader_takes_the_fifo_of_a_killed_feeder_from_a_new_one(channels, lines):
    options = ReaderOptions("training", "TextLine", str(channels.state_dir), str(channels.pipe_dir))
    taken: list[int] = []

    def take() -> None:
        while not taken:
            found = epochs.try_to_open_next_epoch(options)
            if not isinstance(found, epochs.NoEpochYet):
                taken.append(found[1])

    for number in range(2000):  # the new feeder looks at all of them while the reader tries
        (channels.pipe_dir / f"other_{number}").touch()
    channels.fifo()
    channels.outcome("2 writing 0 0\n")
    (channels.pipe_dir / ".tidemill" / "training.feeder").touch()
    channels.state_dir.mkdir()
    reader = threading.Thread(target=take)
    reader.start()
    with feeding(channels.pipe_dir, lines, "--epochs", 1):
        reader.join(DEADLINE_S)
        poll = select.poll()
        poll.register(taken[0], select.POLLIN)
        assert poll.poll(DEADLINE_S * 1000), "the reader has the FIFO of the killed feeder"
        epochs.close_epoch(taken[0])


def test_an_epoch_that_was_written_and_removed_at_once_is_read(channels, reader, read):
    count = 300
    for epoch in range(count):
        channels.fifo(epoch)
    with subprocess.Popen([sys.executable, "-c", QUICK_FEEDER, channels.pipe_dir, str(count)]) as feeder:
        try:
            assert read(channels.dataset(path_timeout_s=1).repeat(count)) == ([b"line"] * count, "")
        finally:
            feeder.kill()


def test_a_second_feeder_of_a_channel_is_refused(channels, reader, read, lines):
    with fed(channels, lines, "--epochs", 1):
        with feeding(channels.pipe_dir, lines) as second:
            status, errors = second.end()
        assert status == 1
        assert "another feeder is at work on this channel" in errors
        assert "training.feeder" in errors
        assert read(channels.dataset()) == ([b"one", b"two"], "")


def test_channels_of_one_directory_have_separate_feeders(channels, reader, read, lines):
    with fed(channels, lines), feeding(channels.pipe_dir, lines, "--channel", "validation") as other:
        assert read(channels.dataset("validation")) == ([b"one", b"two"], "")
        other.end(signal.SIGKILL)
        assert read(channels.dataset("training")) == ([b"one", b"two"], "")
        _, error = read(channels.dataset("validation", path_timeout_s=0.2))
        assert "The feeder of channel validation ended before epoch 1" in error


def test_a_fifo_made_by_hand_beside_the_lock_of_a_dead_feeder_is_waited_for(channels, reader, read, lines):
    with fed(channels, lines, "--first-epoch", 7) as feeder:
        feeder.end(signal.SIGKILL)
    fifo = channels.fifo(0)
    reading = Reading(read, channels.dataset(path_timeout_s=0.2))
    until(lambda: (channels.state_dir / ".training-pipe_mode-state").exists() and channels.next_epoch == "1")
    channels.run('echo by hand > "$1"', fifo)
    assert reading.result() == ([b"by hand"], "")


def test_a_regular_file_beside_the_lock_of_a_dead_feeder_is_read(channels, reader, read, lines):
    with fed(channels, lines) as feeder:
        feeder.end(signal.SIGKILL)
    path = channels.pipe_dir / "training_0"
    path.unlink()
    path.write_bytes(b"")
    _, error = read(channels.dataset(path_timeout_s=0.2))
    assert "the feeder died before it had written everything" in error


@pytest.mark.parametrize("form", ["removed", "replaced"])
def test_a_fifo_that_vanishes_before_its_first_byte_is_not_waited_for(channels, reader, read, form):
    fifo = channels.fifo()
    reading = Reading(read, channels.dataset())
    until(lambda: (channels.state_dir / ".training-pipe_mode-state").exists() and channels.next_epoch == "1")
    fifo.unlink()
    if form == "replaced":
        channels.fifo()
    records, error = reading.result()
    assert records == []
    assert f"Nobody fills {fifo}. It was removed or replaced" in error
