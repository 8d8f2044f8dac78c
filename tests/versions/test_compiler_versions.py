"""The training compiler in jobs on every TensorFlow version: compiled steps compute what TensorFlow alone computes.

Every test run includes one old version, `make matrix-versions` all of them.
"""

import json
import math
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.features import COMPILER_SINCE, versions_with
from tidemill.core.frameworks import FRAMEWORKS
from tidemill.sdk import Session, TensorFlow, TrainingCompilerConfig

SCRIPT = Path(__file__).with_name("compiled_training.py")
COMPILER_PACKAGE = Path(__file__).parents[2] / "packages/tidemill-tensorflow/src/tidemill_tensorflow/compiler"
ENABLED = "sagemaker_training_compiler_enabled"
COMPILER = {ENABLED: "true", "sagemaker_training_compiler_max_cost": '"inf"'}
FEW = "fit,loop"
COMPILED = versions_with("compiler")
NOTICE = "needs TensorFlow 2.12 or newer"


def image(version: str) -> dict[str, Any]:
    uri = f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{version}-cpu-py3"
    return {"AlgorithmSpecification": {"TrainingImage": uri, "TrainingInputMode": "File"}}


def found(lines: list[str]) -> dict[str, Any]:
    (line,) = [line for line in lines if line.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))


def alone(python: Path, forms: str) -> dict[str, Any]:
    """Train in a process without anything of tidemill's."""
    environment = {**os.environ, "PYTHONNOUSERSITE": "1"}
    environment.pop("TIDEMILL_TENSORFLOW", None)
    command = [python, SCRIPT, "--forms", forms]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return found(done.stdout.splitlines())


@pytest.mark.feature("compiler")
@pytest.mark.parametrize(
    ("requested", "version", "variant", "forms"),
    [
        ("2.15", "2.15", "xla", FEW),
        *(pytest.param(version, version, "xla", "", marks=pytest.mark.matrix) for version in COMPILED),
        *(pytest.param(version, version, "fused", FEW, marks=pytest.mark.matrix) for version in COMPILED),
        *(pytest.param(old, "2.12", "xla", FEW, marks=pytest.mark.matrix) for old in ("2.9", "2.10", "2.11")),
    ],
)
def test_compiled_jobs_train_as_tensorflow_alone_does(jobs, build_environment, requested, version, variant, forms):
    environment = build_environment(version)
    job = jobs.run(
        SCRIPT.read_text(), HyperParameters={**COMPILER, "variant": variant, "forms": forms}, **image(requested)
    )
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert "Found configuration for Training Compiler" in lines
    compiled, plain = found(lines), alone(environment.python, forms)
    assert compiled["tensorflow"] == plain["tensorflow"] == FRAMEWORKS[version].release
    for name, expected in plain["forms"].items():
        result = compiled["forms"][name]
        for part in ("losses", "weights"):
            assert result[part] == pytest.approx(expected[part], rel=1e-11), name
        assert result["steps"]["reasons"] == [None] * len(result["steps"]["reasons"]), name
        faster = [each.get(variant, 0) + each.get("at_once", 0) for each in result["steps"]["variants"]]
        assert faster and min(faster) > 0, (name, result["steps"])
        assert any("at_once" in each for each in result["steps"]["variants"]) == (name == "fit in groups"), result


@pytest.mark.matrix
def test_an_estimator_of_a_version_with_awss_compiler_runs_compiled_on_2_12(jobs, build_environment, tmp_path):
    build_environment("2.12")
    (tmp_path / "train.py").write_text(SCRIPT.read_text())
    estimator = TensorFlow(
        "train.py",
        source_dir=str(tmp_path),
        role="tidemill",
        instance_count=1,
        instance_type="local",
        framework_version="2.11",
        py_version="py3",
        compiler_config=TrainingCompilerConfig(max_cost=math.inf),
        hyperparameters={"variant": "xla", "forms": "fit"},
        sagemaker_session=Session(jobs.service.boto3_session()),
    )
    estimator.fit(wait=True, logs="None")
    name = estimator.latest_training_job.name
    job, lines = jobs.describe(name), jobs.log(name)
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    compiled = found(lines)
    assert compiled["tensorflow"] == FRAMEWORKS["2.12"].release
    (variants,) = compiled["forms"]["fit"]["steps"]["variants"]
    assert variants["xla"] >= 50, compiled


@pytest.mark.parametrize("version", ["1.15", *(pytest.param(old, marks=pytest.mark.matrix) for old in ("2.4", "2.6"))])
def test_jobs_on_a_version_before_the_compiler_run_without_it_and_say_so(jobs, build_environment, version):
    build_environment(version)
    job = jobs.run("import tensorflow as tf; print('RAN', tf.__version__)", HyperParameters=COMPILER, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert f"RAN {FRAMEWORKS[version].release}" in lines
    (notice,) = [line for line in lines if NOTICE in line]
    assert "the job runs without it" in notice


def test_the_compiler_and_the_service_name_the_same_oldest_version():
    module = runpy.run_path(str(COMPILER_PACKAGE / "__init__.py"))  # only jobs have the package
    assert module["MIN_TENSORFLOW"] == COMPILER_SINCE == FRAMEWORKS[COMPILED[0]].number
