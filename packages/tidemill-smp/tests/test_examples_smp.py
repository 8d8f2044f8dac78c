"""The examples of model parallelism run as their users run them, on two ranks and on one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.smp_long

EXAMPLES = Path(__file__).parents[3] / "examples" / "03_model_parallel"
LAUNCH = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2"]
ALONE = [sys.executable]
TWO, ONE = (LAUNCH, "2"), (ALONE, "1")
ENVIRONMENT = {
    **os.environ,
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Where the Makefile installs it, so that other tests do not import it together with Keras.
    "PYTHONPATH": str(Path(sys.prefix) / "scikit-learn"),
}
DEADLINE_S = 300


def run(directory: Path, script: str, *words: str, by: list[str] = ALONE) -> str:
    """Run a script in `directory`, and return its output."""
    done = subprocess.run(
        [*by, EXAMPLES / script, *words],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def losses_of(printed: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss=(\d+\.\d+)", printed)]


def test_a_manually_partitioned_model_learns_digits_as_the_unpartitioned_one(tmp_path: Path) -> None:
    found = []
    for by, partitions in (TWO, ONE):
        printed = run(tmp_path, "digits.py", "--partitions", partitions, "--epochs", "4", by=by)
        losses = losses_of(printed)
        assert len(losses) == 4
        assert losses[3] < losses[0] / 3
        assert float(re.findall(r"accuracy on 320 test images: (0\.\d+)", printed)[0]) > 0.85
        assert "the saved model reads [0, 1, 2, 3, 4] where [0, 1, 2, 3, 4] is written" in printed
        assert (tmp_path / "model" / "digits" / "saved_model.pb").exists()
        found.append(losses)
    assert found[0] == pytest.approx(found[1], rel=1e-2)


def test_a_job_passes_the_parameters_in_a_variable_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = '{"auto_partition": false, "default_partition": 0, "microbatches": 2, "partitions": 2}'
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", parameters)
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path / "opt"))
    mp_parameters = "auto_partition=False,default_partition=0,microbatches=2,partitions=2"
    printed = run(tmp_path, "digits.py", "--epochs", "2", "--mp_parameters", mp_parameters, by=LAUNCH)
    losses = losses_of(printed)
    assert losses[1] < losses[0]
    assert (tmp_path / "opt" / "saved_model.pb").exists()


def test_an_automatically_partitioned_transformer_learns(tmp_path: Path) -> None:
    small = ("--steps", "30", "--blocks", "2", "--width", "32", "--length", "32")
    printed = run(tmp_path, "transformer.py", *small, "--timeline", "trace.json", by=LAUNCH)
    assert printed.count("2 partitions, 4 microbatches, optimize=speed, pipeline=interleaved") == 1
    losses = losses_of(printed)
    assert len(losses) == 3
    assert losses[2] < 0.9 * losses[0]
    assert "the saved model goes on: 'The value of " in printed
    assert (tmp_path / "trace.json").exists()


def test_one_process_plans_the_partitions_of_a_transformer(tmp_path: Path) -> None:
    printed = run(tmp_path, "transformer.py", "--plan", "4", "--blocks", "4")
    rows = re.findall(r"^ +(\d) +\d+ ", printed, re.MULTILINE)
    assert rows == ["0", "1", "2", "3"], printed
    assert "loss=" not in printed


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the model of pretrain.py, in which later scripts also write."""
    directory = tmp_path_factory.mktemp("pretrained")
    run(directory, "pretrain.py", "--epochs", "4")
    return directory


@pytest.mark.parametrize("cut", ["by the library", "by rules"])
def test_a_wrapped_pretrained_model_continues_to_learn(pretrained: Path, tmp_path: Path, cut: str) -> None:
    shutil.copytree(pretrained, tmp_path, dirs_exist_ok=True)
    rules = ["--by-hand"] if cut == "by rules" else []
    printed = run(tmp_path, "fine_tune.py", *rules, by=LAUNCH)
    losses = losses_of(printed)
    assert len(losses) == 4
    assert losses[3] < losses[0] / 3
    # Four epochs are too few for ten digits, unless the weights were trained on five of them.
    assert float(re.findall(r"accuracy on 320 test images: (0\.\d+)", printed)[0]) > 0.85
    assert re.search(r"the saved model reads \[0, 1, \d, 3, 4\]", printed)
    assert {"saved_model.pb", "digits.keras"} <= {path.name for path in (tmp_path / "model" / "fine_tuned").iterdir()}


def test_each_example_names_what_it_needs_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ALONE, EXAMPLES / "fine_tune.py", "--partitions", "1"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no model/pretrained.keras: run pretrain.py first" in done.stderr


@pytest.mark.parametrize("script", ["digits.py", "transformer.py", "pretrain.py", "fine_tune.py"])
def test_each_example_has_help(tmp_path: Path, script: str) -> None:
    printed = run(tmp_path, script, "--help")
    assert printed.startswith(f"usage: {script}") or f"\nusage: {script}" in printed
    assert list(tmp_path.iterdir()) == []
