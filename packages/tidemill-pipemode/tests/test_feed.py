"""The feeder for laptops, as a process of its own."""

import gzip
import json
import subprocess
import sys

import pytest
import tensorflow as tf

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
    outcome = json.loads((channels.pipe_dir / ".tidemill" / "fresh_1.json").read_text())
    assert outcome == {"version": 1, "state": "ok", "bytes": 14, "objects": 2, "error": ""}


def test_packed_files_are_unpacked_on_the_way(channels, reader, read, tmp_path):
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    feeder = start(tmp_path / "lines.gz", "--gzip", "--epochs", 1, *places(channels))
    assert read(channels.dataset()) == ([b"one", b"two"], "")
    feeder.communicate(timeout=DEADLINE_S)
    assert feeder.returncode == 0


def test_a_truncated_packed_file_is_an_error_on_both_sides(channels, reader, read, tmp_path):
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


def test_a_reader_that_stops_early_is_no_error(channels, reader, tmp_path):
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


def test_the_feeder_needs_no_tensorflow():
    script = "import sys, sagemaker_tensorflow.feed; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def waits_until_configured(channels, feeder) -> None:
    while "fresh" not in (channels.config_dir / "inputdataconfig.json").read_text():
        assert feeder.poll() is None
