"""Real jobs on real TensorFlow versions, each in its own environment, on a Python that it supports.

Every test run includes two old versions, `make matrix-versions` all of them. The first run builds missing environments;
a version whose Python is not on this machine is skipped, with a message.
"""

import json

import pytest
from botocore.exceptions import ClientError
from versions_jobs import BUCKET, example, image, logged, recordio

from tidemill.core.frameworks import FRAMEWORKS

USUAL = ("2.15", "1.15")
ALL = [
    version if version in USUAL else pytest.param(version, marks=pytest.mark.matrix) for version in reversed(FRAMEWORKS)
]

DIGITS = """
    import json, os, sys
    import tensorflow as tf
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
        tf.keras.layers.Dense(10, activation="softmax"),
    ])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images[:1500], labels[:1500], epochs=10, verbose=0)
    directory = os.path.join(os.environ["SM_MODEL_DIR"], "1")
    if tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16):
        model.export(directory)
    else:  # Keras 2.12 has export, too, which fails for a model that was trained
        model.save(directory, save_format="tf")
    found = {
        "tensorflow": tf.__version__,
        "python": "%d.%d" % sys.version_info[:2],
        "accuracy": float(model.evaluate(images[1500:], labels[1500:], verbose=0)[1]),
        "epochs": json.loads(os.environ["SM_HPS"])["epochs"],
    }
    try:
        from smdistributed.modelparallel.tensorflow import DistributedModel
        found["model parallelism"] = True
    except ImportError:
        found["model parallelism"] = False
    print("FOUND " + json.dumps(found), flush=True)
"""

ESTIMATOR = """
    import os
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    def input_fn(channel, epochs):
        def parse(record):
            features = {"x": tf.FixedLenFeature([1], tf.float32), "y": tf.FixedLenFeature([1], tf.float32)}
            parsed = tf.parse_single_example(record, features)
            return {"x": parsed["x"]}, parsed["y"]

        dataset = PipeModeDataset(channel=channel, record_format="RecordIO")
        return dataset.repeat(epochs).prefetch(10).map(parse, num_parallel_calls=4).batch(10).prefetch(1)

    if __name__ == "__main__":
        estimator = tf.estimator.LinearRegressor(
            [tf.feature_column.numeric_column("x")], model_dir=os.environ["SM_MODEL_DIR"] + "/checkpoints",
            optimizer=lambda: tf.train.AdamOptimizer(0.1),
        )
        results, _ = tf.estimator.train_and_evaluate(
            estimator,
            tf.estimator.TrainSpec(lambda: input_fn("training", 30), max_steps=300),
            tf.estimator.EvalSpec(lambda: input_fn("validation", 1), steps=None),
        )
        print("STEPS %d LOSS %.4f" % (results["global_step"], results["average_loss"]), flush=True)
"""

FILES = """
    import os
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    if not tf.executing_eagerly():
        tf.compat.v1.enable_eager_execution()
    tf2 = tf.compat.v2
    root = os.environ["SM_HP_ROOT"] + "/" + os.environ["SAGEMAKER_JOB_NAME"] + "/files"

    with tf.io.gfile.GFile(root + "/text", "w") as file:
        file.write("text")
    assert tf.io.gfile.GFile(root + "/text").read() == "text"
    tf.io.gfile.rename(root + "/text", root + "/renamed")
    assert not tf.io.gfile.exists(root + "/text")
    assert tf.io.gfile.stat(root + "/renamed").length == 4
    assert tf.io.gfile.glob(root + "/ren*") == [root + "/renamed"]
    with tf.io.TFRecordWriter(root + "/records") as writer:
        for number in range(1000):
            writer.write(b"%d" % number)
    records = [record.numpy() for record in tf.data.TFRecordDataset(root + "/records")]
    assert records == [b"%d" % number for number in range(1000)]

    variable = tf.Variable(3.0)
    checkpoint = tf.train.Checkpoint(variable=variable)
    checkpoint.save(root + "/checkpoints/c")
    variable.assign(0.0)
    checkpoint.restore(tf.train.latest_checkpoint(root + "/checkpoints")).assert_consumed()
    assert variable.numpy() == 3.0

    class Doubling(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def double(self, x):
            return 2 * x

    tf2.saved_model.save(Doubling(), root + "/saved")
    assert tf2.saved_model.load(root + "/saved").double(tf.constant(2.0)).numpy() == 4.0
    writer = tf2.summary.create_file_writer(root + "/logs")
    with writer.as_default():
        tf2.summary.scalar("loss", 1.0, step=1)
    writer.close()
    assert len(tf.io.gfile.glob(root + "/logs/events*")) == 1
    try:
        tf.io.gfile.GFile(root + "/none").read()
    except tf.errors.NotFoundError:
        print("FILES", tf.__version__, flush=True)
    piped = PipeModeDataset(channel="training", record_format="RecordIO")
    print("PIPED", sum(1 for _ in piped), flush=True)
"""

TOGETHER = """
    import os, subprocess
    import tensorflow as tf

    root = os.environ["SM_HP_ROOT"] + "/" + os.environ["SAGEMAKER_JOB_NAME"] + "/together"
    texts = [str(number % 10) * (100 - number) for number in range(50)]
    files = [tf.io.gfile.GFile("%s/%d" % (root, number), "w") for number in range(50)]
    for file, text in zip(files, texts):
        file.write(text)  # opens the file's temporary file, many of them in the same millisecond
    for file in files:
        file.close()
    subprocess.check_call(["aws", "s3", "sync", root, "copy"])
    assert [open("copy/%d" % number).read() for number in range(50)] == texts
    print("SEPARATE", len(os.listdir("copy")), flush=True)
"""

CHECKPOINTS = """
    import os
    import numpy as np
    import tensorflow.compat.v1 as tf

    def input_fn():
        x = np.random.RandomState(0).normal(size=(64, 2)).astype("float32")
        return tf.data.Dataset.from_tensor_slices(({"x": x}, x.sum(axis=1, keepdims=True))).repeat().batch(32)

    root = os.environ["SM_HP_ROOT"] + "/" + os.environ["SAGEMAKER_JOB_NAME"]
    for number in range(10):
        estimator = tf.estimator.LinearRegressor(
            [tf.feature_column.numeric_column("x", shape=2)], model_dir="%s/%d" % (root, number),
            optimizer=lambda: tf.train.AdamOptimizer(0.1), config=tf.estimator.RunConfig(save_checkpoints_steps=10),
        )
        train, evaluate = tf.estimator.TrainSpec(input_fn, max_steps=20), tf.estimator.EvalSpec(input_fn, steps=2)
        results, _ = tf.estimator.train_and_evaluate(estimator, train, evaluate)
        print("TRAINED", number, results["global_step"], flush=True)
"""

KERAS_3 = """
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 2)), np.ones(8), verbose=0)
    print("KERAS", keras.__version__, keras.ops.shape(np.ones((2, 3))), flush=True)
"""


@pytest.mark.feature("scripts")
@pytest.mark.parametrize("version", ALL)
def test_digits_are_learned_on_the_version_that_was_asked_for(jobs, build_environment, version):
    environment = build_environment(version)
    framework = FRAMEWORKS[version]
    job = jobs.run(DIGITS, HyperParameters={"epochs": "10"}, **image(framework.release))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert f"environment=tf-{version} ({environment.key}), Python {environment.interpreter.version}" in lines[0]
    assert not any("instead" in line for line in lines if line.startswith("tidemill:"))
    found = json.loads(logged(lines, "FOUND "))
    assert found.pop("accuracy") > 0.85
    assert found == {
        "tensorflow": framework.release,
        "python": environment.interpreter.minor,
        "epochs": 10,
        "model parallelism": framework.has_model_parallelism,
    }
    assert "1/saved_model.pb" in jobs.model_files(job)


@pytest.mark.parametrize("version", USUAL)
def test_an_estimator_trains_from_pipes_and_evaluates(jobs, build_environment, version):
    build_environment(version)
    script = ESTIMATOR
    if version != "1.15":  # on 1.15 the script runs as written for TensorFlow 1
        script = script.replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf")
    data = recordio([example(x=i / 100, y=2 * i / 100 + 1) for i in range(100)])
    jobs.s3.put_object(Bucket=BUCKET, Key=f"line-{version}/a.rec", Body=data)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/line-{version}/"}}
    channels = [{"ChannelName": name, "InputMode": "Pipe", "DataSource": source} for name in ("training", "validation")]
    job = jobs.run(script, InputDataConfig=channels, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    steps, _, loss = logged(lines, "STEPS ").partition(" LOSS ")
    assert int(steps) == 300
    assert float(loss) < 0.1
    reader = "python" if version == "1.15" else "native"
    assert any(line.startswith(f"pipemode.reader reader={reader} ") for line in lines)


@pytest.mark.matrix
@pytest.mark.feature("pipe mode", "s3")
@pytest.mark.parametrize(("version", "python"), [*((each, None) for each in reversed(FRAMEWORKS)), ("2.6", "3.7")])
def test_tensorflow_reads_and_writes_s3_and_pipes_on_every_version(jobs, build_environment, version, python):
    build_environment(version, python=python)
    data = recordio([b"%d" % number for number in range(100)])
    jobs.s3.put_object(Bucket=BUCKET, Key=f"piped-{version}/a.rec", Body=data)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/piped-{version}/"}}
    channels = [{"ChannelName": "training", "InputMode": "Pipe", "DataSource": source}]
    root = {"root": f"s3://{BUCKET}/out"}
    tag = f"py{(python or '3').replace('.', '')}"
    job = jobs.run(FILES, InputDataConfig=channels, HyperParameters=root, **image(version, tag))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert logged(lines, "FILES ") == FRAMEWORKS[version].release
    assert logged(lines, "PIPED ") == "100"


@pytest.mark.parametrize("version", ["1.15", pytest.param("2.4", marks=pytest.mark.matrix)])
def test_files_that_are_written_to_s3_at_the_same_time_stay_separate(jobs, build_environment, version):
    build_environment(version)
    job = jobs.run(TOGETHER, HyperParameters={"root": f"s3://{BUCKET}/out"}, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert "SEPARATE 50" in lines


@pytest.mark.matrix
@pytest.mark.parametrize("version", ["1.15", "2.4"])
def test_estimators_train_and_evaluate_ten_times_with_checkpoints_in_s3(jobs, build_environment, version):
    build_environment(version)
    job = jobs.run(CHECKPOINTS, HyperParameters={"root": f"s3://{BUCKET}/out"}, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert [line for line in lines if line.startswith("TRAINED ")] == [f"TRAINED {number} 20" for number in range(10)]


@pytest.mark.matrix
@pytest.mark.parametrize("version", [each for each in FRAMEWORKS if FRAMEWORKS[each].number >= (2, 16)])
def test_a_script_for_keras_3_runs_on_the_versions_that_have_it(jobs, build_environment, version):
    build_environment(version)
    job = jobs.run(KERAS_3, **image(version))
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert logged(jobs.log(job["TrainingJobName"]), "KERAS ").startswith("3.")


def test_a_script_for_keras_3_fails_on_a_version_without_it_with_its_own_error(jobs, build_environment):
    build_environment("2.15")
    job = jobs.run(KERAS_3, **image("2.15.1"))
    assert job["TrainingJobStatus"] == "Failed"
    assert "keras" in job["FailureReason"]
    assert "AttributeError" in job["FailureReason"]


def test_notices_name_another_version_and_a_gpu_image(jobs, build_environment):
    build_environment("1.15")
    job = jobs.run("print('ran')", **image("1.12.0", device="gpu"))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", lines
    assert "tidemill: TensorFlow 1.12.0 has no environment; running on 1.15.5 instead" in lines[0]
    assert lines[1] == "tidemill: the image is for GPUs; TensorFlow 1.15.5 for CPUs runs instead"


def test_a_python_that_the_version_does_not_run_on_is_refused_at_the_call(jobs):
    with pytest.raises(ClientError, match="it runs on py39, py310, py311, or py3 for any"):
        jobs.create("", **image("2.15.0", "py37"))
