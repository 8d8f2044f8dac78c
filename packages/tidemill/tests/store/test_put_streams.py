"""Streams of clients: late events, old events, readers that go on meanwhile, and kills."""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tidemill.core import faults
from tidemill.core.clock import SystemClock
from tidemill.core.segments import put_line, segment_path, segments_of, stream_directory
from tidemill.store.logs import put_streams, splits
from tidemill.store.logs.blocks import blocks, blocks_backward
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.search import Search, search
from tidemill.store.logs.spans import StreamSpans
from tidemill.store.logs.splits import SEGMENT_STEP
from tidemill.store.logs.streams import LogPosition, LogReader, LogStreams
from tidemill.store.logs.terms import LogTerms

PROGRAM = """
import sys
from pathlib import Path
from tidemill.core.clock import SystemClock
from tidemill.core.segments import put_line
from tidemill.store.logs.put_streams import PutStreams

streams = PutStreams(Path(sys.argv[1]), clock=SystemClock(), segment_bytes=200)
if sys.argv[2] == "remove":
    streams.remove("/team", "run")
else:
    streams.append("/team", "run", [(15, put_line("late", at_ms=15, ingested_ms=99))])
"""


def lines(*times: int) -> list[tuple[int, bytes]]:
    return [(at_ms, put_line(f"event at {at_ms}", at_ms=at_ms, ingested_ms=99)) for at_ms in times]


@pytest.fixture
def streams(tmp_path: Path) -> PutStreams:
    """Return a writer of segments of 200 bytes, with the stream ``run`` of the group ``/team``."""
    streams = PutStreams(tmp_path, clock=SystemClock(), segment_bytes=200)
    assert streams.create("/team", "run") and not streams.create("/team", "run")
    return streams


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(stream_directory(tmp_path, "/team", "run"))


def times(reader: LogReader) -> list[int]:
    """Return the times of all events, page by page."""
    found: list[int] = []
    page = reader.read(start_from_head=True, limit=7)
    while page.events:
        found += [event.timestamp_ms for event in page.events]
        page = reader.read(token=page.forward_token, limit=7)
    return found


def test_events_in_any_order_are_read_in_the_order_of_time(streams, reader, tmp_path):
    chance = random.Random(7)
    stored: list[int] = []
    spans = StreamSpans()
    directory = stream_directory(tmp_path, "/team", "run")
    for number in range(60):
        batch = sorted(chance.choices(range(1000 + 20 * number, 1150 + 20 * number), k=chance.randint(1, 6)))
        streams.append("/team", "run", lines(*batch))
        stored = sorted([*stored, *batch])
        assert times(reader) == stored
        found = search([("run", directory)], Search(terms=LogTerms(), limit=10_000), spans=spans)
        assert [event.timestamp_ms for event in found.events] == stored
        middle = chance.randint(1000, 2000)
        assert [event.timestamp_ms for event in reader.read(start_time_ms=middle).events] == [
            at_ms for at_ms in stored if at_ms >= middle
        ]
    assert len(segments_of(directory)) > 10


def test_a_stream_with_one_event_ahead_of_the_others_is_still_cut_into_segments(streams, reader, tmp_path):
    streams.append("/team", "run", lines(10_000))
    token = reader.read(start_from_head=True).forward_token
    for at_ms in range(1000, 1300):
        streams.append("/team", "run", lines(at_ms))
    streams.append("/team", "run", lines(500, 1100, 1299, 10_001))
    assert times(reader) == sorted([*range(1000, 1300), 500, 1100, 1299, 10_000, 10_001])
    directory = stream_directory(tmp_path, "/team", "run")
    assert len(segments_of(directory)) > 20
    assert max(path.stat().st_size for path in directory.glob("*.log")) < 400
    assert reader.read(token=token).events[-1].timestamp_ms == 10_001


@pytest.mark.parametrize(
    "late",
    [
        range(900, 300, -3),
        range(1003, 1600, 3),
        range(1999, 1400, -3),
        [1005] * 150,
        random.Random(3).choices(range(2000), k=200),
    ],
)
def test_any_number_of_late_events_leaves_small_segments(streams, reader, tmp_path, monkeypatch, late):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for module in (put_streams, splits):
        monkeypatch.setattr(module, "SEGMENT_STEP", 4)  # so that segments have to make room for others
    stored = [*range(1000, 2000, 100)]
    for at_ms in stored:
        streams.append("/team", "run", lines(at_ms))
    spans = StreamSpans()
    directory = stream_directory(tmp_path, "/team", "run")
    for at_ms in late:
        streams.append("/team", "run", lines(at_ms, at_ms, at_ms + 1))
        stored += [at_ms, at_ms, at_ms + 1]
        spans.of(directory)
    assert times(reader) == sorted(stored)
    sizes = [path.stat().st_size for path in directory.glob("*.log")]
    assert max(sizes) < 300 and sum(sizes) / len(sizes) > 60
    found = search([("run", directory)], Search(terms=LogTerms(), limit=10_000), spans=spans)
    assert [event.timestamp_ms for event in found.events] == sorted(stored)
    backward = list(blocks_backward(directory))
    assert b"".join(reversed(backward)) == b"".join(block for block, _ in blocks(directory, LogPosition(0, 0)))


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_reader_misses_nothing_of_a_segment_that_is_split_meanwhile(streams, tmp_path, is_backward):
    for at_ms in range(1000, 1040):
        streams.append("/team", "run", lines(at_ms))
    directory = stream_directory(tmp_path, "/team", "run")
    before = segments_of(directory)
    assert len(before) > 3
    streams.append("/team", "run", lines(*[1015] * 8))  # its segment is now full
    reading = blocks_backward(directory) if is_backward else (each for each, _ in blocks(directory, LogPosition(0, 0)))
    found = next(reading)
    streams.append("/team", "run", lines(1012))
    assert len(segments_of(directory)) > len(before)
    found += b"".join(reading)
    assert all(b"event at %d\n" % at_ms in found for at_ms in range(1000, 1040))


def test_a_late_event_comes_before_a_segment_that_has_no_line_yet(streams, reader, tmp_path):
    for at_ms in range(100, 140):
        streams.append("/team", "run", lines(at_ms))
    directory = stream_directory(tmp_path, "/team", "run")
    for torn in (b"", b"14"):  # what a kill, or a full disk, leaves after the last segment was full
        segment_path(directory, segments_of(directory)[-1] + SEGMENT_STEP).write_bytes(torn)
        late = [120, 138, 138, 138, 138, 138, 138]
        streams.append("/team", "run", lines(*late[:1]))
        streams.append("/team", "run", lines(*late[1:]))
        assert times(reader) == sorted(times(reader))
        streams.append("/team", "run", lines(150))
        streams.append("/team", "run", lines(149))
    assert times(reader) == sorted([*range(100, 140), *late, *late, 149, 149, 150, 150])


def test_streams_do_not_wait_for_one_another(streams, reader, monkeypatch):
    assert streams.create("/team", "other")
    inside: list[str] = []

    def while_writing(point: str) -> None:
        if point == "segments.write" and not inside:
            inside.append(point)
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(streams.append, "/team", "other", lines(7)).result(timeout=60)

    monkeypatch.setattr(faults, "point", while_writing)
    streams.append("/team", "run", lines(5))
    assert inside and times(reader) == [5]


def test_a_search_that_knows_a_stream_finds_the_events_of_its_next_segments(streams, tmp_path):
    spans = StreamSpans()
    directory = stream_directory(tmp_path, "/team", "run")
    for at_ms in range(1000, 1040):
        streams.append("/team", "run", lines(at_ms))
        wanted = Search(terms=LogTerms(), limit=10_000, start_ms=at_ms)
        found = search([("run", directory)], wanted, spans=spans)
        assert [event.timestamp_ms for event in found.events] == [at_ms]
    assert len(segments_of(directory)) > 3


def test_events_of_one_time_stay_in_the_order_in_which_they_came(streams, reader):
    order = count()
    for at_ms in (5, 9, 5, 9, 5):
        message = f"number {next(order)}"
        streams.append("/team", "run", [(at_ms, put_line(message, at_ms=at_ms, ingested_ms=99))])
    assert [event.message for event in reader.read(start_from_head=True).events] == [
        f"number {number}" for number in (0, 2, 4, 1, 3)
    ]


def test_a_reader_goes_on_after_a_late_event_and_misses_none_behind_it(streams, reader):
    streams.append("/team", "run", lines(10, 20, 30))
    first = reader.read(start_from_head=True, limit=2)
    streams.append("/team", "run", lines(5))
    rest = reader.read(token=first.forward_token).events
    assert [event.timestamp_ms for event in rest][-1] == 30
    end = reader.read(start_from_head=True).forward_token
    streams.append("/team", "run", lines(40))
    assert [event.timestamp_ms for event in reader.read(token=end).events] == [40]


def test_old_segments_go_and_readers_of_them_continue_with_what_is_left(streams, reader, tmp_path):
    streams.append("/team", "run", lines(*range(10, 14)))
    begin = reader.read(start_from_head=True, limit=1).forward_token
    for at_ms in range(14, 34):
        streams.append("/team", "run", lines(at_ms))
    directory = stream_directory(tmp_path, "/team", "run")
    before = segments_of(directory)
    streams.expire("/team", "run", before_ms=25, unused_before_ms=0)
    left = times(reader)
    assert left == list(range(left[0], 34)) and 18 < left[0] <= 25
    assert segments_of(directory) == before[-len(segments_of(directory)) :]
    assert [event.timestamp_ms for event in reader.read(token=begin).events] == left
    streams.expire("/team", "run", before_ms=100, unused_before_ms=0)
    assert times(reader) == [] and segments_of(directory) == [before[-1] + 1]
    streams.expire("/team", "run", before_ms=100, unused_before_ms=0)  # once is enough
    assert segments_of(directory) == [before[-1] + 1]
    streams.append("/team", "run", lines(101))
    assert [event.timestamp_ms for event in reader.read(token=begin).events] == [101]
    streams.expire("/team", "run", before_ms=200, unused_before_ms=1 << 50)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("point", "stored"),
    [
        ("segments.write", [10]),
        ("files.fsync.01000000.log", [10, 20]),
        ("files.fsync.02000000.log", [*range(1, 16), 20]),
        ("splits.copied", [*range(1, 16), 20]),
    ],
)
def test_a_kill_leaves_the_events_that_were_stored(streams, reader, tmp_path, point, stored):
    streams.append("/team", "run", lines(*stored))
    killed = run(tmp_path, "append", point)
    assert killed.returncode == -9
    PutStreams(tmp_path, clock=SystemClock(), segment_bytes=200)  # completes what was begun
    assert times(reader) == stored
    assert run(tmp_path, "append", "none").returncode == 0
    assert times(reader) == sorted([*stored, 15])
    assert not list(tmp_path.glob("*.split"))
    assert LogStreams(tmp_path).names("/team") == ["run"]


def run(root: Path, what: str, point: str) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "TIDEMILL_FAULTS": f"{point}:exit", "TIDEMILL_FAULTS_LOG": str(root / "faults")}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(root), what], env=variables, check=False)
    assert (point in (root / "faults").read_text()) if point != "none" else True
    return done


def test_what_a_kill_leaves_of_a_removed_stream_can_be_removed(streams, tmp_path):
    streams.append("/team", "run", lines(10))
    directory = stream_directory(tmp_path, "/team", "run")
    segment_path(directory, SEGMENT_STEP).unlink()  # as after a kill between the two
    assert json.loads((directory / "stream.json").read_text())["of_client"] is True
    assert LogStreams(tmp_path).names("/team") == ["run"]
    assert run(tmp_path, "remove", "none").returncode == 0
    assert not directory.exists()
    streams.remove_group("/team")
    assert [path.name for path in tmp_path.iterdir()] in ([], ["faults"])
