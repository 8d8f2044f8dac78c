"""Epochs, and readers that arrive, leave, stall, die and interfere: with real FIFOs and processes."""

import contextlib
import errno
import gzip
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.clock import SystemClock
from tidemill.instance.spec import ChannelSpec
from tidemill.shim.feeder import PipeFeeder
from tidemill.shim.feeder.pipes import PipeDirectory


def test_objects_are_joined_without_anything_between(stage: Any) -> None:
    objects = [stage.object(str(size), bytes([size % 251]) * size) for size in (0, 1, 16383, 16384, 3_000_000, 5)]
    with stage.feeding(*objects):
        data = stage.read()
        expected = b"".join(Path(each.file).read_bytes() for each in objects)
        assert data == expected
        stage.wait_until(lambda: stage.outcome()["state"] != "writing")
    assert stage.outcome() == {"version": 2, "state": "ok", "bytes": len(expected), "objects": 6, "error": ""}
    assert stage.lines == []


def test_the_outcome_is_written_before_the_end_of_file(stage: Any) -> None:
    with stage.feeding(stage.object("a", b"a")):
        for epoch in range(50):
            assert stage.read(epoch) == b"a"
            assert stage.outcome(epoch)["state"] == "ok"


def test_the_next_epoch_is_on_offer_before_this_one_is_read(stage: Any) -> None:
    feeder = stage.feeder(stage.object("a", b"a"))
    assert (stage.data / "train_0").is_fifo()
    assert stage.outcome(0)["state"] == "writing"
    with feeder.running() as start:
        start()
        with stage.ended(stage.reader("fifo.read(1); print(flush=True); signal.pause()")) as reader:
            reader.stdout.readline()
            assert (stage.data / "train_1").is_fifo()
            assert stage.outcome(1) == {"version": 2, "state": "writing", "bytes": 0, "objects": 0, "error": ""}


def test_an_epoch_that_was_read_is_not_waited_for_again(stage: Any) -> None:
    with stage.feeding(stage.object("a", b"a")):
        stage.read()
        stage.wait_until(lambda: not (stage.data / "train_0").exists())
        assert (stage.data / "train_1").is_fifo()


def test_the_lock_is_held_as_long_as_epochs_come(stage: Any) -> None:
    feeder = stage.feeder(stage.object("a", b"a"))
    assert stage.is_fed()
    with feeder.running() as start:
        start()
        stage.read(0)
        assert stage.is_fed()
    assert stage.is_fed()  # may be run again
    assert stage.lock.read_text() == ""


def test_feeding_goes_on_where_it_was_interrupted(stage: Any) -> None:
    feeder = stage.feeder(stage.object("a", b"a"))
    with feeder.running():
        pass  # the process could not be started
    for epoch in range(3):
        with feeder.running() as start:
            start()
            assert stage.read(epoch) == b"a"
            stage.wait_until(lambda epoch=epoch: (stage.data / f"train_{epoch + 2}").exists())


def test_channels_do_not_wait_for_each_other(stage: Any) -> None:
    specs = [ChannelSpec(name=name, objects=(), input_mode="Pipe") for name in ("train", "other")]
    for spec in specs:
        stage.directory.write_channel(spec.name, [stage.object(spec.name, spec.name.encode() * 1_000_000)])
    feeder = PipeFeeder(stage.directory, specs, log=stage.lines.append, clock=SystemClock())
    with feeder.running() as start:
        start()
        with stage.ended(stage.reader("fifo.read(1); print(flush=True); signal.pause()")) as stalled:
            stalled.stdout.readline()
            for epoch in range(3):
                assert (stage.data / f"other_{epoch}").read_bytes() == b"other" * 1_000_000


def test_a_channel_without_an_object_for_this_instance_ends_at_once(stage: Any) -> None:
    with stage.feeding(stage.object("a", b"a"), share=(1, 2)):
        assert stage.read() == b""
        assert stage.outcome()["state"] == "ok"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_reader_that_dies_ends_the_epoch_and_the_next_reader_begins_another(stage: Any, signum: int) -> None:
    big = stage.object("big", b"0123456789" * 1_000_000)
    with stage.feeding(big) as feeder:
        with stage.ended(stage.reader("fifo.read(7); print(flush=True); signal.pause()")) as reader:
            reader.stdout.readline()
            reader.send_signal(signum)
            reader.wait()
            stage.wait_until(lambda: stage.outcome()["state"] == "error")
        assert stage.outcome()["error"].startswith("the reader left after ")
        assert 7 <= stage.outcome()["bytes"] < 10_000_000
        assert stage.read(1) == b"0123456789" * 1_000_000
        assert stage.outcome(1)["state"] == "ok"
    assert feeder.failure is None
    assert ["epoch 0: the reader left after" in line for line in stage.lines] == [True]


@pytest.mark.parametrize("channel", [{}, {"compression": "Gzip"}])
def test_a_reader_that_stalls_does_not_keep_the_feeder_from_ending(stage: Any, channel: dict[str, str]) -> None:
    content = os.urandom(4_000_000)
    big = stage.object("big", gzip.compress(content, 1) if channel else content)
    with contextlib.ExitStack() as reading:
        with stage.feeding(big, **channel):
            # Started when there is a FIFO to open, and ended after the feeder.
            reader = reading.enter_context(stage.ended(stage.reader("fifo.read(1); print(flush=True); signal.pause()")))
            reader.stdout.readline()
        assert reader.poll() is None
        assert stage.outcome()["state"] == "writing"


def test_the_feeder_ends_at_once_without_a_reader(stage: Any) -> None:
    with stage.feeding(stage.object("a", b"a")):
        pass
    assert stage.outcome()["state"] == "writing"


def test_neither_end_of_a_fifo_gets_into_other_processes(stage: Any) -> None:
    with (
        stage.feeding(stage.object("big", bytes(4_000_000))),
        stage.ended(stage.reader("fifo.read(1); print(flush=True); signal.pause()")) as reader,
    ):
        reader.stdout.readline()
        command = ["ls", "-l", "/proc/self/fd"]
        inherited = subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True).stdout
        own = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert sum("train_0" in name for name in own) == 1  # only the write end
    assert "train_0" not in inherited


def test_a_link_in_the_place_of_a_fifo_is_not_followed(stage: Any, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    feeder = stage.feeder(stage.object("a", b"a"))
    (stage.data / "train_0").unlink()
    (stage.data / "train_0").symlink_to(victim)
    with feeder.running() as start:
        start()
        stage.wait_until(lambda: feeder.failure is not None)
    assert str(feeder.failure).startswith("ClientError: channel 'train', epoch 0: train_0 is no FIFO any more")
    assert victim.read_text() == "precious"
    assert stage.outcome()["state"] == "error"


def test_a_file_in_the_place_of_a_fifo_is_not_written(stage: Any) -> None:
    feeder = stage.feeder(stage.object("a", b"a"))
    (stage.data / "train_0").unlink()
    (stage.data / "train_0").write_text("mine")
    with feeder.running() as start:
        start()
        stage.wait_until(lambda: feeder.failure is not None)
    assert (stage.data / "train_0").read_text() == "mine"


def test_a_reader_that_waits_is_released_when_a_channel_is_given_up(
    stage: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    faults = iter([OSError(errno.EMFILE, "Too many open files")])
    really_open = PipeDirectory.open

    def open_later(self: PipeDirectory, name: str) -> int | None:
        fault = next(faults, None)
        if fault:
            raise fault
        return really_open(self, name)

    monkeypatch.setattr(PipeDirectory, "open", open_later)
    feeder = stage.feeder(stage.object("a", b"a"))
    with stage.ended(stage.reader("print(fifo.read())")) as reader, feeder.running() as start:
        stage.wait_until(lambda: Path(f"/proc/{reader.pid}/wchan").read_text() == "wait_for_partner")
        start()
        assert reader.stdout.read() == b"b''\n"
        assert stage.outcome()["state"] == "error"
        stage.wait_until(lambda: not stage.is_fed())
    assert "Too many open files" in stage.outcome()["error"]
    assert "Too many open files" in stage.lock.read_text()
    assert str(feeder.failure).startswith("InternalServerError: ")
    assert "Traceback" in capfd.readouterr().err


def test_directories_that_a_script_replaces_are_not_written_through(stage: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    feeder = stage.feeder(stage.object("a", b"a"))
    real = stage.directory.ml / "input/real"
    stage.data.rename(real)
    stage.data.symlink_to(elsewhere)
    with feeder.running() as start:
        start()
        assert (real / "train_0").read_bytes() == b"a"
    assert list(elsewhere.iterdir()) == []


def test_a_fifo_that_a_script_removes_is_made_again(stage: Any) -> None:
    with stage.feeding(stage.object("a", b"a")):
        stage.wait_until(lambda: (stage.data / "train_1").exists())
        (stage.data / "train_0").unlink()
        stage.wait_until(lambda: (stage.data / "train_0").exists())
        assert stage.read() == b"a"
