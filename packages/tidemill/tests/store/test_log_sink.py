"""Delivered log lines: each is stored once, even if deliveries are repeated or cut off."""

from pathlib import Path

import pytest

from tidemill.core.instances import StreamName
from tidemill.core.segments import SegmentWriter, segment_path, segments_of, stream_directory
from tidemill.store.logs.sink import SegmentSink

STREAM = StreamName("group", "stream")


def stored(root: Path) -> bytes:
    directory = stream_directory(root, STREAM.group, STREAM.stream)
    return b"".join(segment_path(directory, number).read_bytes() for number in segments_of(directory))


def test_lines_are_stored_as_they_were_stamped(tmp_path: Path) -> None:
    sink = SegmentSink(tmp_path)
    assert sink.received_bytes(STREAM) == 0
    sink.append(STREAM, b"5 one\n7 two\n", offset=0)
    sink.append(STREAM, b"9 three\n", offset=sink.received_bytes(STREAM))
    assert stored(tmp_path) == b"5 one\n7 two\n9 three\n"


def test_lines_that_are_delivered_again_are_stored_once(tmp_path: Path) -> None:
    SegmentSink(tmp_path).append(STREAM, b"5 one\n7 two\n", offset=0)
    again = SegmentSink(tmp_path)  # after a restart
    again.append(STREAM, b"5 one\n7 two\n9 three\n", offset=0)
    again.append(STREAM, b"7 two\n", offset=6)
    assert stored(tmp_path) == b"5 one\n7 two\n9 three\n"


def test_a_gap_is_refused_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    sink = SegmentSink(tmp_path)
    sink.append(STREAM, b"5 one\n", offset=0)
    with pytest.raises(ValueError, match="begin at 7, but only 6 bytes came"):
        sink.append(STREAM, b"9 three\n", offset=7)
    assert stored(tmp_path) == b"5 one\n"


def test_a_line_that_is_incomplete_is_refused(tmp_path: Path) -> None:
    sink = SegmentSink(tmp_path)
    with pytest.raises(ValueError, match="do not end with a line feed"):
        sink.append(STREAM, b"5 one\n7 tw", offset=0)
    assert stored(tmp_path) == b""


def test_a_line_that_a_killed_service_wrote_in_part_is_delivered_again(tmp_path: Path) -> None:
    sink = SegmentSink(tmp_path)
    sink.append(STREAM, b"5 one\n", offset=0)
    with segment_path(stream_directory(tmp_path, STREAM.group, STREAM.stream), 1).open("ab") as file:
        file.write(b"7 tw")
    assert sink.received_bytes(STREAM) == 6
    sink.append(STREAM, b"7 two\n", offset=6)
    assert stored(tmp_path) == b"5 one\n7 two\n"


def test_offsets_go_on_over_the_segments_of_a_stream(tmp_path: Path) -> None:
    directory = stream_directory(tmp_path, STREAM.group, STREAM.stream)
    with SegmentWriter(directory, segment_bytes=8) as writer:
        writer.write_stored(b"5 one\n")
        writer.write_stored(b"7 two\n")
    assert segments_of(directory) == [1, 2]
    sink = SegmentSink(tmp_path)
    assert sink.received_bytes(STREAM) == 12
    sink.append(STREAM, b"7 two\n9 three\n", offset=6)
    assert stored(tmp_path) == b"5 one\n7 two\n9 three\n"


def test_a_writer_that_stamps_lines_itself_goes_on_after_those_delivered(tmp_path: Path) -> None:
    late = 4_000_000_000_000
    SegmentSink(tmp_path).append(STREAM, b"%d one\n" % late, offset=0)
    with SegmentWriter(stream_directory(tmp_path, STREAM.group, STREAM.stream)) as writer:
        writer.write(b"two")
    assert stored(tmp_path) == b"%d one\n%d two\n" % (late, late)
