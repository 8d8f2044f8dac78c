"""The training compiler in jobs: switched on by the SDK, told of by log and report."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import boto3

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


class Settle(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        from tidemill_tensorflow import compiler

        compiler._sessions[0].settle()


model.fit(rows[:, :16], rows[:, 16:], batch_size=16, epochs=20, verbose=0, callbacks=[Settle()])
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "model.keras"))
"""


def test_the_next_job_of_the_role_starts_with_the_decision(
    tidemill_service: Service, tidemill_session: boto3.Session, tmp_path: Path
) -> None:
    first, _ = train(tidemill_session, tmp_path, role="decisions", debug=False)
    second, _ = train(tidemill_session, tmp_path, role="decisions", debug=False)
    other, _ = train(tidemill_session, tmp_path, role="another", debug=False)
    shapes = [report["functions"][0]["shapes"][0] for report in (first, second, other)]
    assert [shape["from_earlier_job"] for shape in shapes] == [False, True, False]
    assert shapes[1]["decision"] == shapes[0]["decision"]
    assert shapes[1]["rounds"] == 0


def test_a_job_with_the_compiler_reports_what_it_did(
    tidemill_service: Service, tidemill_session: boto3.Session, tmp_path: Path
) -> None:
    report, names = train(tidemill_session, tmp_path, role="tidemill", debug=True)
    job = report["job"]
    (function,) = report["functions"]
    assert function["fallback"] is None
    assert function["steps"] == 80
    assert function["shapes"][0]["steps_by_variant"]["xla"] >= 6
    assert any("/hlo/" in each for each in names)
    logs = tidemill_session.client("logs")
    events = logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=job)["events"]
    lines = [event["message"] for event in events]
    assert "Found configuration for Training Compiler" in lines
    assert "Configuring SM Training Compiler..." in lines
    assert any(line.startswith("training compiler: multi_step_on_iterator (80 steps): ") for line in lines)


def train(
    tidemill_session: boto3.Session, tmp_path: Path, *, role: str, debug: bool
) -> tuple[dict[str, Any], list[str]]:
    """Run the script as a job; return its report, with its name as ``job``, and the names of its output."""
    (tmp_path / "train.py").write_text(SCRIPT)
    estimator = TensorFlow(
        str(tmp_path / "train.py"),
        role=role,
        instance_count=1,
        instance_type="local",
        framework_version="2.21",
        py_version="py311",
        compiler_config=TrainingCompilerConfig(debug=debug),
        sagemaker_session=Session(tidemill_session),
    )
    estimator.fit(wait=True, logs="None")
    job = estimator.latest_training_job.name
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
