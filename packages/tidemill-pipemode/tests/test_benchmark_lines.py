"""The figures that `benchmark` and `benchmark_records_interval` print to file descriptor 1."""

import re

HEAD = "PipeModeDatasetOp::Dataset::Iterator"


def test_every_nth_record_and_the_end_print_three_lines(channels, reader, read, capfd):
    channels.write(b"a\nbb\nccc\n")
    assert read(channels.dataset(benchmark_records_interval=2)) == ([b"a", b"bb", b"ccc"], "")
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(HEAD)]
    assert [re.sub(r"time_ns: \d+$", "time_ns: T", line) for line in lines] == [
        f"{HEAD} records: 2",
        f"{HEAD} records read_time_ns: T",
        f"{HEAD} records read_bytes: 3",
        f"{HEAD} records: 4",
        f"{HEAD} records read_time_ns: T",
        f"{HEAD} records read_bytes: 0",
    ]


def test_the_totals_are_printed_when_the_iterator_is_deleted(channels, reader, read, capfd):
    channels.write(b"a\nbb\nccc\n")
    assert read(channels.dataset(benchmark=True))[0] == [b"a", b"bb", b"ccc"]
    output = capfd.readouterr().out
    assert re.search(rf"^{HEAD} total read_time_ms: [\d.e+-]+$", output, re.MULTILINE)
    assert f"{HEAD} total read_bytes: 9\n" in output
    assert re.search(rf"^{HEAD} total read_GB/s: [\d.e+-]+$", output, re.MULTILINE)


def test_nothing_is_printed_by_default(channels, reader, read, capfd):
    channels.write(b"a\n")
    read(channels.dataset())
    assert capfd.readouterr().out == ""
