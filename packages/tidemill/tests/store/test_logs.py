"""Reading log streams: every event once and in order, by token in both directions, and by time."""

import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.segments import (
    STREAM_FILE,
    SegmentWriter,
    create_stream,
    group_directory,
    segment_path,
    segments_of,
    stream_directory,
)
from tidemill.errors import StateCorrupt
from tidemill.store.logs import segment_file
from tidemill.store.logs import streams as logs
from tidemill.store.logs.streams import LogEvent, LogReader, LogStreams

GROUP = "/aws/sagemaker/TrainingJobs"


class SetClock:
    def __init__(self, ms: int = 1000) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0


def write(directory: Path, events: list[tuple[int, str]], *, segment_bytes: int = 1 << 20) -> None:
    clock = SetClock()
    with SegmentWriter(directory, segment_bytes=segment_bytes, clock=clock) as writer:
        for time_ms, message in events:
            clock.ms = time_ms
            writer.write(message.encode())


def numbered(count: int) -> list[tuple[int, str]]:
    return [(1000 + 10 * (i // 3), f"line {i}") for i in range(count)]


def plain(events: tuple[LogEvent, ...]) -> list[tuple[int, str]]:
    return [(event.timestamp_ms, event.message) for event in events]


def forward(reader: LogReader, **arguments) -> list[tuple[int, str]]:
    """Return all events as a client reads them: until the token is returned unchanged."""
    page = reader.read(start_from_head=True, **arguments)
    found = plain(page.events)
    while True:
        again = reader.read(token=page.forward_token, **arguments)
        found += plain(again.events)
        if again.forward_token == page.forward_token:
            assert again.events == ()
            return found
        page = again


def backward(reader: LogReader, **arguments) -> list[tuple[int, str]]:
    page = reader.read(**arguments)
    found = plain(page.events)
    while True:
        again = reader.read(token=page.backward_token, **arguments)
        found = plain(again.events) + found
        if again.backward_token == page.backward_token:
            assert again.events == ()
            return found
        page = again


@pytest.fixture(params=[120, 1 << 20], ids=["many segments", "one segment"])
def stream(request, tmp_path) -> LogReader:
    write(tmp_path, numbered(100), segment_bytes=request.param)
    return LogReader(tmp_path)


@pytest.mark.parametrize("limit", [1, 3, 7, 100, 10_000])
def test_pages_forward_join_to_the_whole(stream, limit):
    assert forward(stream, limit=limit) == numbered(100)


@pytest.mark.parametrize("limit", [1, 3, 7, 100, 10_000])
def test_pages_backward_join_to_the_whole(stream, limit):
    assert backward(stream, limit=limit) == numbered(100)


def test_without_a_token_the_latest_events_come(stream):
    page = stream.read(limit=5)
    assert plain(page.events) == numbered(100)[-5:]
    assert plain(stream.read(token=page.backward_token, limit=5).events) == numbered(100)[-10:-5]
    assert stream.read(token=page.forward_token).events == ()


def test_one_can_turn_round_anywhere(stream):
    first = stream.read(start_from_head=True, limit=10)
    second = stream.read(token=first.forward_token, limit=10)
    assert plain(stream.read(token=second.backward_token, limit=10).events) == plain(first.events)
    back = stream.read(token=stream.read(limit=10).backward_token, limit=10)
    assert plain(stream.read(token=back.forward_token, limit=10).events) == numbered(100)[-10:]


def test_the_forward_token_of_the_end_finds_what_comes_later(tmp_path):
    write(tmp_path, numbered(5), segment_bytes=60)
    reader = LogReader(tmp_path)
    end = reader.read(start_from_head=True).forward_token
    assert reader.read(token=end).forward_token == end
    write(tmp_path, [(9000, "later")], segment_bytes=60)
    assert plain(reader.read(token=end).events) == [(9000, "later")]


def test_a_stream_without_a_line_is_an_empty_page_whose_token_goes_on(tmp_path):
    reader = LogReader(tmp_path / "s")
    page = reader.read()
    assert page.events == ()
    assert reader.read(start_from_head=True).events == ()
    assert reader.read(token=page.forward_token).forward_token == page.forward_token
    assert reader.read(token=page.backward_token).events == ()
    assert reader.first_event_ms() is None
    assert reader.last_event_ms() is None
    assert reader.stored_bytes() == 0
    write(tmp_path / "s", numbered(3))
    assert plain(reader.read(token=page.forward_token).events) == numbered(3)


@pytest.mark.parametrize("start", [None, 0, 1000, 1001, 1010, 1165, 1330, 1331, 99999])
@pytest.mark.parametrize("end", [None, 0, 1000, 1001, 1170, 1330, 1331])
def test_times_bound_what_is_read_in_both_directions(stream, start, end):
    expected = [(t, m) for t, m in numbered(100) if (start is None or t >= start) and (end is None or t < end)]
    assert forward(stream, start_time_ms=start, end_time_ms=end, limit=9) == expected
    assert backward(stream, start_time_ms=start, end_time_ms=end, limit=9) == expected


def test_a_client_that_starts_again_at_the_last_time_sees_the_same_events_there(stream):
    """AWS's SDKs poll so: from the last time stamp on, skipping the events of that time that they already have."""
    seen: list[tuple[int, str]] = []
    start, skip = 0, 0
    while True:
        fresh = plain(stream.read(start_from_head=True, start_time_ms=start, limit=8 + skip).events)[skip:]
        if not fresh:
            break
        seen += fresh
        start = seen[-1][0]
        skip = sum(time_ms == start for time_ms, _ in seen)
    assert seen == numbered(100)


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(0, 40), st.text(max_size=30)), max_size=40),
    segment_bytes=st.integers(10, 400),
    start=st.none() | st.integers(0, 42),
    end=st.none() | st.integers(0, 42),
    limit=st.integers(1, 9),
    block=st.integers(1, 90),
)
def test_any_stream_reads_the_same_forward_and_backward(
    tmp_path_factory, events, segment_bytes, start, end, limit, block
):
    directory = tmp_path_factory.mktemp("stream")
    events = [(t, m.replace("\n", "|")) for t, m in sorted(events, key=lambda e: e[0])]
    write(directory, events, segment_bytes=segment_bytes)
    expected = [(t, m) for t, m in events if (start is None or t >= start) and (end is None or t < end)]
    reader = LogReader(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_file, "BLOCK_BYTES", block)  # lines span blocks, and bisection is deep
        assert forward(reader, start_time_ms=start, end_time_ms=end, limit=limit) == expected
        assert backward(reader, start_time_ms=start, end_time_ms=end, limit=limit) == expected


def test_a_page_ends_before_it_holds_more_than_a_mebibyte(tmp_path):
    write(tmp_path, [(1000, "x" * 200_000) for _ in range(12)], segment_bytes=900_000)
    reader = LogReader(tmp_path)
    assert [len(page) for page in (reader.read().events, reader.read(start_from_head=True).events)] == [5, 5]
    assert len(forward(reader)) == len(backward(reader)) == 12


def test_a_page_holds_at_most_ten_thousand_events(tmp_path):
    with SegmentWriter(tmp_path) as writer:
        writer.write_many([b"x"] * 10_500)
    assert len(LogReader(tmp_path).read(start_from_head=True).events) == 10_000
    for limit in (0, 10_001):
        with pytest.raises(ValueError, match="expected 1 to 10000"):
            LogReader(tmp_path).read(limit=limit)


def test_one_event_always_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "PAGE_MAX_BYTES", 10)
    write(tmp_path, [(1, "a" * 50), (2, "b" * 50)])
    assert forward(LogReader(tmp_path)) == [(1, "a" * 50), (2, "b" * 50)]


def test_a_line_being_written_is_not_seen_until_it_is_whole(tmp_path):
    write(tmp_path, numbered(3))
    with segment_path(tmp_path, 1).open("ab") as file:
        file.write(b"2000 half a li")
        file.flush()
        reader = LogReader(tmp_path)
        page = reader.read(start_from_head=True)
        assert plain(page.events) == numbered(3)
        assert plain(reader.read().events) == numbered(3)
        assert reader.last_event_ms() == 1000
        file.write(b"ne\n")
        file.flush()
        assert plain(reader.read(token=page.forward_token).events) == [(2000, "half a line")]


def test_bytes_that_are_no_text_are_shown_as_well_as_they_can_be(tmp_path):
    with SegmentWriter(tmp_path, clock=SetClock()) as writer:
        writer.write(b"nul \x00 bad \xff\xfe end")
    assert plain(LogReader(tmp_path).read().events) == [(1000, "nul \x00 bad \ufffd\ufffd end")]


def test_a_damaged_line_is_shown_and_hides_no_other(tmp_path):
    write(tmp_path, [(1000, "a"), (2000, "b"), (3000, "c")])
    path = segment_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b"2000 b", b"\xff000 b"))
    reader = LogReader(tmp_path)
    assert plain(reader.read(start_from_head=True).events) == [(1000, "a"), (1000, "\ufffd000 b"), (3000, "c")]
    assert plain(reader.read(start_from_head=True, start_time_ms=2500).events) == [(3000, "c")]


@pytest.mark.parametrize(
    "token",
    [
        "",
        "f",
        "f/1/1",
        "x/00000001/000000000000",
        "f/00000009/000000000000",
        "f/00000001/000000000003",
        "b/00000001/000000999999",
        "f/00000001/-1",
        "f/1/0\n",
        "../../etc/passwd",
        f"f/{'9' * 30}/0",
    ],
)
def test_a_token_of_no_line_is_refused(tmp_path, token):
    write(tmp_path, numbered(5))
    with pytest.raises(ValueError, match="is not a token of this log stream"):
        LogReader(tmp_path).read(token=token)


def test_facts_of_a_stream(stream):
    assert stream.first_event_ms() == 1000
    assert stream.last_event_ms() == 1330
    assert stream.stored_bytes() == sum(len(f"{t} {m}\n") for t, m in numbered(100))


def test_reading_leaves_no_file_open(stream, tmp_path, files_open_below):
    forward(stream, limit=3)
    backward(stream, limit=3, start_time_ms=1100, end_time_ms=1200)
    stream.first_event_ms()
    assert files_open_below(tmp_path) == []


def test_a_time_in_a_long_segment_is_found_by_few_reads(tmp_path, monkeypatch):
    clock = SetClock()
    with SegmentWriter(tmp_path, clock=clock) as writer:
        for second in range(2000):
            clock.ms = 1_000_000 + second * 1000
            writer.write_many([b"y" * 100] * 50)
    assert segments_of(tmp_path) == [1]
    reads = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: reads.append(size) or real(fd, size, at))
    page = LogReader(tmp_path).read(start_from_head=True, start_time_ms=1_000_000 + 1_234_000, limit=1)
    assert page.events[0].timestamp_ms == 2_234_000
    assert sum(reads) < 4_000_000  # of 11 MB


# Streams


def test_streams_are_listed_by_prefix_in_order(tmp_path):
    for name in ("b/algo-1", "a/algo-2", "a/algo-1", "ab/algo-1", "a%"):
        create_stream(tmp_path, GROUP, name)
    create_stream(tmp_path, "/aws/sagemaker/Endpoints/x", "a/other")
    streams = LogStreams(tmp_path)
    assert streams.names(GROUP) == ["a%", "a/algo-1", "a/algo-2", "ab/algo-1", "b/algo-1"]
    assert streams.names(GROUP, prefix="a/") == ["a/algo-1", "a/algo-2"]
    assert streams.names(GROUP, prefix="zzz") == []
    assert streams.names("/no/such/group") == []


def test_a_new_stream_is_listed_at_once(tmp_path):
    streams = LogStreams(tmp_path)
    for number in range(20):
        create_stream(tmp_path, GROUP, f"{number:02}")
        assert len(streams.names(GROUP)) == number + 1


def test_a_new_stream_is_listed_at_once_in_a_group_that_has_not_changed_for_long(tmp_path):
    streams = LogStreams(tmp_path)
    group = create_stream(tmp_path, GROUP, "old").parent
    os.utime(group, (1, 1))
    assert streams.names(GROUP) == ["old"]
    create_stream(tmp_path, GROUP, "new")
    assert streams.names(GROUP) == ["new", "old"]


def test_a_group_that_has_not_changed_for_long_is_not_read_again(tmp_path, monkeypatch):
    streams = LogStreams(tmp_path)
    group = create_stream(tmp_path, GROUP, "s").parent
    os.utime(group, (1, 1))
    assert streams.names(GROUP) == ["s"]
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail("read again"))
    assert streams.names(GROUP) == ["s"]


def test_names_are_read_once_for_each_stream(tmp_path, monkeypatch):
    streams = LogStreams(tmp_path)
    for number in range(5):
        create_stream(tmp_path, GROUP, f"{number}")
    streams.names(GROUP)
    reads = []
    real = logs.read_json
    monkeypatch.setattr(logs, "read_json", lambda path: reads.append(path) or real(path))
    create_stream(tmp_path, GROUP, "new")
    assert len(streams.names(GROUP)) == 6
    assert len(reads) == 1


def test_a_stream_is_described_by_its_lines(tmp_path):
    streams = LogStreams(tmp_path)
    directory = create_stream(tmp_path, GROUP, "job/algo-1", clock=SetClock(500))
    empty = streams.describe(GROUP, "job/algo-1")
    assert (empty.first_event_ms, empty.last_event_ms, empty.stored_bytes) == (None, None, 0)
    write(directory, numbered(10))
    described = streams.describe(GROUP, "job/algo-1")
    assert (described.group, described.name, described.created_ms) == (GROUP, "job/algo-1", 500)
    assert (described.first_event_ms, described.last_event_ms) == (1000, 1030)
    assert plain(streams.open(GROUP, "job/algo-1").read().events) == numbered(10)
    assert streams.describe(GROUP, "other") is None
    assert streams.open(GROUP, "other") is None


def test_a_directory_that_is_not_a_stream_is_not_listed(tmp_path):
    group = create_stream(tmp_path, GROUP, "s").parent
    (group / "half-made").mkdir()
    (group / "stray").write_text("x")
    assert LogStreams(tmp_path).names(GROUP) == ["s"]


@pytest.mark.parametrize(
    ("call", "look"),
    [
        ("scandir", lambda root: LogStreams(root).names("group")),
        ("scandir", lambda root: LogStreams(root).groups()),
        ("listdir", lambda root: LogReader(stream_directory(root, "group", "stream")).stored_bytes() or []),
    ],
)
def test_a_stream_that_is_removed_meanwhile_is_no_error(tmp_path, monkeypatch, call, look):
    with SegmentWriter(create_stream(tmp_path, "group", "stream")) as writer:
        writer.write(b"line")
    group = group_directory(tmp_path, "group")
    listing = getattr(os, call)

    def list_and_remove(path: Path) -> Any:
        """Remove the group before its directory is opened, or the stream after its segments are listed."""
        if Path(path) == tmp_path:
            return listing(path)
        monkeypatch.setattr(os, call, listing)
        found = listing(path) if call == "listdir" else None
        shutil.rmtree(group)
        return found or listing(path)

    monkeypatch.setattr(os, call, list_and_remove)
    assert look(tmp_path) == [] and not group.exists()


def test_a_damaged_name_file_is_named(tmp_path):
    directory = create_stream(tmp_path, GROUP, "s")
    (directory / STREAM_FILE).write_text("{")
    with pytest.raises(StateCorrupt, match=str(directory / STREAM_FILE)):
        LogStreams(tmp_path).names(GROUP)


def test_reader_and_writer_at_the_same_time_lose_nothing(tmp_path):
    reader = LogReader(tmp_path)
    seen: list[str] = []
    token = reader.read(start_from_head=True).forward_token
    with SegmentWriter(tmp_path, segment_bytes=500) as writer:
        for number in range(300):
            writer.write(b"%d" % number)
            if number % 7 == 0:
                page = reader.read(token=token, limit=5)
                token = page.forward_token
                seen += [event.message for event in page.events]
        while (page := reader.read(token=token)).events:
            token = page.forward_token
            seen += [event.message for event in page.events]
    assert seen == [str(number) for number in range(300)]
    events = reader.read(start_from_head=True).events
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(events))


def test_names_of_streams_that_do_not_exist_take_no_memory(tmp_path: Path) -> None:
    streams = LogStreams(tmp_path)
    there = create_stream(tmp_path, GROUP, "digits/algo-1-1")
    assert streams.directory(GROUP, "digits/algo-1-1") == there
    kept = len(streams._directories)
    assert not any(streams.directory(GROUP, f"digits/{number}").exists() for number in range(100))
    assert len(streams._directories) == kept
