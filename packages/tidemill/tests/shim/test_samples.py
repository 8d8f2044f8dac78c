"""The file of an instance's samples: its bound, what thinning keeps, torn and hostile lines."""

import itertools
import json
from pathlib import Path

import pytest

from tidemill.instance.samples import (
    MAX_SAMPLES,
    RECENT_SAMPLES,
    SAMPLES_FILE,
    GpuSample,
    Sample,
    SampledInstance,
    SampleSeries,
    SampleWriter,
    thinned,
)

MACHINE = SampledInstance(cpus=2, memory_bytes=8 << 30, disk_bytes=1 << 40)
WEEK = 60_480


def sample(number: int, *, cpu: float = 1.0, memory: int = 1 << 20, gpus: tuple[GpuSample, ...] = ()) -> Sample:
    return Sample(number * 10_000, 10_000, cpu, memory, 5, 0.0, 0.0, 0.0, 0.0, gpus)


def test_a_file_is_bounded_and_older_samples_are_thinned_and_not_cut() -> None:
    kept: list[Sample] = []
    for number in range(1, WEEK + 1):
        kept.append(sample(number, cpu=4.0 if number == 100 else 1.0, memory=9 << 30 if number == 7 else 1 << 20))
        if len(kept) > MAX_SAMPLES:
            kept = thinned(kept)
    assert len(kept) <= MAX_SAMPLES
    assert sum(each.span_ms for each in kept) == WEEK * 10_000, "every interval is part of a sample"
    assert all(one.at_ms == other.at_ms - other.span_ms for one, other in itertools.pairwise(kept))
    assert {each.span_ms for each in kept[-RECENT_SAMPLES:]} == {10_000}
    assert max(each.span_ms for each in kept) <= 640_000, "the week before the last hours has about 1,000 samples"
    total = sum(each.cpu * each.span_ms for each in kept) / 10_000
    assert total == pytest.approx(WEEK + 3), "averages are kept"
    assert kept[0].memory_bytes == 9 << 30, "the largest memory is kept"


def test_a_writer_thins_its_file_and_does_not_parse_it_to_begin(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, MACHINE)
    for begin in range(0, 10_000, 100):
        SampleWriter(tmp_path, MACHINE).add(*(sample(number) for number in range(begin + 1, begin + 101)))
        assert (tmp_path / SAMPLES_FILE).read_bytes().count(b"\n") <= MAX_SAMPLES
    series = SampleSeries.read(tmp_path)
    assert sum(each.span_ms for each in series.samples) == 10_000 * 10_000
    assert series.instance == SampleSeries.described(tmp_path) == MACHINE
    writer = SampleWriter(tmp_path)
    writer.add(*(sample(number) for number in range(9_000, 40_000)))
    assert sum(each.span_ms for each in SampleSeries.read(tmp_path).samples) == 39_999 * 10_000
    (tmp_path / SAMPLES_FILE).write_bytes(sample(7).to_line() + b"x" * 10_000)
    assert SampleWriter(tmp_path).last_ms == 70_000, "behind damage, it is found by the whole file"


def test_a_writer_continues_the_file_of_a_killed_one_and_readers_ignore_what_is_torn(tmp_path: Path) -> None:
    gpu = SampledInstance(
        cpus=2, memory_bytes=8 << 30, disk_bytes=1 << 40, gpus=("H100",), gpu_memory_bytes=(80 << 30,)
    )
    writer = SampleWriter(tmp_path, gpu)
    writer.add(sample(1, gpus=(GpuSample(0.5, 1 << 30),)), sample(2))
    file = tmp_path / SAMPLES_FILE
    with file.open("ab") as torn:
        torn.write(b"[30000,10000,1.0,10")
    assert SampleSeries.read(tmp_path).samples[0].gpus == (GpuSample(0.5, 1 << 30),)
    assert [each.at_ms for each in SampleSeries.read(tmp_path).samples] == [10_000, 20_000]
    again = SampleWriter(tmp_path, MACHINE)
    assert again.last_ms == 20_000
    again.add(sample(2, cpu=9.0), sample(3))
    series = SampleSeries.read(tmp_path)
    assert series.instance == MACHINE
    assert [(each.at_ms, each.cpu) for each in series.samples] == [(10_000, 1.0), (20_000, 1.0), (30_000, 1.0)]
    assert SampleSeries.parse(series.to_lines()) == series
    assert series.after(10_000).samples == series.samples[1:]
    assert SampleSeries.read(tmp_path / "absent") == SampleSeries()


@pytest.mark.parametrize(
    "line",
    [
        b"[1,2]",
        b"[1,2,3,4,5,6,7,8,9,10]",
        b'[1,2,"3",4,5,6,7,8,9]',
        b"[1,2,NaN,4,5,6,7,8,9]",
        b"[1,2,Infinity,4,5,6,7,8,9]",
        b"[1,2,-3,4,5,6,7,8,9]",
        b"[1,2,true,4,5,6,7,8,9]",
        json.dumps([1e300] * 9).encode(),
        json.dumps([1] * (9 + 2 * 65)).encode(),
        b"[" * 100_000,
        b'{"cpus": []}',
        b"3",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_line_that_is_no_sample_is_left_out(line: bytes) -> None:
    good = sample(1).to_line()
    assert SampleSeries.parse(good + line + b"\n" + sample(2).to_line()).samples == (sample(1), sample(2))


def test_numbers_that_no_float_can_have_are_left_out() -> None:
    line = sample(1).to_line()
    huge = line.replace(b"1048576", b"1" + b"0" * 400)
    assert SampleSeries.parse(huge + b"[1e999]\n" + line).samples == (sample(1),)
    described = SampleSeries(MACHINE).to_lines()
    for wrong in (b"1" + b"0" * 400, b"1e999", b"-1", b"NaN", b'"2"'):
        assert SampleSeries.parse(described.replace(b'"cpus": 2', b'"cpus": ' + wrong)).instance is None, wrong
