"""What goes to standard error: the script's bytes, whose end is kept, and the runtime's own lines."""

from __future__ import annotations

import json
import os
import threading

import pytest

from tidemill_runtime.events import MAX_FIELD_CHARACTERS, emit
from tidemill_runtime.tee import KEPT_BYTES, Tail, write_all


@pytest.fixture
def pipe():
    """Yield both ends of a pipe."""
    fds = os.pipe()
    yield fds
    for fd in fds:
        os.close(fd)


def test_bytes_are_passed_on_unchanged_and_their_end_is_kept(pipe):
    tail = Tail(pipe[1])
    given = [b"begin ", "ä€".encode(), b"\xff\0 end\n"]
    for data in given:
        tail.pass_on(data)
    assert os.read(pipe[0], 100) == b"".join(given)
    assert tail.text() == "begin ä€�\0 end\n"


def test_only_the_last_bytes_are_kept_also_of_a_large_piece(tmp_path):
    fd = os.open(tmp_path / "errors", os.O_RDWR | os.O_CREAT)
    tail = Tail(fd)
    tail.pass_on(b"a" * 10)
    tail.pass_on(b"b" * KEPT_BYTES)
    tail.pass_on(b"c" * 3)
    assert tail.text() == "b" * (KEPT_BYTES - 3) + "ccc"
    assert os.lseek(fd, 0, os.SEEK_CUR) == KEPT_BYTES + 13, "all were passed on"
    os.close(fd)


def test_without_a_reader_the_end_is_still_kept():
    reading, writing = os.pipe()
    os.close(reading)
    tail = Tail(writing)
    tail.pass_on(b"one ")
    tail.pass_on(b"two")
    assert tail.text() == "one two"
    os.close(writing)


def test_more_than_a_pipe_holds_is_written_whole(pipe):
    data = os.urandom(300_000)
    found = bytearray()

    def read():
        while len(found) < len(data):
            found.extend(os.read(pipe[0], 1000))

    reader = threading.Thread(target=read)
    reader.start()
    write_all(pipe[1], data)
    reader.join()
    assert bytes(found) == data


def test_an_event_is_one_line_of_ascii_with_values_in_json(capfd):
    emit("script.started", pid=7, words=["ä", None], text='a "b"\n')
    emit("script.ended")
    first, second = capfd.readouterr().err.splitlines()
    assert first == 'tidemill: script.started pid=7 words=["\\u00e4", null] text="a \\"b\\"\\n"'
    assert second == "tidemill: script.ended"


def test_a_long_value_of_an_event_is_cut(capfd):
    emit("script.started", argv="x" * 5000, pid=7)
    line = capfd.readouterr().err
    value = line.partition("argv=")[2].partition(" pid=")[0]
    assert len(value) == MAX_FIELD_CHARACTERS and value.endswith("xxx...")
    assert json.loads(line.partition("pid=")[2]) == 7, "what follows is whole"
