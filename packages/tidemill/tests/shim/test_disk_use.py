"""When the files of an instance are measured, and what counts."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.instance.directory import InstanceDirectory
from tidemill.shim.disk_use import DiskLimit, DiskUse

MIB = 1 << 20
WRITER = """
import os, sys
for line in sys.stdin:
    with open(sys.argv[1], "ab") as file:
        file.write(bytes(int(line)))
    print("WRITTEN", flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> InstanceDirectory:
    directory = InstanceDirectory(tmp_path / "jobs/ab/algo-1")
    for each in (directory.ml, directory.home, directory.tmp):
        each.mkdir(parents=True)
    return directory


class Writer:
    """A process that writes as many bytes as a test says."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def write(self, size_bytes: int) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{size_bytes}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "WRITTEN\n"


@pytest.fixture
def writer(directory: InstanceDirectory) -> Iterator[Writer]:
    writer = Writer(directory.ml / "written")
    yield writer
    writer.process.communicate()


class Time:
    """A clock that a test moves; each measurement takes ``took_s``."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_files_are_measured_when_what_was_written_may_reach_the_limit_and_else_every_five_seconds(
    directory: InstanceDirectory, writer: Writer
) -> None:
    now_s, pids = Time(), (writer.process.pid,)
    disk = DiskUse(directory, DiskLimit(40 * MIB, None), now_s=now_s)
    assert disk.is_due(pids), "nothing is known before the first measurement"
    disk.measure(pids)
    assert not disk.is_due(pids)
    writer.write(30 * MIB)
    assert not disk.is_due(pids)
    writer.write(15 * MIB)
    assert disk.is_due(pids), "no time has passed"
    assert DiskLimit(40 * MIB, None).exceeded_by(disk.measure(pids))
    (directory.ml / "written").unlink()
    assert disk.measure(pids).size_bytes < MIB
    now_s.now_s += 4.9
    assert not disk.is_due(pids)
    now_s.now_s += 0.2
    assert disk.is_due(pids)


def test_files_in_memory_are_measured_too_although_the_kernel_does_not_count_what_is_written_to_them() -> None:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    if not any(at == "/dev/shm" and kind == "tmpfs" for _, at, kind, *_ in mounts):
        pytest.skip("this machine has no tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = InstanceDirectory(Path(name, "jobs/ab/algo-1"))
        directory.ml.mkdir(parents=True)
        disk = DiskUse(directory, DiskLimit(4 * MIB, None), now_s=Time())
        disk.measure(())
        (directory.ml / "file").write_bytes(bytes(5 * MIB))
        assert disk.is_due(()), "no time has passed"
        assert DiskLimit(4 * MIB, None).exceeded_by(disk.measure(()))


def test_a_process_that_started_or_ended_since_the_last_look_counts(directory: InstanceDirectory) -> None:
    disk = DiskUse(directory, DiskLimit(40 * MIB, None), now_s=Time())
    own = (os.getpid(),)
    disk.is_due(own)
    disk.measure(())
    assert not disk.is_due(own)
    for place in range(2):
        code = "import sys; open(sys.argv[1], 'wb').write(bytes(25 << 20))"
        subprocess.run([sys.executable, "-c", code, str(directory.home / f"{place}")], check=True)
    assert disk.is_due(own), "the kernel adds what an ended child has written to the count of its parent"


def test_links_count_once_and_deleted_files_as_long_as_they_are_open(directory: InstanceDirectory) -> None:
    disk = DiskUse(directory, DiskLimit(40 * MIB, None))
    before = disk.measure(())
    (directory.ml / "file").write_bytes(bytes(3 * MIB))
    (directory.home / "link").hardlink_to(directory.ml / "file")
    deep = directory.tmp.joinpath(*"d" * 200)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(bytes(2 * MIB))
    used = disk.measure(())
    assert 5 * MIB <= used.size_bytes - before.size_bytes < 7 * MIB  # directories may take a block each
    assert used.inodes - before.inodes == 1 + 200 + 1
    used = disk.measure((os.getpid(),))  # pytest has deleted files open
    in_memory = os.memfd_create("memory")
    with (directory.ml / "deleted").open("wb") as file:
        file.write(bytes(4 * MIB))
        os.write(in_memory, bytes(8 * MIB))
        (directory.ml / "deleted").unlink()
        twice = os.dup(file.fileno())
        again = disk.measure((os.getpid(),))
    os.close(twice)
    os.close(in_memory)
    assert 4 * MIB <= again.size_bytes - used.size_bytes < 5 * MIB
    assert again.inodes == used.inodes + 1
    assert disk.measure((os.getpid(),)).inodes == used.inodes


def test_the_limit_of_inodes_is_the_share_of_the_space(directory: InstanceDirectory) -> None:
    disk = os.statvfs(directory.path)
    if not disk.f_files:
        pytest.skip("this file system has no limit of inodes")
    half = DiskLimit.of(disk.f_blocks * disk.f_frsize // 2, directory.path)
    assert half.inodes is not None and abs(half.inodes - disk.f_files // 2) <= 1
    assert DiskLimit.of(1, directory.path).inodes == 10_000
