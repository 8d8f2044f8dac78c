"""Saved models: one file or directory of the whole model, usable without the library."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
import ranks
import saving
from checkpoints import CONFIG

pytestmark = pytest.mark.smp_saved

TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
LOAD_PLAINLY = Path(__file__).parent / "scripts" / "load_plainly.py"
CASES = [
    *((kind, 2) for kind in saving.KINDS),
    ("language", 1),
    ("functional", 1),
    ("chain", 3),
    ("sequential", 3),
]
"""(model, number of partitions)."""
TWO_INPUTS = ["inputs", "inputs_1"]
"""Names in a signature for the two tensors of the argument `inputs` of a Functional model."""


def run(size: int, function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return ranks.run(size, function, *args, config=CONFIG, **kwargs)


def read_plainly(
    directory: Path, jobs: Mapping[str, dict[str, Any]], environment: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Call saved models in a process without the library; return outputs by `<job>:<name>`."""
    work = {"models": jobs, "answers": str(directory / "answers.npz")}
    variables = {**os.environ, "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "-1", **(environment or {})}
    arguments = [sys.executable, str(LOAD_PLAINLY)]
    done = subprocess.run(
        arguments, input=json.dumps(work), env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(directory / "answers.npz"))


def job(directory: Path, kind: str, how: str, path: Path) -> dict[str, Any]:
    files = []
    for number, part in enumerate(saving.inputs(kind, saving.ROWS, 99)):
        files.append(str(directory / f"{kind}.{number}.npy"))
        np.save(files[-1], part)
    return {"kind": how, "path": str(path), "inputs": files, "names": TWO_INPUTS}


class Written:
    """Results of jobs of 1 to 3 ranks that saved, and of plain processes that load the models."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        jobs = {}
        self.expected: dict[str, list[np.ndarray]] = {}
        self.from_weights: dict[str, list[np.ndarray]] = {}
        for kind, size in CASES:
            name, path = f"{kind}-{size}", directory / f"{kind}-{size}"
            weights = checkpoints.merged(run(size, saving.written, kind, str(path)))
            [answers] = run(1, saving.answers, kind, weights, str(path))
            self.expected[name], self.from_weights[name] = answers["expected"], answers["loaded"]
            jobs[f"{name}:saved"] = job(directory, kind, "saved", path / "saved")
            if kind in saving.WRAPPED:
                jobs[f"{name}:keras"] = job(directory, kind, "keras", path / "model.keras")
                jobs[f"{name}:again"] = job(directory, kind, "keras", path / "again.keras")
        self.answers = read_plainly(directory, jobs)

    def outputs(self, name: str) -> dict[str, np.ndarray]:
        """Results of one model in one format."""
        return {
            key.removeprefix(f"{name}:"): value for key, value in self.answers.items() if key.startswith(f"{name}:")
        }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("written"))


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    # A graph that is optimized as a whole sums in another order than separate layers.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_a_saved_model_answers_without_the_library_like_the_unpartitioned_model(
    written: Written, kind: str, size: int
) -> None:
    name = f"{kind}-{size}"
    expected, outputs = written.expected[name], written.outputs(f"{name}:saved")
    assert sorted(outputs) == [f"output_{number}" for number in range(len(expected))]
    for number, value in enumerate(expected):
        assert value.shape[0] == saving.ROWS
        assert_close(outputs[f"output_{number}"], value)


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_saved_weights_load_into_the_unpartitioned_model(written: Written, kind: str, size: int) -> None:
    for actual, value in zip(written.from_weights[f"{kind}-{size}"], written.expected[f"{kind}-{size}"], strict=True):
        np.testing.assert_array_equal(actual, value)


@pytest.mark.parametrize("how", ["keras", "again"])
@pytest.mark.parametrize(("kind", "size"), [case for case in CASES if case[0] in saving.WRAPPED])
def test_a_keras_file_of_a_wrapped_model_loads_without_the_library(
    written: Written, kind: str, size: int, how: str
) -> None:
    outputs = written.outputs(f"{kind}-{size}:{how}")
    assert_close(outputs["output_0"], written.expected[f"{kind}-{size}"][0])


def test_scripts_load_a_saved_model_by_keras_at_their_end(written: Written) -> None:
    [outputs] = run(1, saving.loaded_in_a_job, str(written.directory / "twins-2" / "saved"))
    for actual, value in zip(outputs, written.expected["twins-2"], strict=True):
        assert_close(actual, value)


def test_a_model_that_cannot_be_saved_is_refused_with_advice(tmp_path: Path) -> None:
    for early, no_config, ending, weights in run(2, saving.not_described, str(tmp_path / "none")):
        assert "run one step before" in early
        assert "get_config" in no_config and "save_model" in no_config
        assert ".keras" in ending and "model.h5" in ending
        assert ".weights.h5" in weights and "model.h5" in weights


def test_a_write_that_fails_is_raised_on_all_ranks(tmp_path: Path) -> None:
    for messages in run(3, saving.failing, str(tmp_path)):
        assert len(messages) == 4
        for text in messages:
            assert "rank 0" in text and "file0" in text
    assert (tmp_path / "saved" / "saved_model.pb").is_file()


@pytest.mark.smp_first
def test_a_failed_save_keeps_the_previous_model_and_other_files(tmp_path: Path) -> None:
    for message, names in run(2, saving.interrupted, str(tmp_path / "model")):
        assert "rank 0" in message and "No space left" in message
        assert {"code.py", "saved_model.pb", "variables"} <= set(names)
        assert not [name for name in names if name.startswith(".")]


def test_every_rank_lists_all_variables_and_its_own() -> None:
    results = run(2, saving.listed)
    specs, _, paths = results[0]
    assert [spec.name for spec in specs] == paths == results[1][2]
    assert results[1][0] == specs
    assert [spec.partition for spec in specs] == [0] * 4 + [1] * 6
    assert specs[0].shape == (6, 8) and specs[0].dtype == "float32" and specs[0].trainable
    for rank, (_, here, _) in enumerate(results):
        assert here == [spec.name for spec in specs if spec.partition == rank]


def test_models_of_tf_keras_are_saved_and_loaded(tmp_path: Path) -> None:
    jobs, expected = {}, {}
    for kind in ("twins", "functional"):
        path = tmp_path / kind
        weights = checkpoints.merged(run(2, saving.written, kind, str(path), environment=TF_KERAS))
        [answers] = run(1, saving.answers, kind, weights, str(path), environment=TF_KERAS)
        expected[kind] = answers["expected"]
        np.testing.assert_array_equal(answers["loaded"][0], answers["expected"][0])
        jobs[f"{kind}:saved"] = job(tmp_path, kind, "saved by keras", path / "saved")
    jobs["functional:keras"] = job(tmp_path, "functional", "keras", tmp_path / "functional" / "model.keras")
    answers = read_plainly(tmp_path, jobs, TF_KERAS)
    for kind, values in expected.items():
        for number, value in enumerate(values):
            assert_close(answers[f"{kind}:saved:output_{number}"], value)
    assert_close(answers["functional:keras:output_0"], expected["functional"][0])
