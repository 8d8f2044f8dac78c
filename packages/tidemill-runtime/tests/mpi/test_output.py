"""The output of a rank: whole lines behind its name, however its pieces arrive, and its end for the failure report."""

from __future__ import annotations

import os

import pytest

from tidemill_runtime.mpi.rank import KEPT_BYTES, LONGEST_LINE_BYTES, RankOutput


class Stream:
    """Both ends of an `RankOutput`, whose lines go to a file."""

    def __init__(self, path):
        read, self.fd = os.pipe()
        self._path = path
        self._to = os.open(path, os.O_CREAT | os.O_WRONLY)
        self.output = RankOutput(read, to_fd=self._to, tag="[1]")

    def write(self, data: bytes) -> bool:
        """Write a piece, and pass it on."""
        os.write(self.fd, data)
        return self.output.pass_on()

    @property
    def passed_on(self) -> bytes:
        return self._path.read_bytes()

    def close(self):
        for fd in (self.fd, self.output.fd, self._to):
            os.close(fd)


@pytest.fixture
def stream(tmp_path):
    stream = Stream(tmp_path / "lines")
    yield stream
    stream.close()


def test_a_line_is_passed_on_when_it_is_whole(stream):
    for piece, passed_on in ((b"a", b""), (b"b\nc", b"[1]ab\n"), (b"d", b"[1]ab\n"), (b"\n\n", b"[1]ab\n[1]cd\n[1]\n")):
        assert stream.write(piece)
        assert stream.passed_on == passed_on
    assert stream.output.text() == "ab\ncd\n\n"


def test_an_unfinished_line_is_passed_on_at_the_end(stream):
    stream.write(b"no newline")
    os.close(stream.fd)
    stream.fd = os.open(os.devnull, os.O_RDONLY)
    assert not stream.output.pass_on(), "the end"
    assert stream.passed_on == b"[1]no newline\n"


def test_what_has_arrived_is_drained_although_the_stream_is_open(stream):
    os.write(stream.fd, b"one\ntwo\nhalf")
    stream.output.drain()
    assert stream.passed_on == b"[1]one\n[1]two\n[1]half\n"


def test_a_line_without_end_is_cut_before_it_fills_the_memory(stream):
    piece = b"x" * 32768
    count = LONGEST_LINE_BYTES // len(piece) + 1
    for _ in range(count):
        stream.write(piece)
    assert stream.passed_on == b"[1]" + piece * count + b"\n"


def test_only_the_end_of_the_output_is_kept(stream):
    stream.write(b"first\n")
    stream.write(b"y" * KEPT_BYTES)
    assert stream.output.text() == "y" * KEPT_BYTES
    stream.write("ä".encode())
    assert stream.output.text().endswith("yä")
    assert len(stream.output.text().encode()) == KEPT_BYTES


def test_lines_go_nowhere_if_their_reader_has_left(tmp_path):
    read, write = os.pipe()
    gone, to = os.pipe()
    os.close(gone)
    output = RankOutput(read, to_fd=to, tag="")
    os.write(write, b"one\ntwo\n")
    assert output.pass_on()
    os.write(write, b"three\n")
    assert output.pass_on()
    assert output.text() == "one\ntwo\nthree\n"
    for fd in (read, write, to):
        os.close(fd)
