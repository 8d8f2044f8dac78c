"""An interrupted Keras job continues at the epoch it had reached, and trains as many steps as an uninterrupted one."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
EPOCHS, STEPS = 5, 8
SCRIPT = f"""
    import os, time
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            print("EPOCH", epoch, int(model.optimizer.iterations.numpy()), flush=True)
            if epoch == 3 and os.environ["WAIT"] == "1" and not os.path.exists("/opt/ml/checkpoints/again"):
                open("/opt/ml/checkpoints/again", "w").close()
                print("HERE", flush=True)
                time.sleep(600)

    inputs = np.random.default_rng(0).normal(size=({STEPS * 4}, 4)).astype("float32")
    backup = keras.callbacks.BackupAndRestore("/opt/ml/checkpoints/backup")
    model.fit(inputs, inputs.sum(1), batch_size=4, epochs={EPOCHS}, shuffle=False, verbose=0,
              callbacks=[backup, Epochs()])
    weights = np.concatenate([each.ravel() for each in model.get_weights()])
    print("END", int(model.optimizer.iterations.numpy()), weights.tobytes().hex(), flush=True)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"stop_grace_s": 30, "max_instances": 2}) as service:
        yield service


def test_an_interrupted_job_trains_what_an_uninterrupted_one_does(service: Service, jobs_of: Any) -> None:
    jobs = jobs_of(service)

    def create(prefix: str, wait: str) -> str:
        return str(
            jobs.create(
                SCRIPT,
                CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"},
                EnableManagedSpotTraining=True,
                StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 900},
                Environment={"WAIT": wait},
            )
        )

    whole, interrupted = create("whole", "0"), create("interrupted", "1")
    jobs.wait_for_line(interrupted, "HERE")
    command = [sys.executable, "-m", "tidemill.cli", "interrupt", interrupted, "--state-dir", str(service.state_dir)]
    subprocess.run(command, check=True, capture_output=True)
    for name in (whole, interrupted):
        job = jobs.wait(name)
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")

    def lines_of(name: str, word: str) -> list[str]:
        return [line for line in jobs.log(name) if line.startswith(word)]

    every = [f"EPOCH {epoch} {epoch * STEPS}" for epoch in range(EPOCHS)]
    assert lines_of(whole, "EPOCH") == every
    assert lines_of(interrupted, "EPOCH") == [*every[:4], *every[3:]], "epoch 3 began twice, and with the same step"
    assert lines_of(interrupted, "END") == lines_of(whole, "END"), (
        "the same number of steps, and the same weights to the bit"
    )
    assert lines_of(whole, "END")[0].split()[1] == str(EPOCHS * STEPS)
