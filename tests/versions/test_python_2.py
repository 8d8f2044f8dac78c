"""Scripts for Python 2.7, on TensorFlow 1.15, as they were written for SageMaker's images with ``py2``."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from versions_jobs import image, logged

from tidemill.core.frameworks import PYTHON_2_RELEASE
from tidemill.environments.interpreters import available

pytestmark = pytest.mark.skipif(not available(["2.7"]), reason="Python 2.7 is not on this machine: pyenv install 2.7")

DIGITS = """
    # -*- coding: utf-8 -*-
    import argparse, json, os, subprocess, sys
    import numpy as np
    import tensorflow as tf
    from keras.layers import Dense
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--name", type=lambda text: text.decode("utf-8"))
    parser.add_argument("--model_dir", type=str)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
                                 tf.keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images[:1500], labels[:1500], epochs=args.epochs, verbose=0)
    tf.keras.experimental.export_saved_model(model, os.path.join(os.environ["SM_MODEL_DIR"], "1"))
    try:
        from sagemaker_tensorflow import PipeModeDataset
    except ImportError as error:
        refused = str(error)
    import added  # of requirements.txt
    print "FOUND " + json.dumps({
        "python": list(sys.version_info[:2]), "tensorflow": tf.__version__, "refused": refused, "name": args.name,
        "hps": json.loads(os.environ["SM_HPS"])["epochs"], "added": added.NUMBER,
        "accuracy": float(model.evaluate(images[1500:], labels[1500:], verbose=0)[1]),
        "child": subprocess.check_output(["python", "-c", "import sys; print sys.version_info[0]"]).strip(),
        "runtime": subprocess.check_output(["python3", "-c", "print(3)"]).strip(),
    })
"""
ADDED = {
    "requirements.txt": "./added",
    "added/setup.py": "from setuptools import setup\nsetup(name='added', version='1', py_modules=['added'])\n",
    "added/added.py": "NUMBER = 3 / 2  # 1 in Python 2\n",
}


@pytest.mark.matrix
def test_a_script_for_python_2_learns_digits(jobs: Any, build_environment: Any) -> None:
    build_environment("1.15", python="2.7")
    parameters = {"epochs": "10", "name": json.dumps("Zürich")}
    job = jobs.run(DIGITS, files=ADDED, HyperParameters=parameters, **image("1.12.0", "py2"))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert any("Python 2.7." in line and "environment=tf-1.15" in line for line in lines)
    found = json.loads(logged(lines, "FOUND "))
    assert found.pop("accuracy") > 0.85
    assert "use input_mode='File', or port the script" in found.pop("refused")
    assert found == {
        "python": [2, 7],
        "tensorflow": PYTHON_2_RELEASE,
        "name": "Zürich",
        "hps": 10,
        "added": 1,
        "child": "2",
        "runtime": "3",
    }
    assert "1/saved_model.pb" in jobs.model_files(job)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise ValueError('no such digit')", 'ExitCode 1\nErrorMessage "ValueError: no such digit'),
        ("import sys; sys.exit(3)", "ExitCode 3"),
        ("import os; os.kill(os.getpid(), 9)", "ExitCode -9"),
    ],
)
def test_a_failure_on_python_2_has_its_reason(jobs: Any, build_environment: Any, script: str, reason: str) -> None:
    build_environment("1.15", python="2.7")
    job = jobs.run(script, **image("1.15.0", "py27"))
    assert job["TrainingJobStatus"] == "Failed"
    assert reason in job["FailureReason"]


def test_mpi_on_python_2_is_refused(jobs: Any) -> None:
    with pytest.raises(ClientError, match=r"there is no MPI for Python 2\.7; port the script"):
        jobs.create("", HyperParameters={"sagemaker_mpi_enabled": "true"}, **image("1.15.0", "py2"))
