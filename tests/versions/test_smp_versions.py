"""Model parallelism as jobs on old TensorFlow versions, whose `tf.keras` is Keras 2, and on those with Keras 3.

The reference is a process of the same TensorFlow in which no part of tidemill is importable.
"""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from tidemill.core.frameworks import FRAMEWORKS

SCRIPTS = Path(__file__).with_name("scripts")
SMP_TESTS = Path(__file__).parents[2] / "packages/tidemill-smp/tests"
BUCKET = "sagemaker-us-west-2-000000000000"
PIPELINE = {"partitions": 2, "microbatches": 2}
HYBRID = {**PIPELINE, "ddp": True}
"""Two partitions of two replicas each."""
KERAS_3 = [version for version in FRAMEWORKS if FRAMEWORKS[version].number >= (2, 16)]
PYTEST = (
    *("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"),
    *("hypothesis", "_hypothesis_globals", "_hypothesis_ftz_detector", "sortedcontainers"),
)
"""Modules that the tests need and environments of jobs lack; they have the Python of this process."""
OF_OTHER_KERAS = ("every_rank_lists", "cannot_be_saved", "models_of_tf_keras_are_saved")
"""Parts of the names of tests that expect Keras 3 or the package tf_keras."""
WITHOUT_BFLOAT16 = "mixed"
"""The same; TensorFlow 2.12 normalizes layers only in float32 on CPUs."""
MATRIX = [
    ("2.12.1", "2.12", HYBRID, "legacy"),
    ("2.15.1", "2.15", PIPELINE, "legacy"),
    ("2.15.1", "2.15", HYBRID, ""),
    *((FRAMEWORKS[version].release, version, PIPELINE, "") for version in KERAS_3),
]


@pytest.mark.feature("model parallelism")
@pytest.mark.parametrize(
    ("requested", "version", "parameters", "optimizers"),
    [
        ("2.3.1", "2.12", PIPELINE, ""),  # the version for which the documents were written
        *(pytest.param(*case, marks=pytest.mark.matrix) for case in MATRIX),
    ],
)
def test_a_script_of_the_documents_equals_the_unpartitioned_model(
    jobs, build_environment, tmp_path, requested, version, parameters, optimizers
):
    environment = build_environment(version)
    site = next(environment.base.glob("lib/python3*/site-packages"))
    plainly = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "TF_CPP_MIN_LOG_LEVEL": "2"}

    def run_plainly(what: str) -> str:
        command = [environment.interpreter.executable, SCRIPTS / "plain_mnist.py", what, tmp_path, optimizers]
        done = subprocess.run(command, env=plainly, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run_plainly("train")
    for file in tmp_path.iterdir():
        jobs.s3.upload_file(str(file), BUCKET, f"plain-{requested}-{optimizers}/{file.name}")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/plain-{requested}-{optimizers}/"}
    ranks = 4 if "ddp" in parameters else 2
    job = jobs.run(
        (SCRIPTS / "smp_mnist.py").read_text(),
        HyperParameters={
            "mp_parameters": json.dumps(parameters),
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": str(ranks),
        },
        InputDataConfig=[{"ChannelName": "plain", "DataSource": {"S3DataSource": source}}],
        AlgorithmSpecification={
            "TrainingImage": f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{requested}-cpu-py3",
            "TrainingInputMode": "File",
        },
    )
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert any(f"environment=tf-{version} ({environment.key})" in line for line in lines)
    notice = f"not in the environment of TensorFlow 2.4; running on {FRAMEWORKS[version].release} instead"
    assert any(notice in line for line in lines) == (requested == "2.3.1")
    for name, content in jobs.model_files(job).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = json.loads(run_plainly("check").splitlines()[-1])
    assert found["names"] == []
    assert {name: gap for name, gap in found["gaps"].items() if gap > 1e-5} == {}
    assert len(found["gaps"]) == 4


@pytest.mark.matrix
@pytest.mark.feature("model parallelism")
@pytest.mark.parametrize(
    ("version", "without"), [("2.12", (*OF_OTHER_KERAS, WITHOUT_BFLOAT16)), ("2.15", OF_OTHER_KERAS)]
)
def test_the_librarys_tests_of_tf_keras_pass_with_native_keras_2(build_environment, tmp_path, version, without):
    environment = build_environment(version)
    for name in PYTEST:
        spec = importlib.util.find_spec(name)
        module = Path(spec.submodule_search_locations[0] if spec.submodule_search_locations else spec.origin)
        (tmp_path / module.name).symlink_to(module)
    parts = ("saving", "tf_keras", "checkpoints_tf_keras", "tf_keras_optimizers")
    files = (SMP_TESTS / f"test_{part}.py" for part in parts)
    chosen = " and ".join(f"not {name}" for name in without)
    options = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=", f"--confcutdir={SMP_TESTS}", "-k", chosen)
    done = subprocess.run(
        [environment.python, "-m", "pytest", *options, *files],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout[-5000:]
