"""A silent writer blocks nothing: neither the deletion of an iterator, nor Ctrl-C, nor the end of the process."""

import os
import signal
import threading
import time

import pytest
import tensorflow as tf

from sagemaker_tensorflow import waits

DEADLINE_S = 120

SCRIPT = """
import sys
from sagemaker_tensorflow import PipeModeDataset
root = sys.argv[1]
records = PipeModeDataset("training", "TextLine", root + "/state", root + "/data", root + "/config")
"""
WAIT_IN_NEXT = """
iterator = iter(records)
try:
    print(next(iterator).numpy().decode(), flush=True)
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(next(iterator).numpy().decode(), flush=True)
"""
WAIT_BEHIND_PREFETCH = WAIT_IN_NEXT.replace("iter(records)", "iter(records.repeat(2).prefetch(2))")
END_WHILE_OTHERS_WAIT = """
iterator = iter(records.prefetch(10))
print(next(iterator).numpy().decode(), flush=True)
"""


@pytest.mark.parametrize("script", [WAIT_IN_NEXT, WAIT_BEHIND_PREFETCH], ids=["plain", "prefetch"])
def test_ctrl_c_ends_a_waiting_next_and_the_iterator_can_continue(channels, reader, scripts, tmp_path, script):
    channels.run(
        '(echo one; while [ ! -e "$2" ]; do sleep 0.1; done; echo two) > "$1"', channels.fifo(), tmp_path / "go"
    )
    process = scripts.start(SCRIPT + script, tmp_path, reader=reader)
    assert process.stdout.readline() == "one\n"
    line: list[str] = []
    listener = threading.Thread(target=lambda: line.append(process.stdout.readline()))
    listener.start()
    deadline_s = time.monotonic() + DEADLINE_S
    # It is not visible from outside whether next() already waits; an earlier Ctrl-C must work, too.
    process.send_signal(signal.SIGINT)
    listener.join(max(0.0, deadline_s - time.monotonic()))
    assert line == ["interrupted\n"]
    (tmp_path / "go").touch()
    output, errors = process.communicate(DEADLINE_S)
    assert output == "two\n", errors
    assert process.returncode == 0, errors


def test_the_process_ends_while_a_prefetch_waits(channels, reader, scripts, tmp_path):
    channels.run('(echo one; exec sleep 600) > "$1"', channels.fifo())
    process = scripts.start(SCRIPT + END_WHILE_OTHERS_WAIT, tmp_path, reader=reader)
    output, errors = process.communicate(DEADLINE_S)
    assert output == "one\n", errors
    assert process.returncode == 0, errors


@pytest.mark.parametrize("waits_for", ["data", "a writer", "the FIFO"])
def test_deleting_an_iterator_does_not_wait(channels, reader, waits_for):
    if waits_for != "the FIFO":
        channels.fifo()
    if waits_for == "data":
        channels.run('exec sleep 600 > "$1"', channels.fifo())
    iterator = iter(channels.dataset().prefetch(2))
    with pytest.raises(tf.errors.OpError):
        _next_cancelled(iterator)
    start_s = time.monotonic()
    del iterator
    assert time.monotonic() - start_s < DEADLINE_S


def _next_cancelled(iterator) -> None:
    """Wait in next() while a signal arrives for which Python raises nothing."""
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(0.3):  # repeatedly: the first signal may arrive before the wait
            os.write(waits._WaitState.write_end, bytes([signal.SIGTERM]))

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        next(iterator)
    finally:
        done.set()
        interrupter.join()


def test_the_writer_of_a_deleted_iterator_gets_a_broken_pipe(channels, reader, tmp_path):
    writer = channels.run(
        'trap "" PIPE; (yes > "$1") 2>/dev/null; echo over > "$2"', channels.fifo(), tmp_path / "over"
    )
    iterator = iter(channels.dataset().prefetch(2))
    assert next(iterator).numpy() == b"y"
    del iterator
    assert writer.wait(DEADLINE_S) == 0
    assert (tmp_path / "over").exists()


def test_a_child_of_a_fork_does_not_keep_the_writer_waiting(channels, reader, tmp_path):
    writer = channels.run(
        'trap "" PIPE; (yes > "$1") 2>/dev/null; echo over > "$2"', channels.fifo(), tmp_path / "over"
    )
    iterator = iter(channels.dataset())
    assert next(iterator).numpy() == b"y"
    child = channels.run("exec sleep 600")  # fork and exec
    read_end, write_end = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.close(write_end)
        os.read(read_end, 1)  # waits until the parent is done
        os._exit(0)
    os.close(read_end)
    del iterator
    assert writer.wait(DEADLINE_S) == 0
    os.close(write_end)
    assert os.waitpid(forked, 0)[1] == 0
    assert child.poll() is None


def test_two_zipped_datasets_of_a_channel_print_why_they_wait(channels, reader):
    channels.run('(echo one; exec sleep 600) > "$1"', channels.fifo())
    both = tf.data.Dataset.zip((channels.dataset(path_timeout_s=1), channels.dataset(path_timeout_s=1)))
    with pytest.raises(tf.errors.InternalError) as failed:
        next(iter(both))
    assert "Another dataset of this process reads epoch 0 of the channel" in str(failed.value)
    assert "cannot be zipped" in str(failed.value)


def test_another_channel_is_no_reason_to_wait(channels, reader):
    channels.run('(echo one; exec sleep 600) > "$1"', channels.fifo())
    first = iter(channels.dataset())
    next(first)
    with pytest.raises(tf.errors.InternalError) as failed:
        next(iter(channels.dataset(channel="validation", path_timeout_s=1)))
    assert "Another dataset" not in str(failed.value)
