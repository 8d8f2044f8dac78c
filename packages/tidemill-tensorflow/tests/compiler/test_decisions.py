"""Decisions that later runs reuse."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import forked_scripts
from tidemill_tensorflow.compiler.several.job import has_several_processes
from tidemill_tensorflow.compiler.variants.decisions import DecisionStore

SCRIPT = """
import sys
import tidemill_tensorflow
tidemill_tensorflow.compile_training(report_dir=sys.argv[1], cache_dir=sys.argv[2], deterministic=True)
import tensorflow as tf
weight = tf.Variable(tf.ones([4]))

@tf.function
def step_of_four(value):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * value)
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss

for _ in range(10):
    step_of_four(tf.ones([4]))
"""

TRAINING = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tidemill_tensorflow
tidemill_tensorflow.compile_training(report_dir=sys.argv[1], cache_dir=sys.argv[2])
import tensorflow as tf
from tidemill_tensorflow import compiler
weight = tf.Variable(tf.ones([4]))

@tf.function
def step_of_four(value):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weight * value))
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss

for _ in range(120):  # more than the trial of two variants takes at most
    step_of_four(tf.ones([4]))
    compiler._sessions[0].wait_for_background()
"""

FULL_DISK = """
import os, sys
from pathlib import Path
from tidemill_tensorflow.compiler.variants.decisions import DecisionStore
directory = Path(sys.argv[2])
store = DecisionStore(directory)
store.write("kept", "xla")
filling = open(directory / "filling", "wb", buffering=0)
try:
    while filling.write(bytes(4096)):
        pass
except OSError:
    pass
before = sorted(directory.iterdir())
store.write("kept", "plain")
store.write("new", "xla")
assert (store.read("kept"), store.read("new")) == ("xla", None)
assert sorted(directory.iterdir()) == before, "something half-written stays"
exec(sys.stdin.readline().strip())
assert sorted(directory.glob("*.json")) == [path for path in before if path.suffix == ".json"]
os.truncate(directory / "filling", 0)
store.write("new", "xla")
assert (store.read("kept"), store.read("new")) == ("xla", "xla")
print("survived")
"""


def test_a_decision_is_read_by_the_next_run(tmp_path: Path) -> None:
    DecisionStore(tmp_path).write("step", "xla")
    assert DecisionStore(tmp_path).read("step") == "xla"
    assert DecisionStore(tmp_path).read("another step") is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"variant": "xla"}', b"\xff\xfe", b'{"key": 1, "variant": {}}', b"[" * 60_000]
)
def test_a_damaged_decision_is_none(tmp_path: Path, content: bytes) -> None:
    store = DecisionStore(tmp_path)
    store.write("step", "xla")
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert store.read("step") is None
    store.write("step", "plain")
    assert store.read("step") == "plain"


def test_what_is_no_file_neither_hangs_nor_leads_elsewhere(tmp_path: Path) -> None:
    store = DecisionStore(tmp_path / "store")
    store.write("step", "xla")
    (file,) = (tmp_path / "store").iterdir()
    moved = file.rename(tmp_path / "moved")
    file.symlink_to(moved)
    assert store.read("step") is None
    file.unlink()
    os.mkfifo(file)
    assert store.read("step") is None
    store.write("step", "plain")
    assert store.read("step") == "plain"


@pytest.mark.parametrize(
    ("variables", "several"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"SMP_SIZE": "2"}, True),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, False),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, True),
        ({"TF_CONFIG": "{"}, False),
    ],
)
def test_a_job_of_several_processes_is_known(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], several: bool
) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SMP_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_several_processes() is several


def test_the_oldest_decisions_give_room(tmp_path: Path) -> None:
    store = DecisionStore(tmp_path, max_files=3)
    for number in range(5):
        store.write(f"step {number}", "xla")
        for file in tmp_path.iterdir():
            os.utime(file, (number, number)) if file.stat().st_mtime > 1000 else None
    assert [store.read(f"step {number}") for number in range(5)] == [None, None, "xla", "xla", "xla"]


def test_a_directory_that_cannot_be_written_costs_no_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = DecisionStore(tmp_path / "file" / "below")
    store.write("step", "xla")
    assert store.read("step") is None


def test_runs_in_parallel_read_whole_decisions(tmp_path: Path) -> None:
    def work(number: int) -> str | None:
        store = DecisionStore(tmp_path)
        store.write("step", ("plain", "xla")[number % 2])
        return store.read("step")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(200))) <= {"plain", "xla"}


def test_two_trainings_share_a_store_at_the_same_time(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    forked_scripts.wait_for_all([forked_scripts.start(TRAINING, tmp_path / name, cache) for name in ("one", "two")])
    decided = {_shape(tmp_path / name)["decision"] for name in ("one", "two")}
    stored = [json.loads(path.read_text()) for path in cache.iterdir()]
    assert len(stored) == 2 and sum("function" in each["key"] for each in stored) == 1
    forked_scripts.start(TRAINING, tmp_path / "later", cache).wait()
    shape = _shape(tmp_path / "later")
    assert (shape["from_earlier_job"], shape["rounds"]) == (True, 0)
    assert shape["decision"] in decided & {each["variant"] for each in stored}
    if shape["decision"] == "plain":
        assert shape["notes"] == ["an earlier job chose plain, so the function was not split"]
    else:
        assert shape["steps_by_variant"] == {shape["decision"]: 120}, "the first step, too"


def test_a_full_disk_costs_decisions_and_no_training(tmp_path: Path, need: Callable[[str], None]) -> None:
    need("unshare")
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-ec", 'mount -t tmpfs -o size=1m tmpfs "$0"; exec "$@"']
    disk = tmp_path / "disk"
    disk.mkdir()
    training = "sys.argv[1] += '/report'; exec(" + repr(TRAINING) + ")\n"
    done = subprocess.run(
        [*mount, disk, sys.executable, "-c", FULL_DISK, disk, disk],
        input=training,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr
    assert "the report cannot be written" in done.stderr
    assert "step_of_four (120 steps): " in done.stderr


def test_a_deterministic_run_uses_a_stored_decision_and_else_runs_plain(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _run(tmp_path / "first", cache)
    assert (first["shapes"], first["compiling_s"]) == ([], 0), "nothing is split without a reason"
    assert "no decision is stored" in first["fallback"]
    DecisionStore(cache).write(first["key"], "by shape")
    (shape,) = _run(tmp_path / "second", cache)["shapes"]
    assert "no decision is stored" in shape["fallback"]
    assert shape["steps_by_variant"] == {"plain": 2}, "later steps run as without the compiler"
    DecisionStore(cache).write(shape["key"], "xla")
    (shape,) = _run(tmp_path / "third", cache)["shapes"]
    assert (shape["from_earlier_job"], shape["steps_by_variant"]) == (True, {"xla": 10}), "at once"


def _run(report: Path, cache: Path) -> dict[str, object]:
    forked_scripts.start(SCRIPT, report, cache).wait()
    (function,) = json.loads((report / "report.json").read_text())["functions"]
    return function


def _shape(report: Path) -> dict[str, object]:
    (function,) = json.loads((report / "report.json").read_text())["functions"]
    (shape,) = function["shapes"]
    return shape
