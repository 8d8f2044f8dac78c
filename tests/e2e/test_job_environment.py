"""The environment of a job's script: the packages that training scripts usually import."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = """
    import argparse, glob, os

    import cv2, imageio.v3, matplotlib.pyplot, numpy as np, pandas, PIL, psutil, sklearn, tqdm, yaml
    import tensorflow as tf
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir")
    in_s3 = parser.parse_args().model_dir
    output, model_dir = os.environ["SM_OUTPUT_DATA_DIR"], os.environ["SM_MODEL_DIR"]

    image = np.zeros((8, 8, 3), np.uint8)
    imageio.v3.imwrite(os.path.join(output, "black.png"), image)
    assert cv2.imread(os.path.join(output, "black.png")).shape == (8, 8, 3)
    matplotlib.pyplot.plot([1, 2])
    matplotlib.pyplot.savefig(os.path.join(output, "plot.png"))

    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(
        np.ones((8, 3), "float32"),
        np.ones((8, 2), "float32"),
        epochs=2,
        verbose=0,
        callbacks=[
            tf.keras.callbacks.TensorBoard(log_dir=os.path.join(output, "events"), histogram_freq=1),
            tf.keras.callbacks.ModelCheckpoint(os.path.join(model_dir, "epoch-{epoch}.keras")),
        ],
    )
    tf.train.Checkpoint(model).write(f"{in_s3}/checkpoint")
    print("in S3", sorted(tf.io.gfile.listdir(in_s3)), flush=True)
    try:
        with tf.io.gfile.GFile("s3://of-others/x", "w") as file:
            file.write("x")
    except tf.errors.PermissionDeniedError as error:
        print("denied", error, flush=True)
    for directory in sorted(glob.glob(os.path.join(output, "events", "*"))):
        read = EventAccumulator(directory)
        read.Reload()
        print("tensors of", os.path.basename(directory), sorted(read.Tags()["tensors"]), flush=True)
"""


def test_a_script_with_the_usual_imports_and_keras_callbacks_completes(jobs: Any) -> None:
    model_dir = f"s3://{BUCKET}/models/mine"
    jobs.s3.create_bucket(Bucket="of-others", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    job = jobs.run(SCRIPT, HyperParameters={"model_dir": json.dumps(model_dir)})
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    (written,) = [line for line in lines if line.startswith("tensors of train")]
    assert "'epoch_loss'" in written
    assert "/kernel/histogram'" in written
    assert "in S3 ['checkpoint.data-00000-of-00001', 'checkpoint.index']" in lines
    (denied,) = [line for line in lines if line.startswith("denied")]
    assert "s3://of-others/x: AccessDenied: " in denied
    assert {"epoch-1.keras", "epoch-2.keras"} <= set(jobs.model_files(job))
    assert {"black.png", "plot.png"} <= set(output_files(jobs, job))


def test_make_and_the_command_line_build_environments_in_the_same_directory(root: Path, tmp_path: Path) -> None:
    dropped = ("TIDEMILL_", "XDG_", "MAKE", "MFLAGS")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    variables["HOME"] = str(tmp_path)
    code = "from tidemill.settings import Settings; print(Settings().environments_dir)"
    ask = [f"{root}/.venv/bin/python", "-c", code]
    by_make = ["make", "-s", "--eval", f"ask: ; @{ask[0]} -c '{code}'", "ask"]
    answers = [
        subprocess.run(command, cwd=root, env=variables, check=True, capture_output=True, text=True).stdout
        for command in (ask, by_make)
    ]
    assert answers == [f"{tmp_path}/.cache/tidemill/environments\n"] * 2


def output_files(jobs: Any, job: dict[str, Any]) -> list[str]:
    """Return the names of the files in a job's output.tar.gz, as paths below SM_OUTPUT_DATA_DIR."""
    data = jobs.object(job["ModelArtifacts"]["S3ModelArtifacts"].replace("model.tar.gz", "output.tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [member.name.removeprefix("./").removeprefix("data/") for member in tar]
