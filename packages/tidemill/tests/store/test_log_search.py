"""Searching many streams: the pages together are the sorted whole, for all filters and page sizes."""

import os
import random
from pathlib import Path

import pytest

from tidemill.core.segments import SegmentWriter, create_stream, segment_path
from tidemill.store.logs import search as log_search
from tidemill.store.logs import segment_file
from tidemill.store.logs.search import FoundEvent, Search, search
from tidemill.store.logs.spans import StreamSpans
from tidemill.store.logs.streams import LogStreams
from tidemill.store.logs.terms import LogTerms

GROUP = "/aws/sagemaker/TrainingJobs"
Event = tuple[int, str, str]  # time, stream, message


class SetClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0


class Group:
    """Streams of a group, and the events written to them."""

    def __init__(self, root: Path, *, segment_bytes: int = 1 << 20) -> None:
        self._root = root
        self._segment_bytes = segment_bytes
        self._spans = StreamSpans()
        self.written: list[Event] = []

    def write(self, stream: str, events: list[tuple[int, str]]) -> None:
        clock = SetClock()
        directory = create_stream(self._root, GROUP, stream)
        with SegmentWriter(directory, segment_bytes=self._segment_bytes, clock=clock) as writer:
            for time_ms, message in events:
                clock.ms = time_ms
                writer.write(message.encode())
                self.written.append((time_ms, stream, message))

    def sorted(self) -> list[Event]:
        """Return all events ordered by time and stream; lines of one stream and time in the order of writing."""
        return sorted(self.written, key=lambda event: event[:2])

    def page(self, *, pattern: str = "", limit: int = 10_000, **search_options) -> tuple[list[FoundEvent], str | None]:
        streams = LogStreams(self._root)
        named = [(name, streams.directory(GROUP, name)) for name in streams.names(GROUP)]
        wanted = Search(terms=LogTerms.parse(pattern), limit=limit, **search_options)
        page = search(named, wanted, spans=self._spans)
        return list(page.events), page.next_token

    def all(self, **options) -> list[FoundEvent]:
        """Return the events of all pages."""
        events, token = self.page(**options)
        while token is not None:
            more, token = self.page(token=token, **options)
            events += more
        return events


def plain(events: list[FoundEvent]) -> list[Event]:
    return [(event.timestamp_ms, event.stream, event.message) for event in events]


@pytest.fixture(params=[200, 1 << 20], ids=["many segments", "one segment"])
def group(request, tmp_path) -> Group:
    chosen = random.Random(7)
    group = Group(tmp_path, segment_bytes=request.param)
    for number in range(8):
        at_ms, events = chosen.randrange(1000, 1200), []
        for line in range(chosen.randrange(1, 60)):
            at_ms += chosen.choice([0, 0, 0, 1, 7])  # many have the same time
            events.append((at_ms, f"{chosen.choice(['ok', 'ERROR', 'WARN'])} {number} {line}"))
        group.write(f"job-{number}/algo-1", events)
    group.write("silent", [])
    return group


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 10_000])
def test_pages_join_to_all_events_in_the_order_of_time(group, limit):
    assert plain(group.all(limit=limit)) == group.sorted()


@pytest.mark.parametrize("limit", [3, 10_000])
@pytest.mark.parametrize(("start_ms", "end_ms"), [(0, 1100), (1100, None), (1130, 1160), (1100, 1100), (9999, None)])
def test_times_bound_what_is_found_and_are_inclusive(group, start_ms, end_ms, limit):
    wanted = [each for each in group.sorted() if start_ms <= each[0] <= (end_ms or 1 << 40)]
    assert plain(group.all(start_ms=start_ms, end_ms=end_ms, limit=limit)) == wanted


@pytest.mark.parametrize("limit", [1, 7])
def test_a_pattern_leaves_out_what_does_not_match(group, limit):
    wanted = [each for each in group.sorted() if "ERROR" in each[2]]
    assert 0 < len(wanted) < len(group.written)
    assert plain(group.all(pattern="ERROR", limit=limit)) == wanted


def test_the_end_of_a_page_s_work_is_a_token_even_without_events(group, monkeypatch):
    monkeypatch.setattr(log_search, "SCAN_MAX_BYTES", 100)
    pages, token = 0, ""
    while token is not None:
        events, token = group.page(pattern="nothing", **({"token": token} if token else {}))
        assert events == []
        pages += 1
    assert pages > 10
    assert plain(group.all()) == group.sorted()


def test_a_page_ends_before_it_is_too_large(tmp_path):
    group = Group(tmp_path)
    group.write("large", [(number, "x" * 200_000) for number in range(20)])
    events, token = group.page()
    assert 4 <= len(events) <= 5
    assert token is not None
    assert plain(group.all()) == group.sorted()


def test_lines_written_while_a_client_reads_are_found_with_its_next_token(group):
    first, token = group.page(limit=20)
    group.write("job-3/algo-1", [(5000, "late")])
    group.write("new", [(4000, "new"), (6000, "newer")])
    rest, last = group.page(token=token)
    assert last is None
    assert plain(first + rest) == group.sorted()


def test_positions_name_every_event_once_and_in_every_search(group):
    names = {(event.stream, event.position): event.message for event in group.all(limit=7)}
    assert len(names) == len(group.written)
    for event in group.all(pattern="WARN"):
        assert names[event.stream, event.position] == event.message


@pytest.mark.parametrize(
    "token",
    ["x", "1/1/1", "1000/1/1/job-0/algo-1", "1000/99/0/job-0/algo-1", f"1000/1/{10**14}/job-0/algo-1", "-1/1/0/a"],
)
def test_a_foreign_token_is_refused(group, token):
    with pytest.raises(ValueError, match="is not a token of this search"):
        group.page(token=token)


def test_a_damaged_line_gets_the_previous_time_and_hides_no_other(tmp_path):
    group = Group(tmp_path)
    group.write("a", [(1000, "one"), (1010, "two"), (1020, "three")])
    group.write("b", [(1005, "other")])
    path = segment_path(LogStreams(tmp_path).directory(GROUP, "a"), 1)
    path.write_bytes(path.read_bytes().replace(b"1010 two", b"ab0z two").replace(b"1020 three", b"zzzz three"))
    for limit in (1, 10):
        messages = [event.message for event in group.all(limit=limit)]
        assert messages == ["one", "ab0z two", "zzzz three", "other"]


def test_a_page_of_a_long_log_reads_little_more_than_it_returns(tmp_path, monkeypatch):
    group = Group(tmp_path, segment_bytes=8 << 20)
    directory = create_stream(tmp_path, GROUP, "long")
    clock = SetClock()
    with SegmentWriter(directory, segment_bytes=8 << 20, clock=clock) as writer:
        for batch in range(1000):
            clock.ms = 1000 + batch // 10  # ten thousand lines have the same time
            writer.write_many(b"line %d of a long log" % (1000 * batch + number) for number in range(1000))
    for number in range(200):
        group.write(f"other-{number}", [(number, "x")])
    group.page(start_ms=1050, limit=1)
    read_bytes = 0
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal read_bytes
        data = pread(fd, size, offset)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(segment_file.os, "pread", counted)
    events, token = group.page(start_ms=1050, limit=100)
    assert events[0].message == "line 500000 of a long log"
    for _ in range(5):
        events, token = group.page(token=token, limit=100)
    assert events[-1].message == "line 500599 of a long log"
    assert read_bytes < 6 * (1 << 20), "of 31 MB"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", "abcdef"),
        ("  ", "abcdef"),
        ("ERROR", "abd"),
        ("ERROR disk", "b"),
        ("disk ERROR", "b"),
        ('"disk full"', "bc"),
        ('"full disk"', ""),
        ("?ERROR ?WARN", "abcd"),
        ('?"out of" ?WARN', "cd"),
        ("ERROR -disk", "ad"),
        ('ERROR -"out of memory"', "ab"),
        ("-ERROR", "cef"),
        ("-ERROR -WARN", "ef"),
        ('"say \\"hi\\""', "e"),
        ('"{"', "f"),
        ("größe", "f"),
        ('"-"', "f"),
        ("error", ""),
    ],
)
def test_terms_are_those_of_cloudwatch(pattern, found):
    messages = {
        "a": "ERROR 400",
        "b": "ERROR disk full",
        "c": "WARN disk full",
        "d": "ERROR out of memory",
        "e": 'say "hi"',
        "f": '{"größe": -1}',
    }
    terms = LogTerms.parse(pattern)
    assert "".join(name for name, message in messages.items() if terms.match(message.encode())) == found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("{ $.level = 50 }", "is a JSON pattern"),
        ("[ip, user, code=5*]", "is a space-delimited pattern"),
        ("%5[0-9]{2}%", "is a regular expression pattern"),
        ("?%a%", "is a regular expression pattern"),
        ("epoch=3", "into double quotation marks"),
        ('ERROR "unfinished', "into double quotation marks"),
        ("-", "into double quotation marks"),
        ("?ERROR disk", "mixes .terms with others"),
        ("?ERROR -disk", "mixes .terms with others"),
    ],
)
def test_other_forms_of_patterns_are_refused_and_named(pattern, reason):
    with pytest.raises(ValueError, match=reason):
        LogTerms.parse(pattern)
