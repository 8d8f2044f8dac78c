"""The links of a channel in two parts, which two processes create."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from tidemill.shim.failures import ClientFailure, InternalFailure
from tidemill.shim.link_parts import PARTS, link_in_parts

PLACE = "/opt/ml/input/data/train"
Row = tuple[str, str, str, int, str]
NAMES = (*(f"{number:03}" for number in range(40)), "deep/er/a", "deep/b", "folder/", "deeper/c")
KILLED = """
import os, signal, sys
from pathlib import Path
from zlib import crc32
from tidemill.shim.link_parts import link_in_parts
parent = os.getpid()
def read():
    if os.getpid() != parent:
        os.write(1, b"child")
        signal.pause()
    return []
link_in_parts(read, Path(sys.argv[1]), place="", check=lambda: None)
"""


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Return rows of `NAMES`, with names of both parts."""
    found = []
    for number, name in enumerate(NAMES):
        file = tmp_path / f"stored-{number}"
        file.write_bytes(b"" if name.endswith("/") else b"data")
        file.chmod(0o400)
        found.append((f"s3://bucket/{name}", name, str(file), file.stat().st_size, "unread"))
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return an empty directory."""
    directory = tmp_path / "channel"
    directory.mkdir()
    return directory


def paths_in(directory: Path) -> set[str]:
    """Return the paths of all files and of all empty directories."""
    return {
        str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file() or not any(each.iterdir())
    }


def link(directory: Path, rows: list[Row], read: Callable[[], object] = lambda: None) -> None:
    """Link ``rows`` in batches of ten. Both processes call ``read`` first."""

    def batches() -> Iterator[list[Row]]:
        read()
        yield from (rows[start : start + 10] for start in range(0, len(rows), 10))

    link_in_parts(batches, directory, place=PLACE, check=lambda: None)


def part_of(name: str, rows: list[Row], directory: Path) -> int:
    """Link ``rows``, and return the part that has ``name``."""
    link(directory, rows)
    (part,) = (number for number, part in enumerate(PARTS) if (directory / part / name).exists())
    for each in PARTS:
        subprocess.run(["/bin/rm", "-r", str(directory / each)], check=True)
    return part


def test_two_processes_link_all_files_each_those_of_its_own_top_level_names(
    rows: list[Row], directory: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"

    def read() -> None:
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")

    link(directory, rows, read)
    first, second = (paths_in(directory / part) for part in PARTS)
    assert len(set(pids.read_text().split())) == 2
    assert first | second == {name.rstrip("/") for name in NAMES}
    for number, paths in enumerate((first, second)):
        assert {crc32(path.partition("/")[0].encode()) & 1 for path in paths} == {number}
    assert min(len(first), len(second)) > 10


@pytest.mark.parametrize("part", [0, 1])
def test_a_fault_in_either_part_is_raised(part: int, rows: list[Row], directory: Path) -> None:
    name = next(each for each in NAMES if part_of(each, rows, directory) == part)
    damaged = [(*row[:3], 5, row[4]) if row[1] == name else row for row in rows]
    with pytest.raises(InternalFailure, match=f"s3://bucket/{name} is damaged in the object store"):
        link(directory, damaged)


@pytest.mark.parametrize("name", ["001", "deep", "001/x", "../x", "", "/x", "a\0b", "\udcff"])
def test_a_name_that_clashes_or_is_no_path_is_refused_as_in_one_directory(
    name: str, rows: list[Row], directory: Path
) -> None:
    with pytest.raises(ClientFailure, match=r"clashes with another object|cannot be a file name"):
        link(directory, [*rows, (f"s3://bucket/{name}", name, *rows[0][2:])])


def test_the_files_of_a_killed_process_are_linked_by_the_other(rows: list[Row], directory: Path) -> None:
    parent = os.getpid()

    def batches() -> Iterator[list[Row]]:
        yield rows[:30]
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        yield rows[30:]

    link_in_parts(batches, directory, place=PLACE, check=lambda: None)
    assert set().union(*(paths_in(directory / part) for part in PARTS)) == {name.rstrip("/") for name in NAMES}


def test_a_request_to_stop_ends_both_processes(rows: list[Row], directory: Path) -> None:
    parent = os.getpid()
    read_fd, write_fd = os.pipe()

    def batches() -> Iterator[list[Row]]:
        if os.getpid() != parent:
            os.write(write_fd, b"%d" % os.getpid())
            signal.pause()
        yield rows

    found: list[int] = []

    def check() -> None:
        if found:
            raise KeyboardInterrupt
        found.append(int(pids.read(20) or b""))  # waits for the second process

    with os.fdopen(read_fd, "rb", buffering=0) as pids, os.fdopen(write_fd, "wb"), pytest.raises(KeyboardInterrupt):
        link_in_parts(batches, directory, place=PLACE, check=check)
    with pytest.raises(ProcessLookupError):
        os.kill(found[0], 0)


def test_the_second_process_ends_with_the_first(directory: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(directory)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read(5) == b"child"
        process.kill()
        process.wait()
        assert select.select([process.stdout], [], [], 30)[0]  # the second process has closed its copy
        assert process.stdout.read() == b""
