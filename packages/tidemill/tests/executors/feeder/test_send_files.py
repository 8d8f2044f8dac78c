"""Many files at once: by the native library, and by Python where the library was not built."""

import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.instance.spec import InlineText
from tidemill.shim.feeder import pipe_writer
from tidemill.shim.feeder.native_sender import native_sender
from tidemill.shim.feeder.pipe_writer import Cancellation, Cancelled, PipeWriter, ReaderGone

SIZES = (0, 1, 2, 3, 4, 5, 100, 4095, 4096, 6143, 6144, 6145, 16383, 16384, 65535, 65536, 65537, 1_300_001)


@pytest.fixture(params=["native", "python"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the tests that request it with both ways of sending files."""
    if request.param == "python":
        monkeypatch.setattr(pipe_writer, "native_sender", lambda: None)
    return request.param


@pytest.fixture
def pipe() -> Iterator[tuple[int, PipeWriter, Cancellation]]:
    """The read end of a pipe, and a writer of its write end."""
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
    os.set_blocking(read_fd, True)
    cancellation = Cancellation()
    writer = PipeWriter(write_fd, cancellation)
    yield read_fd, writer, cancellation
    writer.close()
    cancellation.close()
    os.close(read_fd)


def test_the_library_is_built() -> None:
    assert native_sender() is not None


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
def test_files_of_all_sizes_arrive_between_texts(stage: Any, wrapper: str) -> None:
    contents = [os.urandom(size) for size in SIZES for _ in range(30 if size < 20_000 else 2)]
    objects = [stage.object(str(index), data) for index, data in enumerate(contents)]
    plain = b"".join(contents) + b"text" + b"".join(contents)
    wrapped = b"".join(stage.record(data) for data in [*contents, b"text", *contents])
    with stage.feeding(*objects, InlineText(text="text"), *objects, record_wrapper=wrapper):
        assert stage.read() == (wrapped if wrapper == "RecordIO" else plain)
    assert (stage.outcome()["state"], stage.outcome()["objects"]) == ("ok", 2 * len(objects) + 1)


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize("size", [300, 30_000])
@pytest.mark.parametrize(("change", "reason"), [(-1, "is damaged"), (1, "is damaged"), (None, "was deleted")])
def test_files_before_a_bad_one_arrive_and_no_byte_after(
    stage: Any, size: int, change: int | None, reason: str
) -> None:
    objects = [stage.object(f"{index}", os.urandom(size)) for index in range(20)]
    expected = b"".join(Path(each.file).read_bytes() for each in objects[:13])
    bad = Path(objects[13].file)
    if change is None:
        bad.unlink()
    else:
        bad.write_bytes(bytes(size + change))
    with stage.feeding(*objects) as feeder:
        assert stage.read() == expected
    assert (stage.outcome()["state"], stage.outcome()["objects"]) == ("error", 13)
    assert stage.outcome()["bytes"] == len(expected)
    assert f"s3://bucket/13 {reason}" in str(feeder.failure)


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
def test_a_file_that_is_cut_while_it_is_sent_is_an_error(stage: Any, wrapper: str) -> None:
    first, cut, last = (stage.object(name, name.encode() * 1_000_000) for name in ("1", "long", "last"))
    with (
        stage.feeding(first, cut, last, record_wrapper=wrapper) as feeder,
        (stage.data / "train_0").open("rb", buffering=0) as fifo,
    ):
        data = b""
        while b"long" not in data:  # the pipe holds 1 MiB, so more than 2 MB of the object are not sent yet
            data += fifo.read(1 << 16)
        os.truncate(cut.file, 3_000_000)
        data += fifo.readall()
    start = {"None": 1_000_000, "RecordIO": 1_000_016}[wrapper]  # behind the headers
    assert data[start:] == b"long" * 750_000
    assert stage.outcome()["state"] == "error"
    assert stage.outcome()["objects"] == 1
    assert "s3://bucket/long is damaged in the object store: it ended early, at byte 3000000" in str(feeder.failure)


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize("size", [300, 10_000])
def test_a_reader_may_leave_amid_many_files(stage: Any, size: int) -> None:
    each = stage.object("a", bytes(size))
    with stage.feeding(*[each] * (2_400_000 // size)) as feeder:
        with (stage.data / "train_0").open("rb", buffering=0) as fifo:
            assert fifo.read(5) == bytes(5)
        stage.wait_until(lambda: stage.outcome()["state"] == "error")
        assert stage.outcome()["error"].startswith("the reader left after ")
        assert stage.read(1) == bytes(2_400_000)
    assert feeder.failure is None


def test_no_file_stays_open(stage: Any) -> None:
    objects = [stage.object(f"{index}", bytes(index * 100)) for index in range(200)]
    with stage.feeding(*objects):
        stage.read(0)
        Path(objects[150].file).unlink()
        for epoch in (1, 2):
            stage.read(epoch)
            assert stage.outcome(epoch)["objects"] == 150
        assert not _open_files() & {each.file for each in objects}


def test_a_full_pipe_waits_for_the_reader_and_the_cancellation_ends_the_wait(stage: Any, pipe: Any) -> None:
    read_fd, writer, cancellation = pipe
    content = os.urandom(10_000)
    file = stage.object("a", content).file
    ended: list[type[Exception]] = []

    def send() -> None:
        try:
            writer.send_files([(file, 10_000)] * 1000, record_io=False)
        except Cancelled as cancelled:
            ended.append(type(cancelled))

    thread = threading.Thread(target=send)
    thread.start()
    assert os.read(read_fd, 10_000) == content
    stage.wait_until(lambda: _waiting_bytes(read_fd) > 500_000)
    assert thread.is_alive()
    cancellation.cancel()
    thread.join()
    assert ended == [Cancelled]
    assert writer.sent_bytes == 10_000 + _waiting_bytes(read_fd)


def test_signals_interrupt_the_wait_without_loss(stage: Any, pipe: Any) -> None:
    read_fd, writer, _ = pipe
    contents = [os.urandom(size) for size in (100, 10_000, 70_000)]
    files = [(stage.object("a", content).file, len(content)) for content in contents] * 100
    hits: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    received = bytearray()

    def receive() -> None:
        while len(received) < 100 * sum(map(len, contents)):
            received.extend(os.read(read_fd, 3000))

    reader = threading.Thread(target=receive)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        reader.start()
        sent = writer.send_files(files, record_io=False)
        reader.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sent == (300, None)
    assert bytes(received) == b"".join(contents) * 100
    assert hits


def test_a_pipe_without_a_reader(stage: Any, pipe: Any) -> None:
    read_fd, writer, _ = pipe
    file = stage.object("a", bytes(10_000)).file
    os.dup2(os.open("/dev/null", os.O_RDONLY), read_fd)
    with pytest.raises(ReaderGone):
        writer.send_files([(file, 10_000)], record_io=False)


def test_a_path_that_is_no_file_is_left_to_the_caller(stage: Any, pipe: Any) -> None:
    _, writer, _ = pipe
    good = stage.object("a", b"12345").file
    for size in (0, 5, 4096, 10_000):
        assert writer.send_files([(good, 5), (str(stage.path), size)], record_io=True) == (1, None)
    assert writer.sent_bytes == 4 * len(stage.record(b"12345"))


def _open_files() -> set[str]:
    targets = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            targets.add(str(link.readlink()))
    return targets


def _waiting_bytes(fd: int) -> int:
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
