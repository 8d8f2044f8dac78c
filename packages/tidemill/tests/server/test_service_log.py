"""The files of the service's own log."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidemill.server.service_log import ServiceLog, ServiceLogReader, numbered, shift


@pytest.fixture
def log(tmp_path: Path):
    """Yield a log of three files of 1,000 bytes at a descriptor of its own."""
    file = tmp_path / "service.log"
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    yield file, ServiceLog(file, max_bytes=1_000, files=3, descriptors=(fd,)), fd
    os.close(fd)


def sizes(file: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in sorted(file.parent.glob("service.log*"))}


def test_a_log_keeps_its_size_and_the_number_of_its_files(log) -> None:
    file, stream, _ = log
    for number in range(1_000):
        stream.write(f"line {number}\n")
    assert set(sizes(file)) == {"service.log", "service.log.1", "service.log.2"}
    assert max(sizes(file).values()) <= 1_000
    kept = [line for age in (2, 1, 0) for line in numbered(file, age).read_text().splitlines()]
    assert kept == [f"line {number}" for number in range(1_000 - len(kept), 1_000)]


def test_what_others_write_to_the_descriptor_counts_and_follows_to_the_new_file(log) -> None:
    file, stream, fd = log
    os.write(fd, b"x" * 990 + b"\n")
    stream.write("an event that is longer\n")
    os.write(fd, b"a traceback\n")
    assert file.read_text() == "an event that is longer\na traceback\n"
    assert sizes(file) == {"service.log": 36, "service.log.1": 991}


def test_a_line_longer_than_a_file_is_written_whole(log) -> None:
    file, stream, _ = log
    stream.write("y" * 5_000 + "\n")
    stream.write("next\n")
    assert sizes(file) == {"service.log": 5, "service.log.1": 5_001}


def test_threads_lose_and_split_no_line(log) -> None:
    file, _, fd = log
    stream = ServiceLog(file, max_bytes=1_000, files=100, descriptors=(fd,))
    threads = [
        threading.Thread(target=lambda name=name: [stream.write(f"{name} {i}\n") for i in range(300)])
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ServiceLogReader(file).lines()) == sorted(f"{name} {i}" for name in "abcd" for i in range(300))


def test_a_directory_that_refuses_a_new_file_keeps_the_old_one(log, monkeypatch) -> None:
    file, stream, _ = log
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for _ in range(200):
        stream.write("a line of the log\n")
    assert sizes(file) == {"service.log": 3_600}


def test_a_process_without_free_descriptors_keeps_all_files_and_goes_on_later(log, monkeypatch) -> None:
    file, stream, _ = log
    for number in range(150):
        stream.write(f"line {number}\n")
    before, opened = sizes(file), os.open

    def refused(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refused)
    for _ in range(100):
        stream.write("a line of the log\n")
    assert sizes(file).keys() == before.keys()
    assert numbered(file, 1).read_text().startswith("line 0\n")
    monkeypatch.setattr(os, "open", opened)
    stream.write("the next one\n")
    assert file.read_text() == "the next one\n"
    assert numbered(file, 1).read_text().endswith("a line of the log\n")
    assert numbered(file, 2).read_text().startswith("line 0\n")


def test_a_second_writer_goes_on_in_the_file_that_the_first_has_begun(log) -> None:
    file, first, _ = log
    fd = os.open(file, os.O_WRONLY | os.O_APPEND)
    second, reader, seen = ServiceLog(file, max_bytes=1_000, files=3, descriptors=(fd,)), ServiceLogReader(file), []
    for number in range(300):
        (first if number % 3 else second).write(f"line {number}\n")
        seen += reader.lines()
    assert seen == [f"line {number}" for number in range(300)]
    assert sizes(file)["service.log.1"] > 900 and sizes(file)["service.log.2"] > 900
    os.close(fd)
    reader.close()


def test_a_full_disk_fails_no_event_and_the_log_names_the_number_of_missing_lines(log, monkeypatch) -> None:
    file, stream, _ = log
    write, room = os.write, [6]

    def into_a_full_disk(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", into_a_full_disk)
    for text in ("one\n", "two\n", "three\n"):
        assert stream.write(text) == len(text)
    monkeypatch.setattr(os, "write", write)
    stream.write("four\n")
    stream.write("five\n")
    assert file.read_text() == "one\ntw\n2 lines are missing here: they could not be written\nfour\nfive\n"


def test_a_kill_between_two_renames_leaves_every_line_readable(tmp_path: Path) -> None:
    file = tmp_path / "service.log"
    for age, text in enumerate(("newest", "older", "oldest")):
        numbered(file, age).write_text(f"{text}\n")
    program = (
        "import os, signal, sys; from pathlib import Path; from tidemill.server import service_log\n"
        "replace = Path.replace\n"
        "def once(self, target):\n"
        "    replace(self, target)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.replace = once\n"
        "service_log.shift(Path(sys.argv[1]), files=4)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(file)], check=False).returncode == -9
    assert list(ServiceLogReader(file).lines()) == ["oldest", "older", "newest"]
    shift(file, files=5)
    assert list(ServiceLogReader(file).lines()) == ["oldest", "older", "newest"]
    assert not file.exists()


def test_a_reader_follows_a_log_through_several_changes(log) -> None:
    file, stream, _ = log
    reader = ServiceLogReader(file)
    assert list(reader.lines()) == []
    seen, written = [], 0
    for step in (3, 150, 40, 0, 120):
        for _ in range(step):
            stream.write(f"{written}\n")
            written += 1
        seen += list(reader.lines())
    assert seen == [str(number) for number in range(written)]
    os.write(log[2], b"not complete")
    assert list(reader.lines()) == []
    stream.write(" yet\n")
    assert list(reader.lines()) == ["not complete yet"]
    reader.close()
