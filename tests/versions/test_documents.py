"""The scripts of SageMaker's documents, and scripts of legacy mode after the change that our page shows."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from versions_jobs import BUCKET, image, logged

from tidemill.core.features import versions_with

PAGE = Path(__file__).parents[2] / "docs/how-to/leave-legacy-mode.md"

# From "TensorFlow SageMaker Estimators and Models": arguments, channels, model_dir and SM_MODEL_DIR.
ESTIMATOR = """
    import argparse
    import os

    import numpy as np
    import tensorflow as tf

    def my_input_fn(directory):
        rows = np.loadtxt(os.path.join(directory, "rows.csv"), delimiter=",", dtype="float32")
        return tf.data.Dataset.from_tensor_slices(({"x": rows[:, :1]}, rows[:, 1:])).repeat().batch(args.batch_size)

    def serving_input_fn():
        x = tf.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    def my_model_fn(features, labels, mode):
        prediction = tf.layers.dense(features["x"], 1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, {"y": prediction})
        loss = tf.losses.mean_squared_error(labels, prediction)
        step = tf.train.AdamOptimizer(args.learning_rate).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    if __name__ == "__main__":

        parser = argparse.ArgumentParser()

        parser.add_argument('--epochs', type=int, default=10)
        parser.add_argument('--batch_size', type=int, default=100)
        parser.add_argument('--learning_rate', type=float, default=0.1)

        parser.add_argument('--model_dir', type=str)
        parser.add_argument('--train', type=str, default=os.environ.get('SM_CHANNEL_TRAIN'))
        parser.add_argument('--test', type=str, default=os.environ.get('SM_CHANNEL_TEST'))

        args, _ = parser.parse_known_args()

        estimator = tf.estimator.Estimator(model_fn=my_model_fn, model_dir=args.model_dir)
        train_spec = tf.estimator.TrainSpec(lambda: my_input_fn(args.train), max_steps=10 * args.epochs)
        eval_spec = tf.estimator.EvalSpec(lambda: my_input_fn(args.test), steps=1)
        results, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
        estimator.export_saved_model(os.environ["SM_MODEL_DIR"], serving_input_fn)
        print("STEPS %d LOSS %.4f" % (results["global_step"], results["loss"]))
"""

# From "SageMaker TensorFlow", which documents PipeModeDataset, with records written by TensorFlow before.
PIPED = """
    import glob, os
    import numpy as np
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    features = {
        'data': tf.FixedLenFeature([], tf.string),
        'labels': tf.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        parsed = tf.parse_single_example(record, features)
        return ({
            'data': tf.decode_raw(parsed['data'], tf.float64)
        }, parsed['labels'])

    ds = PipeModeDataset(channel="training", record_format='TFRecord')
    num_epochs=2
    ds = ds.repeat(num_epochs)
    ds = ds.prefetch(10)
    ds = ds.map(parse, num_parallel_calls=10)
    ds = ds.batch(64)

    seen = []
    with tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(ds).get_next()
        try:
            while True:
                values, labels = session.run(batch)
                assert (values["data"] == np.stack([labels, -labels], axis=1)).all()
                seen += labels.tolist()
        except tf.errors.OutOfRangeError:
            print("SEEN", len(seen), sum(seen))
"""

WRITTEN = """
    import os
    import numpy as np
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    with tf.io.TFRecordWriter(os.environ["SM_MODEL_DIR"] + "/records") as writer:
        for label in range(100):
            data = np.array([label, -label], "float64").tobytes()
            features = tf.train.Features(feature={"data": feature(data), "labels": feature(label)})
            writer.write(tf.train.Example(features=features).SerializeToString())
"""

LEGACY = """
    import os
    import numpy as np
    import tensorflow as tf

    def model_fn(features, labels, mode, hyperparameters):
        prediction = tf.layers.dense(features["x"], 1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, {"y": prediction})
        loss = tf.losses.mean_squared_error(labels, prediction)
        step = tf.train.AdamOptimizer(hyperparameters["learning_rate"]).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def train_input_fn(training_dir, hyperparameters):
        tf.logging.set_verbosity(tf.logging.INFO)
        rows = np.loadtxt(os.path.join(training_dir, "rows.csv"), delimiter=",", dtype="float32")
        return tf.data.Dataset.from_tensor_slices(({"x": rows[:, :1]}, rows[:, 1:])).repeat().batch(100)

    def eval_input_fn(training_dir, hyperparameters):
        return train_input_fn(training_dir, hyperparameters)

    def serving_input_fn(hyperparameters):
        x = tf.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})
"""


def channels(jobs: Any, prefix: str, files: dict[str, bytes], *names: str, mode: str = "File") -> list[dict[str, Any]]:
    for name, content in files.items():
        jobs.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=content)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}/"}}
    return [{"ChannelName": name, "InputMode": mode, "DataSource": source} for name in names]


def of(version: str, script: str) -> str:
    """Return a script of TensorFlow 1 for a version."""
    if version == "1.15":
        return script
    return script.replace(
        "import tensorflow as tf", "import tensorflow.compat.v1 as tf\n    tf.disable_eager_execution()"
    )


LINE = {"rows.csv": "".join(f"{i / 100},{2 * i / 100 + 1}\n" for i in range(100)).encode()}


def usual(name: str) -> list[Any]:
    return [each if each == "1.15" else pytest.param(each, marks=pytest.mark.matrix) for each in versions_with(name)]


@pytest.mark.matrix
@pytest.mark.feature("estimator")
@pytest.mark.parametrize("version", versions_with("estimator"))
def test_the_estimator_of_the_documents_trains(jobs: Any, build_environment: Any, version: str) -> None:
    build_environment(version)
    job = jobs.run(
        of(version, ESTIMATOR),
        InputDataConfig=channels(jobs, "line", LINE, "train", "test"),
        HyperParameters={"epochs": "20", "model_dir": f'"s3://{BUCKET}/documents/{version}"'},
        **image(version),
    )
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    steps, _, loss = logged(lines, "STEPS ").partition(" LOSS ")
    assert int(steps) == 200
    assert float(loss) < 0.1
    assert any(name.endswith("/saved_model.pb") for name in jobs.model_files(job))


@pytest.mark.matrix
@pytest.mark.feature("pipe mode")
@pytest.mark.parametrize("version", versions_with("pipe mode"))
def test_the_pipe_of_the_documents_streams(jobs: Any, build_environment: Any, version: str) -> None:
    build_environment(version)
    records = jobs.model_files(jobs.run(WRITTEN, **image(version)))["records"]
    piped = channels(jobs, f"records-{version}", {"records": records}, "training", mode="Pipe")
    job = jobs.run(of(version, PIPED), InputDataConfig=piped, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert logged(lines, "SEEN ") == "200 9900"


@pytest.mark.parametrize("version", usual("estimator"))
def test_a_script_of_legacy_mode_trains_after_the_change_of_our_page(
    jobs: Any, build_environment: Any, version: str
) -> None:
    build_environment(version)
    added = re.search(r"```python\n(if __name__.*?)```", PAGE.read_text(), re.DOTALL)
    assert added is not None
    script = textwrap.dedent(of(version, LEGACY)) + "\n\n" + added[1]
    uri = f"s3://{BUCKET}/converted/{version}"
    parameters = {"training_steps": "200", "evaluation_steps": "1", "learning_rate": "0.1", "model_dir": f'"{uri}"'}
    data = channels(jobs, "line", LINE, "training")
    job = jobs.run(script, InputDataConfig=data, HyperParameters=parameters, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert any(name.endswith("/saved_model.pb") for name in jobs.model_files(job))
    (done,) = [line for line in lines if "Saving dict for global step 200" in line]
    assert float(done.rpartition("loss = ")[2]) < 0.1


def test_the_refusal_of_legacy_mode_names_the_page(jobs: Any) -> None:
    uri = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:1.15.0-cpu"
    algorithm = {"TrainingImage": uri, "TrainingInputMode": "File"}
    with pytest.raises(ClientError, match=r"docs/how-to/leave-legacy-mode\.md"):
        jobs.create(textwrap.dedent(LEGACY), AlgorithmSpecification=algorithm)
