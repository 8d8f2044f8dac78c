"""The segment writer: it loses no byte, leaves no incomplete line, and its time never decreases."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core import faults, segments
from tidemill.core.files import read_json
from tidemill.core.segments import (
    MESSAGE_MAX_BYTES,
    STREAM_FILE,
    SegmentWriter,
    create_stream,
    segment_path,
    segments_of,
    stream_directory,
)


class JumpingClock:
    """A wall clock that returns the given times, then stays at the last one."""

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = list(times_ms)

    def now_ms(self) -> int:
        return self.times_ms.pop(0) if len(self.times_ms) > 1 else self.times_ms[0]

    def monotonic_s(self) -> float:
        return 0.0


def lines_in(directory: Path) -> list[bytes]:
    return b"".join(segment_path(directory, n).read_bytes() for n in segments_of(directory)).splitlines(keepends=True)


def messages_in(directory: Path) -> list[bytes]:
    data = b"".join(segment_path(directory, n).read_bytes() for n in segments_of(directory))
    return [line.partition(b" ")[2] for line in data.split(b"\n")[:-1]]


def test_a_line_is_its_time_and_its_bytes(tmp_path):
    with SegmentWriter(tmp_path / "s", clock=JumpingClock(1700000000123)) as writer:
        writer.write(b"step 1\n")
        writer.write(b"")
        writer.write(b" nul \x00, bad \xff\xfe, cr \r")
    assert segment_path(tmp_path / "s", 1).read_bytes() == (
        b"1700000000123 step 1\n1700000000123 \n1700000000123  nul \x00, bad \xff\xfe, cr \r\n"
    )


def test_lines_are_in_the_file_when_write_returns(tmp_path):
    writer = SegmentWriter(tmp_path)
    writer.write(b"here")
    assert messages_in(tmp_path) == [b"here"]
    writer.close()


def test_time_never_goes_back_when_the_clock_does(tmp_path):
    with SegmentWriter(tmp_path, clock=JumpingClock(1000, 5000, 200, 5001)) as writer:
        for _ in range(4):
            writer.write(b"x")
    assert [int(line.split(b" ")[0]) for line in lines_in(tmp_path)] == [1000, 5000, 5000, 5001]


def test_time_never_goes_back_across_a_restart(tmp_path):
    with SegmentWriter(tmp_path, clock=JumpingClock(9000)) as writer:
        writer.write(b"before")
    with SegmentWriter(tmp_path, clock=JumpingClock(100)) as writer:
        assert writer.last_ms == 9000
        writer.write(b"after")
    assert lines_in(tmp_path) == [b"9000 before\n", b"9000 after\n"]


def test_time_is_found_in_the_segment_before_an_empty_one(tmp_path):
    with SegmentWriter(tmp_path, clock=JumpingClock(9000)) as writer:
        writer.write(b"before")
    segment_path(tmp_path, 2).write_bytes(b"100 torn")
    with SegmentWriter(tmp_path, clock=JumpingClock(100)) as writer:
        assert writer.last_ms == 9000


def test_a_damaged_last_line_does_not_hide_the_time(tmp_path):
    segment_path(tmp_path, 1).write_bytes(b"9000 good\n\xff\xff damaged\n")
    with SegmentWriter(tmp_path, clock=JumpingClock(100)) as writer:
        assert writer.last_ms == 9000


@pytest.mark.parametrize("cut", range(1, 17))
def test_a_torn_line_is_cut_off_by_the_writer_that_comes_back(tmp_path, cut):
    with SegmentWriter(tmp_path, clock=JumpingClock(1000)) as writer:
        writer.write(b"whole")
        writer.write(b"torn line!")
    path = segment_path(tmp_path, 1)
    os.truncate(path, path.stat().st_size - cut)
    with SegmentWriter(tmp_path, clock=JumpingClock(1000)) as writer:
        writer.write(b"next")
    assert messages_in(tmp_path) == [b"whole", b"next"]


@pytest.mark.parametrize("size", [1, segments.TAIL_BYTES - 1, segments.TAIL_BYTES, segments.TAIL_BYTES * 2 + 5])
def test_a_long_torn_tail_is_cut_off(tmp_path, size):
    segment_path(tmp_path, 1).write_bytes(b"1000 whole\n" + b"\x00" * size)
    with SegmentWriter(tmp_path, clock=JumpingClock(1000)):
        pass
    assert lines_in(tmp_path) == [b"1000 whole\n"]


def test_a_file_with_only_an_incomplete_line_is_emptied(tmp_path):
    segment_path(tmp_path, 1).write_bytes(b"1000 never finished")
    with SegmentWriter(tmp_path, clock=JumpingClock(5)) as writer:
        writer.write(b"first")
    assert lines_in(tmp_path) == [b"5 first\n"]


def test_a_full_segment_is_followed_by_the_next(tmp_path):
    with SegmentWriter(tmp_path, segment_bytes=100, clock=JumpingClock(1000)) as writer:
        for number in range(30):
            writer.write(b"%02d" % number * 10)
    assert segments_of(tmp_path) == list(range(1, 11))
    assert all(segment_path(tmp_path, n).stat().st_size <= 100 for n in segments_of(tmp_path))
    with SegmentWriter(tmp_path, segment_bytes=100, clock=JumpingClock(1000)) as writer:
        writer.write(b"30" * 10)
    assert messages_in(tmp_path) == [b"%02d" % number * 10 for number in range(31)]


def test_a_line_larger_than_a_segment_gets_its_own_segment(tmp_path):
    with SegmentWriter(tmp_path, segment_bytes=50, clock=JumpingClock(1)) as writer:
        for message in (b"a", b"b" * 200, b"c"):
            writer.write(message)
    assert segments_of(tmp_path) == [1, 2, 3]
    assert messages_in(tmp_path) == [b"a", b"b" * 200, b"c"]


@pytest.mark.parametrize("extra", [-1, 0, 1, MESSAGE_MAX_BYTES, 2 * MESSAGE_MAX_BYTES + 7])
def test_a_long_line_becomes_several_events_and_loses_no_byte(tmp_path, extra):
    line = os.urandom(MESSAGE_MAX_BYTES + extra).replace(b"\n", b"x")
    with SegmentWriter(tmp_path) as writer:
        writer.write(line)
    messages = messages_in(tmp_path)
    assert b"".join(messages) == line
    assert all(len(message) <= MESSAGE_MAX_BYTES for message in messages)


@pytest.mark.parametrize("shift", range(4))
def test_a_long_line_is_not_split_inside_a_character(tmp_path, shift):
    text = "x" * shift + "\U0001f600" * (MESSAGE_MAX_BYTES // 2)
    with SegmentWriter(tmp_path) as writer:
        writer.write(text.encode())
    assert "".join(message.decode() for message in messages_in(tmp_path)) == text


@settings(max_examples=80, deadline=None)
@given(
    batches=st.lists(st.lists(st.binary(max_size=60), max_size=5), max_size=8),
    times=st.lists(st.integers(0, 10**13), min_size=1, max_size=8),
    segment_bytes=st.integers(20, 300),
)
def test_all_written_lines_are_there_in_order(tmp_path_factory, batches, times, segment_bytes):
    directory = tmp_path_factory.mktemp("stream")
    clock = JumpingClock(*times)
    expected = []
    for batch in batches:
        with SegmentWriter(directory, segment_bytes=segment_bytes, clock=clock) as writer:
            writer.write_many(batch)
        expected += [part for line in batch for part in line.removesuffix(b"\n").split(b"\n")]
    assert messages_in(directory) == expected
    stamps = [int(line.split(b" ")[0]) for line in b"".join(lines_in(directory)).split(b"\n")[:-1]]
    assert stamps == sorted(stamps)


def test_several_threads_may_write(tmp_path):
    with SegmentWriter(tmp_path, segment_bytes=5000) as writer:
        threads = [
            threading.Thread(target=lambda n=n: [writer.write(b"%d-%d" % (n, i)) for i in range(500)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    messages = messages_in(tmp_path)
    assert len(messages) == 2000
    for n in range(4):
        assert [m for m in messages if m.startswith(b"%d-" % n)] == [b"%d-%d" % (n, i) for i in range(500)]


def test_a_write_cut_short_by_a_full_disk_is_taken_back_and_may_be_repeated(tmp_path, monkeypatch):
    real, left = os.write, [7]

    def short_write(fd: int, data: memoryview) -> int:
        if left[0] <= 0:
            raise OSError(28, "No space left on device")
        written = real(fd, data[: left[0]])
        left[0] -= written
        return written

    with SegmentWriter(tmp_path, clock=JumpingClock(1000)) as writer:
        writer.write(b"first")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short_write)
            with pytest.raises(OSError, match="No space left"):
                writer.write_many([b"second", b"third"])
        assert messages_in(tmp_path) == [b"first"]
        writer.write_many([b"second", b"third"])
    assert messages_in(tmp_path) == [b"first", b"second", b"third"]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    with SegmentWriter(tmp_path) as writer:
        writer.write(b"a line that takes many writes")
    assert messages_in(tmp_path) == [b"a line that takes many writes"]


def test_a_rotation_that_fails_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_armed", faults._parse("segments.rotate:enospc:1:1"))
    with SegmentWriter(tmp_path, segment_bytes=20, clock=JumpingClock(1000)) as writer:
        writer.write(b"first line")
        with pytest.raises(OSError, match="fault injected"):
            writer.write(b"second line")
        writer.write(b"second line")
    assert messages_in(tmp_path) == [b"first line", b"second line"]


def test_a_closed_writer_raises(tmp_path):
    writer = SegmentWriter(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.write(b"late")


KILLED = """
import os, sys
from pathlib import Path
from tidemill.core.segments import SegmentWriter
writer = SegmentWriter(Path(sys.argv[1]), segment_bytes=20_000)
number = 0
while True:
    writer.write(b"line %d " % number + b"x" * 100)
    os.write(1, b"%d\\n" % number)
    number += 1
"""


def test_no_line_is_lost_or_repeated_by_kill_9_of_the_writer(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(2000):
        child.stdout.readline()
    child.kill()
    last = int(child.stdout.read().rpartition(b"\n")[0].rpartition(b"\n")[2] or 1999)
    child.stdout.close()
    child.wait()
    with SegmentWriter(tmp_path) as writer:
        writer.write(b"after")
    numbers = [int(message.split()[1]) for message in messages_in(tmp_path)[:-1]]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= last + 1


# Streams


def test_a_stream_has_a_directory_that_no_name_can_leave(tmp_path):
    for name in ("../../etc/passwd", "/", "..", "a/b", "x" * 5000, "\x00", "ü"):
        directory = create_stream(tmp_path, "/aws/sagemaker/TrainingJobs", name, clock=JumpingClock(77))
        assert directory.parent.parent == tmp_path
        assert directory == stream_directory(tmp_path, "/aws/sagemaker/TrainingJobs", name)
        assert read_json(directory / STREAM_FILE) == {
            "version": 1,
            "group": "/aws/sagemaker/TrainingJobs",
            "stream": name,
            "created_ms": 77,
        }
    assert len(set(tmp_path.iterdir())) == 1


def test_an_existing_stream_is_not_changed(tmp_path):
    directory = create_stream(tmp_path, "g", "s", clock=JumpingClock(1))
    with SegmentWriter(directory) as writer:
        writer.write(b"line")
    assert create_stream(tmp_path, "g", "s", clock=JumpingClock(2)) == directory
    assert read_json(directory / STREAM_FILE)["created_ms"] == 1
    assert messages_in(directory) == [b"line"]


def test_the_writer_needs_the_standard_library_only():
    program = "import sys, tidemill.core.segments; print({'sqlalchemy', 'pydantic', 'botocore'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
