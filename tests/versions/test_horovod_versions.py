"""Scripts for Horovod, as they were written for each TensorFlow, run as jobs with two ranks.

Each script trains over two ranks and, in each of them, with plain TensorFlow or Keras on the batches of both, and
prints ``EQUAL`` if the weights are equal. Every test run includes 1.15, whose collectives are Python functions;
`make matrix-versions` runs all versions.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.frameworks import FRAMEWORKS

SCRIPTS = Path(__file__).parent / "horovod_scripts"
CALLS = Path(__file__).parents[2] / "packages/tidemill-horovod/tests/jobs"
RANKS = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
OLD = ("1.15", "2.4", "2.6", "2.12", "2.15")
WITH_EAGER = OLD[1:]
WITH_KERAS = ("1.15", "2.12", "2.15")
"""Versions with a package keras that has optimizers: that of 2.6 exports none, and 2.4 comes without."""
SLOWER = {
    "1.15": "are Python functions",
    "2.4": "are Python functions",
    "2.6": "occupies a thread",
    "2.12": "occupies a thread",
}
IN_CI = {("session_digits", "1.15"), ("keras_digits", "1.15")}
RUNS = [
    *(("keras_digits", each, ("sgd", "adam", "broadcast")) for each in OLD),
    *(("keras_digits keras", each, ("sgd", "adam", "broadcast")) for each in WITH_KERAS),
    *(("session_digits", each, ("gradient descent", "momentum", "adam")) for each in OLD),
    *(("estimator_digits", each, ("estimator 8",)) for each in OLD),
    *(("tape_digits", each, ("tape",)) for each in WITH_EAGER),
]


def run(jobs: Any, script: Path, version: str, argument: str = "", **files: str) -> list[str]:
    """Run a script with further files on two ranks, and return its log without the marks of the ranks."""
    uri = f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{version}-cpu-py3"
    job = jobs.run(
        script.read_text(),
        files=files,
        HyperParameters={**RANKS, **({"with": argument} if argument else {})},
        AlgorithmSpecification={"TrainingImage": uri, "TrainingInputMode": "File"},
    )
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    return [line.partition(">:")[2] or line for line in lines]


@pytest.mark.parametrize(
    ("script", "version", "equal"),
    [each if each[:2] in IN_CI else pytest.param(*each, marks=pytest.mark.matrix) for each in RUNS],
)
def test_two_ranks_train_as_one_process_on_the_whole_batch(jobs, build_environment, script, version, equal):
    build_environment(version)
    name, _, argument = script.partition(" ")
    lines = run(jobs, SCRIPTS / f"{name}.py", version, argument)
    assert {line.partition(" ")[2] for line in lines if line.startswith("EQUAL ")} >= set(equal), lines
    assert any(SLOWER.get(version, "EQUAL") in line for line in lines), lines


@pytest.mark.matrix
@pytest.mark.feature("mpi", "horovod")
@pytest.mark.parametrize("version", FRAMEWORKS)
def test_ranks_know_their_numbers_on_every_version(jobs, build_environment, version):
    build_environment(version)
    lines = run(jobs, SCRIPTS / "basic.py", version)
    found = sorted(json.loads(line.partition(" ")[2]) for line in lines if line.startswith("BASIC "))
    assert found == [[0, 2, 0, 2], [1, 2, 1, 2]]


@pytest.mark.matrix
@pytest.mark.feature("horovod")
@pytest.mark.parametrize("version", ["2.12", "2.15"])
def test_calls_and_arguments_have_their_effects_with_keras_2(jobs, build_environment, version):
    """The script has numbers, errors of mismatched ranks and effects of arguments as Horovod has them."""
    build_environment(version)
    files = {name: (CALLS / name).read_text() for name in ("mismatches.py", "values.py")}
    lines = run(jobs, CALLS / "features.py", version, **files)
    assert len({line for line in lines if line.startswith("shown ")}) >= 60, lines
