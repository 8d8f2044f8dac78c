"""The feeder for laptops, as a separate process."""

import fcntl
import gzip
import json
import os
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from feeders import open_files

DEADLINE_S = 60


def start(*arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "sagemaker_tensorflow.feed", *map(str, arguments)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def places(channels) -> tuple[object, ...]:
    return ("--pipe-dir", channels.pipe_dir, "--config-dir", channels.config_dir)


def test_each_epoch_streams_all_files_in_order(channels, reader, read, tmp_path):
    (tmp_path / "b").write_bytes(b"one\ntwo\n")
    (tmp_path / "a").write_bytes(b"three\n")
    feeder = start(tmp_path / "b", tmp_path / "a", "--channel", "fresh", "--epochs", 2, *places(channels))
    waits_until_configured(channels, feeder)
    assert read(channels.dataset("fresh").repeat(2)) == ([b"one", b"two", b"three"] * 2, "")
    errors = feeder.communicate(timeout=DEADLINE_S)[1]
    assert feeder.returncode == 0, errors
    assert (channels.pipe_dir / ".tidemill" / "fresh_1.outcome").read_text() == "2 ok 14 2\n"


def test_compressed_files_are_decompressed_while_they_are_streamed(channels, reader, read, tmp_path):
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    feeder = start(tmp_path / "lines.gz", "--gzip", "--epochs", 1, *places(channels))
    assert read(channels.dataset()) == ([b"one", b"two"], "")
    feeder.communicate(timeout=DEADLINE_S)
    assert feeder.returncode == 0


def test_a_truncated_compressed_file_is_an_error_on_both_sides(channels, reader, read, tmp_path):
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"one\n" * 1000)[:-9])
    feeder = start(tmp_path / "lines.gz", "--gzip", "--epochs", 1, *places(channels))
    _, error = read(channels.dataset())
    assert "the feeder failed" in error
    assert "lines.gz" in error
    feeder.communicate(timeout=DEADLINE_S)
    assert feeder.returncode == 1


def test_a_killed_feeder_makes_the_script_raise(channels, reader, tmp_path):
    (tmp_path / "many").write_bytes(b"line\n" * 1_000_000)
    feeder = start(tmp_path / "many", *places(channels))
    iterator = channels.dataset().batch(1000).as_numpy_iterator()
    assert set(next(iterator)) == {b"line"}
    feeder.kill()
    feeder.communicate()
    with pytest.raises(tf.errors.InternalError, match="the feeder died"):
        for _ in iterator:
            pass


def test_a_reader_that_stops_early_is_not_an_error(channels, reader, tmp_path):
    (tmp_path / "many").write_bytes(b"line\n" * 1_000_000)
    feeder = start(tmp_path / "many", "--epochs", 1, *places(channels))
    iterator = iter(channels.dataset())
    next(iterator)
    del iterator
    errors = feeder.communicate(timeout=DEADLINE_S)[1]
    assert feeder.returncode == 0
    assert "the reader stopped before the end" in errors


def test_a_missing_file_is_refused_at_once(channels, tmp_path):
    feeder = start(tmp_path / "absent", *places(channels))
    errors = feeder.communicate(timeout=DEADLINE_S)[1]
    assert feeder.returncode == 2
    assert f"no such file: {tmp_path}/absent" in errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--channel", "a/b"), "'a/b' is no name of a channel"),
        (("--channel", ""), "'' is no name of a channel"),
        (("--epochs", "-1"), "'-1' is not allowed"),
        (("--first-epoch", "one"), "'one' is not allowed"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_at_once(channels, tmp_path, arguments, text):
    (tmp_path / "lines").write_bytes(b"one\n")
    feeder = start(tmp_path / "lines", *(f"{name}={value}" for name, value in [arguments]), *places(channels))
    errors = feeder.communicate(timeout=DEADLINE_S)[1]
    assert feeder.returncode == 2
    assert text in errors
    assert list(channels.pipe_dir.iterdir()) == []


def test_a_configuration_that_is_not_json_is_named(channels, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\n")
    (channels.config_dir / "inputdataconfig.json").write_text("{torn")
    feeder = start(tmp_path / "lines", *places(channels))
    errors = feeder.communicate(timeout=DEADLINE_S)[1]
    assert feeder.returncode == 1
    assert errors.startswith("feed: ")
    assert "inputdataconfig.json is not JSON" in errors


def test_feeders_that_start_concurrently_all_register_their_channels(channels, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\n")
    names = [f"channel{number}" for number in range(8)]
    config = channels.config_dir / "inputdataconfig.json"
    held = os.open(channels.config_dir, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # until all of them are running
    feeders = [start(tmp_path / "lines", "--channel", name, *places(channels)) for name in names]
    deadline_s = time.monotonic() + DEADLINE_S
    for feeder in feeders:
        while channels.config_dir not in open_files(feeder.pid):
            assert feeder.poll() is None
            assert time.monotonic() < deadline_s, "the feeder does not wait for its turn"
    assert not set(names) & set(json.loads(config.read_text()))
    os.close(held)
    while not all(name in config.read_text() for name in names):
        assert all(feeder.poll() is None for feeder in feeders)
    for feeder in feeders:
        feeder.terminate()
        feeder.communicate(timeout=DEADLINE_S)


def test_the_feeder_needs_no_tensorflow():
    script = "import sys, sagemaker_tensorflow.feed; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def waits_until_configured(channels, feeder) -> None:
    while "fresh" not in (channels.config_dir / "inputdataconfig.json").read_text():
        assert feeder.poll() is None
