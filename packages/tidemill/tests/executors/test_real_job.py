"""One job with nothing faked: the real environment, the real runtime, TensorFlow."""

import io
import tarfile
from pathlib import Path

import pytest

from tidemill.environments.builder import Environments
from tidemill.instance.status import InstanceOutcome
from tidemill.settings import Settings

SCRIPT = """
import argparse, os
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int)
parser.add_argument("--model_dir")
arguments = parser.parse_args()
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(arguments.units)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 3), "float32"), np.ones((8, 2), "float32"), verbose=0)
model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
print("channel", open(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "x.txt")).read())
"""


@pytest.fixture(scope="module")
def real_environments() -> Path:
    """Return the environments of this user; build the missing one."""
    directory = Settings().environments_dir
    Environments(directory).ensure("tf-2.21", log=print)
    return directory


def code(stage, **files: str):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return stage.stored(buffer.getvalue(), name="sourcedir.tar.gz", uri="s3://bucket/sourcedir.tar.gz")


@pytest.mark.tensorflow
def test_a_tensorflow_script_trains_in_the_real_environment(make_stage, real_environments):
    stage = make_stage("auto", environments_dir=real_environments)
    ref, ended = stage.run(
        code=code(stage, **{"train.py": SCRIPT}),
        config={
            "hyperparameters": {
                "sagemaker_program": '"train.py"',
                "sagemaker_submit_directory": '"s3://bucket/sourcedir.tar.gz"',
                "units": "2",
            },
            "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"},
            "inputdataconfig": {"training": {"TrainingInputMode": "File"}},
        },
        hosts=("algo-1",),
        channels=(stage.channel("training", **{"x.txt": b"data"}),),
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended.failure, stage.lines(ref))
    assert "channel data" in stage.lines(ref)
    with tarfile.open(stage.artifact(ref, "model")) as archive:
        assert "1/saved_model.pb" in archive.getnames()


@pytest.mark.tensorflow
def test_the_reason_of_a_failure_shows_the_users_own_exception(make_stage, real_environments):
    stage = make_stage("auto", environments_dir=real_environments)
    _, ended = stage.run(
        code=code(stage, **{"train.py": "def load():\n    raise ValueError('no such digit')\nload()\n"}),
        config={
            "hyperparameters": {
                "sagemaker_program": '"train.py"',
                "sagemaker_submit_directory": '"s3://bucket/sourcedir.tar.gz"',
            },
            "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"},
        },
        hosts=("algo-1",),
    )
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith('AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "')
    assert "ValueError: no such digit" in ended.failure
    assert len(ended.failure) <= 1024
