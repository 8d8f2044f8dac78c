"""Lines by number: those that a screen shows, from any place, while the stream grows and in several segments."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.segments import (
    SegmentWriter,
    create_stream,
    put_line,
    segment_path,
    segments_of,
    stream_directory,
)
from tidemill.store.logs import numbered_lines
from tidemill.store.logs.numbered_lines import LineNumbers, NumberedPage
from tidemill.store.logs.put_streams import PutStreams

GROUP = "/aws/sagemaker/TrainingJobs"


class SetClock:
    ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0


def page(lines: LineNumbers, directory: Path, first: int = 0, limit: int = 10_000, **arguments: int) -> NumberedPage:
    return lines.page(directory, first=first, limit=limit, **{"message_max_bytes": 1 << 20, "since_ms": 0, **arguments})


def on_screen(messages: list[str]) -> list[str]:
    """Return what is left when a carriage return lets the next line overwrite a line."""
    shown, waits = [], None
    for message in messages:
        waits = None
        if message.endswith("\r"):
            waits = message[:-1]
        else:
            shown.append(message)
    return shown + ([] if waits is None else [waits])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return create_stream(tmp_path, GROUP, "digits/algo-1-1")


messages_of_jobs = st.lists(st.sampled_from(["", "a line", "42%\r", "\r", "é" * 40, "x" * 700]), max_size=60)


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(messages_of_jobs, min_size=1, max_size=4),
    segment_bytes=st.sampled_from([100, 1000, 1 << 20]),
    first=st.integers(-70, 200),
    limit=st.integers(1, 50),
)
def test_any_window_of_a_growing_stream_is_what_a_screen_shows(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]], segment_bytes: int, first: int, limit: int
) -> None:
    directory = create_stream(tmp_path_factory.mktemp("logs"), GROUP, "digits/algo-1-1")
    lines, written = LineNumbers(), []
    before, numbered_lines._BLOCK_BYTES = numbered_lines._BLOCK_BYTES, 64
    try:
        with SegmentWriter(directory, segment_bytes=segment_bytes) as writer:
            for part in parts:
                for message in part:
                    writer.write(message.encode())
                written += part
                expected = on_screen(written)
                found = page(lines, directory, first, limit)
                begin = max(0, first if first >= 0 else len(expected) + first)
                assert found.count == len(expected)
                assert [line.message for line in found.lines] == expected[begin : begin + limit]
                assert [line.number for line in found.lines] == list(range(len(expected)))[begin : begin + limit]
                for number in range(len(expected)):
                    assert page(lines, directory, number, 1).lines[0].message == expected[number]
    finally:
        numbered_lines._BLOCK_BYTES = before


def test_only_the_last_state_of_a_bar_is_a_line_that_still_changes(directory: Path) -> None:
    lines = LineNumbers()
    with SegmentWriter(directory) as writer:
        writer.write_many([b"begin", b"10%\r", b"20%\r"])
        assert [(line.message, line.is_state) for line in page(lines, directory).lines] == [
            ("begin", False),
            ("20%", True),
        ]
        writer.write_many([b"done"])
    assert [(line.message, line.is_state) for line in page(lines, directory).lines] == [
        ("begin", False),
        ("done", False),
    ]


def test_a_long_line_is_cut_and_its_size_told(directory: Path) -> None:
    with SegmentWriter(directory) as writer:
        writer.write(b"x" * 100_000)
    [line] = page(LineNumbers(), directory, message_max_bytes=10).lines
    assert (line.message, line.size_bytes) == ("x" * 10, 100_000)


def test_lines_older_than_the_retention_keep_their_numbers_and_are_left_out(directory: Path) -> None:
    clock = SetClock()
    with SegmentWriter(directory, clock=clock) as writer:
        for number in range(5):
            clock.ms = 1000 + number
            writer.write(b"line %d" % number)
    found = page(LineNumbers(), directory, since_ms=1003)
    assert (found.first, found.count) == (3, 5)
    assert [(line.number, line.message) for line in found.lines] == [(3, "line 3"), (4, "line 4")]


def test_lines_that_a_full_disk_took_back_are_not_counted(directory: Path) -> None:
    lines = LineNumbers()
    with SegmentWriter(directory) as writer:
        writer.write_many([b"kept", b"lost", b"lost"])
    assert page(lines, directory).count == 3
    [number] = segments_of(directory)
    os.truncate(segment_path(directory, number), len(b"1234567890123 kept\n"))
    assert [line.message for line in page(lines, directory).lines] == ["kept"]


def test_a_stream_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    assert page(LineNumbers(), tmp_path / "none") == NumberedPage((), 0, 0)


def test_a_stream_that_is_deleted_while_it_is_read_has_no_lines(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SegmentWriter(directory) as writer:
        writer.write_many([b"one", b"two"])
    count = numbered_lines._LineIndex.count

    def counted(index: numbered_lines._LineIndex) -> None:
        count(index)
        shutil.rmtree(directory)

    monkeypatch.setattr(numbered_lines._LineIndex, "count", counted)
    assert page(LineNumbers(), directory, first=1).lines == ()


def test_late_events_are_at_their_places_also_in_a_stream_that_was_asked_for_before_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbered_lines, "_BLOCK_BYTES", 64)
    streams, lines = PutStreams(tmp_path, clock=SetClock()), LineNumbers()
    directory = stream_directory(tmp_path, "/team", "run")
    assert page(lines, directory).count == 0
    streams.create("/team", "run")
    for times in (range(100, 400, 10), range(5, 95, 10)):
        events = [(each, put_line(f"at {each}", at_ms=each, ingested_ms=9)) for each in times]
        assert streams.append("/team", "run", events)
        expected = [line.message for line in page(LineNumbers(), directory).lines]
        found = [page(lines, directory, number, 1).lines[0].message for number in range(len(expected))]
        assert found == expected
    assert (expected[0], len(expected)) == ("at 5", 39)


def test_a_page_of_long_lines_is_cut_after_its_bytes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_lines, "_PAGE_BYTES", 1000)
    with SegmentWriter(directory) as writer:
        for number in range(10):
            writer.write(str(number).encode() * 400)
    lines = LineNumbers()
    assert [line.number for line in page(lines, directory, 4).lines] == [4, 5, 6]
    assert [line.number for line in page(lines, directory, 4, message_max_bytes=200).lines] == [4, 5, 6, 7, 8]
    monkeypatch.setattr(numbered_lines, "_PAGE_BYTES", 1)
    assert [line.number for line in page(lines, directory, 4).lines] == [4], "at least one"
