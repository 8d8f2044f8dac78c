"""Keras files become SavedModels: of Keras 2 and 3, and the reasons why a file cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill_serving.engine import open_engine

# One process for all files, since importing both versions of Keras takes seconds.
PROGRAM = """
import contextlib, io, json, sys

import keras
import tf_keras

from tidemill_serving.keras_export import main

def save(package, name):
    layers = package.layers
    model = package.Sequential([layers.Input((2,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile("adam", "mse")
    model.save(name + ".keras")
    model.save(name + ".h5")

    class Mine(layers.Layer):
        def call(self, x):
            return 2 * x

    for layer, kind in ((Mine(), "mine"), (layers.Lambda(lambda x: 2 * x), "lambda")):
        package.Sequential([layers.Input((2,)), layer]).save(name + "." + kind + ".keras")
    return model

def export(file, directory, **modules):
    said = io.StringIO()
    kept = {name: sys.modules[name] for name in modules}
    sys.modules.update(modules)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main([file, directory])
    sys.modules.update(kept)
    lines = [line for line in said.getvalue().splitlines() if "Keras" in line or "file" in line]
    return [status, lines[-1:]]

save(tf_keras, "2")
save(keras, "3").save_weights("3.weights.h5")
open("damaged.keras", "wb").write(open("3.keras", "rb").read()[:-30])
results = {}
for name in ("2.keras", "2.h5", "3.keras", "3.h5"):
    results[name] = export(name, "saved-" + name.replace(".", "-"))
for name in ("2.mine.keras", "3.mine.keras", "3.lambda.keras", "3.weights.h5", "damaged.keras"):
    results[name] = export(name, "refused")
results["2.mine.keras by Keras 3"] = export("2.mine.keras", "refused", tf_keras=None)
results["3.keras by Keras 2"] = export("3.keras", "refused", keras=tf_keras)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keras")


@pytest.fixture(scope="module")
def results(directory: Path) -> dict[str, Any]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["2.keras", "2.h5", "3.keras", "3.h5"])
def test_a_file_of_either_keras_is_exported(results: dict[str, Any], directory: Path, name: str) -> None:
    assert results[name] == [0, []]
    model = open_engine().load(directory / f"saved-{name.replace('.', '-')}")
    signature = model.signatures["serving_default"]
    (answer,) = model.run(signature, [np.array([[1, 2]], np.float32)], pooled=False)
    assert answer.tolist() == [[3.0]]
    model.close()


def test_a_file_that_cannot_be_exported_is_refused_in_one_line_with_advice(results: dict[str, Any]) -> None:
    export = "export the model where it was made, by model.export(DIRECTORY)"
    for name, parts in {
        "2.mine.keras": ("Mine", f"code of your own is not in the file: {export}"),
        "3.mine.keras": ("Could not locate class 'Mine'", f"code of your own is not in the file: {export}"),
        "3.lambda.keras": ("Lambda", f"code of your own is not in the file: {export}"),
        "3.weights.h5": ("weights without a model", "model.save(FILE)"),
        "damaged.keras": ("the file is damaged",),
        "2.mine.keras by Keras 3": ("cannot export the model of Keras 2", "--framework-version 2.15"),
        "3.keras by Keras 2": ("cannot export the model of Keras 3", "--framework-version 2.21"),
    }.items():
        status, lines = results[name]
        assert status == 1, name
        for part in parts:
            assert part in lines[0], name
