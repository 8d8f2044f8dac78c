"""Jobs under MPI through a real service: Horovod and model parallelism on several ranks, and a named failure."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import WaiterError

from tidemill.sdk import Session, TensorFlow
from tidemill.testing import Service

HOROVOD = """
import argparse, hashlib, os

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--model_dir")
options = parser.parse_args()
hvd.init()
keras.utils.set_random_seed(hvd.rank())  # they begin apart, and have to end alike
rows = np.random.default_rng(0).random((256, 8)).astype("float32")
targets = rows @ np.arange(8, dtype="float32")[:, None]
own = slice(hvd.rank(), None, hvd.size())
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
hvd.broadcast_variables(model.variables, root_rank=0)
for _ in range(options.epochs):
    for first in range(0, 256 // hvd.size(), 16):
        with tf.GradientTape() as tape:
            batch = slice(first, first + 16)
            loss = tf.reduce_mean((model(rows[own][batch]) - targets[own][batch]) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
weights = b"".join(variable.numpy().tobytes() for variable in model.variables)
error = float(tf.reduce_mean((model(rows) - targets) ** 2))
print(f"rank={hvd.rank()} size={hvd.size()} weights={hashlib.sha256(weights).hexdigest()} error={error:.4f}")
if hvd.rank() == 0:
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "model.keras"))
"""


FAILING = """
from mpi4py import MPI

world = MPI.COMM_WORLD
if world.rank == 3:
    raise KeyError("tide")
world.barrier()
"""


# The kernel kills a process with this signal when memory runs out.
KILLED = """
import os, signal
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
if world.rank == 3:
    os.kill(os.getpid(), signal.SIGKILL)
world.barrier()
"""
HUNG = """
import os, time
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("met", os.environ["TRAINING_JOB_NAME"], flush=True)
if world.rank == 1:
    time.sleep(3600)
world.barrier()
"""


# Dense layers with a seed on the digits, one step per batch; trained both partitioned and as the plain model.
COMMON = """
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images, labels = (images[:800] / 16).astype("float32"), labels[:800]
batches = [(images[first : first + 100], labels[first : first + 100]) for first in range(0, 800, 100)]
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def layers():
    initializers = [tf.keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
    first = tf.keras.layers.Dense(32, activation="tanh", kernel_initializer=initializers[0])
    return first, tf.keras.layers.Dense(10, kernel_initializer=initializers[1])
"""
CUT = f"""
import os
{COMMON}
import smdistributed.modelparallel.tensorflow as smp

smp.init()


class Net(smp.DistributedModel):
    def __init__(self):
        super().__init__()
        self.first, self.head = layers()

    def call(self, x):
        with smp.partition(0):
            x = self.first(x)
        with smp.partition(1):
            return self.head(x)


model = Net()
optimizer = tf.keras.optimizers.Adam(0.01)


@smp.step
def forward_backward(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x))
    return tape.gradient(loss, model.trainable_variables), loss


@tf.function
def train_step(x, y):
    gradients, loss = forward_backward(x, y)
    gradients = [gradient.accumulate() for gradient in gradients]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss.reduce_mean()


losses = [float(train_step(x, y)) for _ in range(5) for x, y in batches]
held = len(smp.local_variables(model))
print(f"rank={{smp.rank()}} host={{os.environ['SM_CURRENT_HOST']}} held={{held}} losses={{losses}}", flush=True)
"""
PLAIN = f"""
{COMMON}
model = tf.keras.Sequential([tf.keras.Input([64]), *layers()])
optimizer = tf.keras.optimizers.Adam(0.01)
losses = []
for _ in range(5):
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        losses.append(float(loss))
print(losses)
"""


@pytest.fixture
def estimator(tidemill_session: boto3.Session) -> Any:
    """Return a function that creates an estimator for local jobs."""

    def make(script: Path, **arguments: Any) -> TensorFlow:
        return TensorFlow(
            str(script),
            **{
                "role": "tidemill",
                "instance_count": 1,
                "instance_type": "local",
                "framework_version": "2.21",
                "py_version": "py311",
                "sagemaker_session": Session(tidemill_session),
                **arguments,
            },
        )

    return make


def run(session: boto3.Session, estimator: TensorFlow) -> tuple[dict[str, Any], list[str]]:
    """Run a job to its end; return its description and the lines of its log."""
    estimator.fit(wait=False)
    assert estimator.latest_training_job is not None
    name = estimator.latest_training_job.name
    client = session.client("sagemaker")
    with contextlib.suppress(WaiterError):  # the job failed: the caller checks why
        client.get_waiter("training_job_completed_or_stopped").wait(
            TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
        )
    job = client.describe_training_job(TrainingJobName=name)
    pages = session.client("logs").get_paginator("filter_log_events")
    lines = [
        event["message"]
        for page in pages.paginate(logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=name)
        for event in page["events"]
    ]
    return job, lines


def test_horovod_trains_two_instances_to_equal_weights(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, tmp_path: Path
) -> None:
    """Each instance has a separate network, if this machine supports it; mpirun reaches the second one without sshd."""
    script = tmp_path / "train.py"
    script.write_text(HOROVOD)
    job, lines = run(
        tidemill_session,
        estimator(
            script,
            instance_count=2,
            hyperparameters={"epochs": 20},
            distribution={
                "mpi": {"enabled": True, "processes_per_host": 1, "custom_mpi_options": "--NCCL_DEBUG INFO -verbose"}
            },
        ),
    )
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    joined = "".join(f"{line}\n" for line in lines)
    form = r"\[1,mpirank:(\d),algo-(\d)\]<stdout>:rank=(\d) size=2 weights=(\w+) error=(\S+)\n"
    ranks = sorted(re.findall(form, joined))
    assert [rank[:3] for rank in ranks] == [("0", "1", "0"), ("1", "2", "1")], joined
    assert ranks[0][3:] == ranks[1][3:]
    assert float(ranks[0][4]) < 5  # from about 200
    assert job["ModelArtifacts"]["S3ModelArtifacts"]


def test_a_failed_rank_is_the_reason_of_its_job(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAILING)
    job, lines = run(
        tidemill_session,
        estimator(script, instance_count=2, distribution={"mpi": {"enabled": True, "processes_per_host": 2}}),
    )
    assert job["TrainingJobStatus"] == "Failed", lines
    assert "rank 3 on algo-2: KeyError: 'tide'" in job["FailureReason"]
    assert job["FailureReason"].endswith("instance: algo-2")
    assert 'File "train.py", line 6' in job["FailureReason"]
    assert "ExitCode 1" in job["FailureReason"]


def processes_of(job: dict[str, Any]) -> list[int]:
    """Return the processes with the job's name in their environment."""
    name = f"TRAINING_JOB_NAME={job['TrainingJobName']}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and name in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def test_a_rank_that_is_killed_ends_its_job_with_the_signal_and_leaves_no_process(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(KILLED)
    job, lines = run(
        tidemill_session,
        estimator(script, instance_count=2, distribution={"mpi": {"enabled": True, "processes_per_host": 2}}),
    )
    assert job["TrainingJobStatus"] == "Failed", lines
    assert "rank 3 on algo-2" in job["FailureReason"], job["FailureReason"]
    assert "SIGKILL" in job["FailureReason"], job["FailureReason"]
    assert processes_of(job) == []


def test_a_job_whose_rank_hangs_ends_at_its_time_limit_and_leaves_no_process(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HUNG)
    distribution = {"mpi": {"enabled": True, "processes_per_host": 1}}
    job, lines = run(tidemill_session, estimator(script, instance_count=2, distribution=distribution, max_run=12))
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded"), lines
    met = f"met {job['TrainingJobName']}"  # with it `processes_of` finds ranks that are left
    assert sum(met in line for line in lines) == 2, lines
    assert processes_of(job) == []


@pytest.mark.matrix
def test_the_example_of_model_parallelism_trains_as_a_job_with_the_parameters_of_the_estimator(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, root: Path
) -> None:
    job, lines = run(
        tidemill_session,
        estimator(
            root / "examples/03_model_parallel/digits.py",
            hyperparameters={"epochs": 2},
            distribution={
                "smdistributed": {
                    "modelparallel": {"enabled": True, "parameters": {"partitions": 2, "microbatches": 2}}
                },
                "mpi": {"enabled": True, "processes_per_host": 2},
            },
        ),
    )
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    (accuracy,) = (float(line.rpartition(" ")[2]) for line in lines if "accuracy on 320 test images" in line)
    assert accuracy > 0.6
    assert job["ModelArtifacts"]["S3ModelArtifacts"]


def test_a_model_cut_over_two_instances_has_the_losses_of_the_plain_one_in_one_process(
    tidemill_service: Service, tidemill_session: boto3.Session, estimator: Any, root: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(CUT)
    parameters = {"partitions": 2, "microbatches": 4, "auto_partition": False, "default_partition": 0}
    job, lines = run(
        tidemill_session,
        estimator(
            script,
            instance_count=2,
            distribution={
                "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}},
                "mpi": {"enabled": True, "processes_per_host": 1},
            },
        ),
    )
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    form = r"rank=(\d) host=(algo-\d) held=(\d) losses=(\[.*\])$"
    ranks = sorted(match.groups() for line in lines if (match := re.search(form, line)))
    assert [rank[:3] for rank in ranks] == [("0", "algo-1", "2"), ("1", "algo-2", "2")], lines
    environment = root / ".venvs/tf-2.21"
    plain = subprocess.run(
        [environment / "bin/python", "-c", PLAIN],
        env={**os.environ, "PYTHONPATH": str(environment / "scikit-learn")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = json.loads(plain)
    assert expected[-1] < expected[0] / 4
    # Sums over microbatches are rounded differently from sums over the batch, and 40 updates accumulate this.
    for rank in ranks:
        assert json.loads(rank[3]) == pytest.approx(expected, rel=1e-4)
