"""Machine settings: each job tries one, and later jobs use the fastest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill_tensorflow.compiler import step_times
from tidemill_tensorflow.compiler.machine_settings import DEFAULTS, MAX_STARTS, Record, choose
from tidemill_tensorflow.compiler.step_times import MIN_INTERVALS, StepTimes
from tidemill_tensorflow.compiler.variants import trials as load

NAMES = [DEFAULTS, "one", "two"]

START = """
import json, os, sys
from pathlib import Path
from tidemill_tensorflow.compiler import machine_settings

machine_settings.start(Path(sys.argv[1]))
current = machine_settings.current()
if current is not None and len(sys.argv) > 2:
    current.finish("step", json.loads(sys.argv[2])[current.name])
names = ("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS")
print(json.dumps([current and current.name, *map(os.environ.get, names)]))
"""

TRAINING = """
import os, sys
import tidemill_tensorflow
tidemill_tensorflow.activate()
import tensorflow as tf
from tidemill_tensorflow import compiler
from tidemill_tensorflow.compiler.variants import trials as load

load.BUSY_SHARE = 2.0  # other tests may use the CPUs
weight = tf.Variable(tf.ones([4]))

@tf.function
def step_of_four(value):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weight * value))
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss

for _ in range(120):
    step_of_four(tf.ones([4]))
    compiler._sessions[0].wait_for_background()
"""


def test_each_job_tries_one_setting_and_later_jobs_use_the_fastest() -> None:
    record = Record()
    chosen = []
    for _ in range(6):
        name = choose(record, NAMES)
        chosen.append(name)
        record.times_s.setdefault(name, []).append({DEFAULTS: 1.0, "one": 0.96, "two": 0.8}[name])
    assert chosen == [DEFAULTS, "one", "two", "two", "two", "two"]
    record.times_s["two"] = [0.8, 0.99, 0.99]
    assert choose(record, NAMES) == DEFAULTS, "new times did not confirm the gain, and 4 % are too little for the other"
    assert choose(record, [DEFAULTS, "one"]) == DEFAULTS


def test_a_setting_whose_jobs_end_without_a_time_is_not_tried_for_ever() -> None:
    record = Record(times_s={DEFAULTS: [1.0]}, starts={"one": MAX_STARTS})
    assert choose(record, NAMES) == "two"
    assert choose(Record(starts={DEFAULTS: 9}), NAMES) == DEFAULTS, "without its time no other setting can be compared"


def test_records_of_jobs_survive_and_damaged_ones_start_again(tmp_path: Path) -> None:
    times_s = {DEFAULTS: 1.0, "without oneDNN": 0.5, "half of the threads": 2.0, "kept memory": 1.0}
    tried = [start(tmp_path, times_s)[0] for _ in times_s]
    assert tried == [name for name in times_s if name in tried], "each setting once, in this order"
    assert tried[:2] == [DEFAULTS, "without oneDNN"]
    assert start(tmp_path, times_s) == ["without oneDNN", "0", None]
    assert start(tmp_path, times_s, SM_HPS='{"model_dir": "s3://bucket/job-2"}')[0] == "without oneDNN"
    assert start(tmp_path, times_s, SM_HPS='{"batch_size": 64}')[0] == DEFAULTS, "other hyperparameters, other times"
    for content in (b"", b"{}", b'{"function": 1, "times_s": {"defaults": [-1]}, "starts": {}}', b"[[[[", b"\xff"):
        for path in tmp_path.iterdir():
            path.write_bytes(content)
        assert start(tmp_path)[0] == DEFAULTS


@pytest.mark.parametrize(
    "variables",
    [{"OMPI_COMM_WORLD_SIZE": "2"}, {"TF_DETERMINISTIC_OPS": "1"}],
)
def test_ranks_and_deterministic_jobs_keep_the_defaults(tmp_path: Path, variables: dict[str, str]) -> None:
    assert start(tmp_path, **variables) == [None, None, None]
    assert not list(tmp_path.iterdir())


def test_variables_of_the_script_are_not_changed(tmp_path: Path) -> None:
    times_s = {DEFAULTS: 1.0, "half of the threads": 2.0, "kept memory": 1.0}
    tried = [start(tmp_path, times_s, TF_ENABLE_ONEDNN_OPTS="1") for _ in range(4)]
    assert "without oneDNN" not in [name for name, _, _ in tried]
    assert [onednn for _, onednn, _ in tried] == ["1"] * 4


def test_without_a_writable_directory_nothing_is_tried(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert start(tmp_path / "file" / "below") == [None, None, None]


def test_only_steady_steps_of_an_idle_machine_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(float(second) for second in range(1000))
    monkeypatch.setattr(step_times.time, "perf_counter", lambda: next(now))
    times = StepTimes()
    monkeypatch.setattr(load, "BUSY_SHARE", 2.0)
    for number in range(2 * MIN_INTERVALS):
        times.begin(1, is_steady=number >= MIN_INTERVALS)
    assert times.median_s() is None, "one interval is missing"
    times.begin(8, is_steady=True)
    assert times.median_s() == 1.0
    for _ in range(2 * MIN_INTERVALS):
        times.begin(8, is_steady=True)
    assert times.median_s() == 0.125
    monkeypatch.setattr(load, "BUSY_SHARE", -1.0)
    assert times.median_s() is None


def test_a_job_with_a_setting_decides_anew_and_keeps_its_step_time(tmp_path: Path) -> None:
    variables = {"TIDEMILL_COMPILER": "1", "TIDEMILL_COMPILER_CACHE": str(tmp_path / "cache")}
    variables["TIDEMILL_COMPILER_MACHINE_SETTINGS"] = "1"
    logs = []
    for report in ("first", "second"):
        ended = run(TRAINING, **variables, TIDEMILL_COMPILER_REPORT=str(tmp_path / report), TF_CPP_MIN_LOG_LEVEL="0")
        logs.append(ended.stderr)
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("first", "second")]
    assert [report["machine_setting"]["name"] for report in reports] == [DEFAULTS, "without oneDNN"]
    assert list(reports[1]["machine_setting"]["earlier_step_ms"]) == [DEFAULTS]
    assert "machine setting of this job: without oneDNN (steps of earlier jobs: defaults " in logs[1]
    assert "oneDNN custom operations are on" in logs[0]
    assert "oneDNN custom operations are on" not in logs[1]
    shapes = [report["functions"][0]["shapes"][0] for report in reports]
    assert shapes[0]["key"] == shapes[1]["key"]
    assert shapes[1]["from_earlier_job"] is False, "another setting can make another variant the fastest"
    (record,) = (tmp_path / "cache").glob("settings-*.json")
    assert list(json.loads(record.read_text())["times_s"]) == [DEFAULTS, "without oneDNN"]


def start(directory: Path, times_s: dict[str, float] | None = None, **variables: str) -> list[str | None]:
    """Start a process with machine settings; return the name of its setting and its variables."""
    ended = run(START, str(directory), *([json.dumps(times_s)] if times_s else []), **variables)
    found: list[str | None] = json.loads(ended.stdout)
    return found


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
