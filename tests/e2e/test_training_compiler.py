"""The training compiler in jobs: switched on by the SDK, shown in log and report."""

import io
import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import boto3
import pytest

from tidemill.sdk import Session, TensorFlow, TrainingCompilerConfig
from tidemill.testing import Service

SCRIPT = """
import os

import keras
import numpy as np

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input([16]), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
rows = np.random.default_rng(0).random((64, 17)).astype("float32")


class WaitForCompiler(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        from tidemill_tensorflow import compiler

        compiler._sessions[0].wait_for_background()


model.fit(rows[:, :16], rows[:, 16:], batch_size=16, epochs=40, verbose=0, callbacks=[WaitForCompiler()])
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "model.keras"))
"""

FORMS = (
    SCRIPT
    + """
import tensorflow as tf
from tidemill_tensorflow import compiler


def build():
    return keras.Sequential([keras.Input([16]), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])


def batches():
    return tf.data.Dataset.from_tensor_slices((rows[:, :16], rows[:, 16:])).batch(16, drop_remainder=True).repeat(40)


# train_on_batch
model = build()
model.compile("adam", "mse")
for features, labels in batches().as_numpy_iterator():
    model.train_on_batch(features, labels)
    compiler._sessions[0].wait_for_background()

# fit in a strategy's scope
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = build()
    model.compile("adam", "mse")
model.fit(rows[:, :16], rows[:, 16:], batch_size=16, epochs=40, verbose=0, callbacks=[WaitForCompiler()])


# A loop: a traced function computes the gradients, and Python or another traced function does the rest of the step.
class Loop:
    def __init__(self):
        self.model = build()
        self.optimizer = keras.optimizers.Adam(1e-3)
        self.mean_loss = keras.metrics.Mean()
        self.error = keras.metrics.MeanAbsoluteError()
        self.loss_object = keras.losses.MeanSquaredError(reduction="sum")

        @tf.function()
        def compiled_step(inputs, outputs):
            with tf.GradientTape() as tape:
                predicted = self.model(inputs, training=True)
                loss = self.loss_object(outputs, predicted) / 16
            return loss, predicted, tape.gradient(loss, self.model.trainable_variables)

        self.compiled_step = compiled_step

    def train_step(self, inputs, outputs):
        loss, predicted, gradients = self.compiled_step(inputs, outputs)
        weights = self.model.trainable_variables
        decayed = [gradient + 1e-4 * weight for gradient, weight in zip(gradients, weights)]
        self.optimizer.apply_gradients(zip(decayed, weights))
        self.mean_loss.update_state(loss)
        self.error.update_state(outputs, predicted)


def train(loop, step, rows):
    errors = []
    for inputs, outputs in rows:
        loop.error.reset_state()
        step(inputs, outputs)
        errors.append(float(loop.error.result()))
        compiler._sessions[0].wait_for_background()
    assert sum(errors[-4:]) < sum(errors[:4]), errors


with strategy.scope():
    loop = Loop()


@tf.function()
def train_step_dist(inputs, outputs):
    strategy.run(loop.train_step, args=(inputs, outputs))


train(loop, train_step_dist, strategy.experimental_distribute_dataset(batches()))
alone = Loop()
train(alone, alone.train_step, batches())
"""
)

TRANSFORMERS = """
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras
import transformers
from tidemill_tensorflow import compiler

CONFIG = transformers.BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=3
)
generator = np.random.default_rng(0)
ROWS = {
    "input_ids": generator.integers(0, 100, (64, 12)),
    "attention_mask": np.ones((64, 12), "int64"),
    "labels": generator.integers(0, 3, 64),
}


class WaitForCompiler(tf_keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        compiler._sessions[0].wait_for_background()


tf_keras.utils.set_random_seed(1)
model = transformers.TFBertForSequenceClassification(CONFIG)
model.compile(optimizer=tf_keras.optimizers.Adam(1e-3))
batches = tf.data.Dataset.from_tensor_slices(ROWS).batch(16, drop_remainder=True)
history = model.fit(batches, epochs=40, verbose=0, callbacks=[WaitForCompiler()])

model = transformers.TFDistilBertForSequenceClassification(
    transformers.DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=64, num_labels=3)
)
optimizer = tf_keras.optimizers.Adam(1e-3)


@tf.function
def train_step(rows):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(rows, training=True).loss)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


losses = []
for _ in range(40):
    for rows in batches:
        losses.append(float(train_step(rows)))
        compiler._sessions[0].wait_for_background()
model.save_pretrained(os.environ["SM_MODEL_DIR"])
by_fit = history.history["loss"]
assert by_fit[-1] < by_fit[0] and sum(losses[-4:]) < sum(losses[:4]), (by_fit, losses)
"""

LISTING = 'import os\nprint("DECISIONS", os.listdir(os.environ["TIDEMILL_COMPILER_CACHE"]))\n'


@pytest.fixture(scope="module")
def first_job(tidemill_service: Service, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """Report and output names of a role's first job, in debug mode."""
    directory = tmp_path_factory.mktemp("first")
    return train(tidemill_service.boto3_session(), directory, role="decisions", debug=True)


@pytest.mark.matrix
def test_the_next_job_of_the_role_starts_with_the_decision(
    first_job: tuple[dict[str, Any], list[str]], tidemill_session: boto3.Session, tmp_path: Path
) -> None:
    first, _ = first_job
    second, _ = train(tidemill_session, tmp_path, role="decisions", debug=False)
    shapes = [report["functions"][0]["shapes"][0] for report in (first, second)]
    assert [shape["from_earlier_job"] for shape in shapes] == [False, True]
    assert shapes[1]["decision"] == shapes[0]["decision"]
    assert shapes[1]["rounds"] == 0
    for role, has_decisions in (("decisions", True), ("another", False)):
        job = fit(tidemill_session, tmp_path, role=role, debug=False, script=LISTING)
        (listed,) = (line for line in log_of(tidemill_session, job) if line.startswith("DECISIONS"))
        assert (listed != "DECISIONS []") == has_decisions


def test_a_job_with_the_compiler_reports_what_it_did(
    tidemill_service: Service, tidemill_session: boto3.Session, first_job: tuple[dict[str, Any], list[str]]
) -> None:
    report, names = first_job
    job = report["job"]
    assert any("/hlo/" in each for each in names)
    lines = log_of(tidemill_session, job)
    assert "Found configuration for Training Compiler" in lines
    assert "Configuring SM Training Compiler..." in lines
    assert any(line.startswith("training compiler: multi_step_on_iterator (160 steps): ") for line in lines)
    command = [sys.executable, "-m", "tidemill.cli", "status", "--state-dir", tidemill_service.state_dir]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{job}: multi_step_on_iterator (160 steps): " in shown


@pytest.mark.matrix
def test_a_job_compiles_fit_train_on_batch_a_strategys_scope_and_loops(
    tidemill_service: Service, tidemill_session: boto3.Session, tmp_path: Path
) -> None:
    report, _ = train(tidemill_session, tmp_path, role="tidemill", debug=False, script=FORMS)
    functions = report["functions"]
    of_keras = ["multi_step_on_iterator", "one_step_on_data", "multi_step_on_iterator"]
    assert [function["name"] for function in functions] == [*of_keras, "train_step_dist", "compiled_step"]
    for function in functions:
        assert function["fallback"] is None
        assert function["steps"] == 160
        (shape,) = function["shapes"]
        assert shape["fallback"] is None
        assert shape["steps_by_variant"]["xla"] >= 6
        assert shape["decision"] in ("plain", "xla", "fused")


@pytest.mark.matrix
def test_models_of_transformers_are_compiled_in_fit_and_in_a_loop(
    tidemill_service: Service, tidemill_session: boto3.Session, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.57.*\ntf_keras\n")
    report, _ = train(tidemill_session, tmp_path, role="tidemill", debug=False, script=TRANSFORMERS)
    by_fit, by_loop = report["functions"]
    assert [by_fit["steps"], by_loop["steps"]] == [160, 160]
    for function in (by_fit, by_loop):
        assert function["fallback"] is None
        assert function["shapes"][0]["fallback"] is None
        assert function["shapes"][0]["steps_by_variant"]["xla"] >= 6
        assert function["shapes"][0]["decision"] in ("plain", "xla", "fused")
    assert "tf_model.h5" in model_files(tidemill_session, report["job"])


def log_of(tidemill_session: boto3.Session, job: str) -> list[str]:
    """Return the lines of a job's log."""
    logs = tidemill_session.client("logs")
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=job
    )
    return [event["message"] for page in pages for event in page["events"]]


def model_files(tidemill_session: boto3.Session, job: str) -> list[str]:
    """Return the names in a job's model.tar.gz."""
    found = tidemill_session.client("sagemaker").describe_training_job(TrainingJobName=job)
    bucket, _, key = found["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    archive = tidemill_session.client("s3").get_object(Bucket=bucket, Key=key)
    with tarfile.open(fileobj=io.BytesIO(archive["Body"].read())) as model:
        return [name.removeprefix("./") for name in model.getnames()]


def fit(session: boto3.Session, tmp_path: Path, *, role: str, debug: bool, script: str) -> str:
    """Run the script as a job with the compiler, and return the job's name."""
    (tmp_path / "train.py").write_text(script)
    estimator = TensorFlow(
        "train.py",
        source_dir=str(tmp_path),
        role=role,
        instance_count=1,
        instance_type="local",
        framework_version="2.21",
        py_version="py311",
        # These trainings are too short to pay their compilation back.
        compiler_config=TrainingCompilerConfig(debug=debug, max_cost=math.inf),
        sagemaker_session=Session(session),
    )
    estimator.fit(wait=True, logs="None")
    return str(estimator.latest_training_job.name)


def train(
    tidemill_session: boto3.Session, tmp_path: Path, *, role: str, debug: bool, script: str = SCRIPT
) -> tuple[dict[str, Any], list[str]]:
    """Run the script as a job; return its report, with its name as ``job``, and the names of its output."""
    job = fit(tidemill_session, tmp_path, role=role, debug=debug, script=script)
    found = tidemill_session.client("sagemaker").describe_training_job(TrainingJobName=job)
    assert found["TrainingJobStatus"] == "Completed", found.get("FailureReason")
    bucket, _, key = found["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    archive = tidemill_session.client("s3").get_object(Bucket=bucket, Key=key.replace("model.tar.gz", "output.tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(archive["Body"].read())) as output:
        names = output.getnames()
        (name,) = (each for each in names if each.endswith("compiler/report.json"))
        member = output.extractfile(name)
        assert member is not None
        report = json.load(member)
    return {**report, "job": job}, names
