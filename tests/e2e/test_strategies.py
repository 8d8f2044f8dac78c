"""TensorFlow's strategies on several instances: SageMaker's TF_CONFIG, and scripts that build their own."""

import json
import re
import textwrap
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.core.frameworks import FRAMEWORKS
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"

SERVERS = "sagemaker_parameter_server_enabled"
MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
OWN_CLUSTER = """
    import json, os
    with open("/opt/ml/input/config/resourceconfig.json") as file:
        resources = json.load(file)
    hosts = resources["hosts"]
    cluster = {"worker": [f"{host}:8890" for host in hosts]}
    task = {"type": "worker", "index": hosts.index(resources["current_host"])}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
"""
DIGITS = """
    import hashlib, json, os
    import keras, tensorflow as tf
    from sklearn.datasets import load_digits

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    model.fit(x[:1500], y[:1500], batch_size=100, epochs=6, verbose=0, validation_data=(x[1500:], y[1500:]))
    digest = hashlib.sha256(b"".join(weights.tobytes() for weights in model.get_weights())).hexdigest()
    accuracy = float((model.predict(x[1500:], verbose=0).argmax(1) == y[1500:]).mean())
    found = {"replicas": strategy.num_replicas_in_sync, "accuracy": accuracy, "weights": digest}
    print("FOUND", json.dumps(found), json.loads(os.environ["TF_CONFIG"])["cluster"], flush=True)
    model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
CUSTOM_LOOP = """
    import json, os
    import keras, tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    config["cluster"]["chief"] = config["cluster"].pop("master")
    if config["task"]["type"] == "master":
        config["task"]["type"] = "chief"
    os.environ["TF_CONFIG"] = json.dumps(config)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "worker":
        print("SERVING", cluster.task_id, flush=True)
        tf.distribute.Server(cluster.cluster_spec(), job_name="worker", task_index=cluster.task_id).join()

    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)

    def batches():
        x = tf.random.stateless_normal([256, 4], seed=[1, 2])
        y = x @ tf.constant([[1.0], [2.0], [3.0], [4.0]]) + 5.0
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32)

    @tf.function
    def step(iterator):
        def one(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        strategy.run(one, args=next(iterator))

    data = iter(coordinator.create_per_worker_dataset(batches))
    for _ in range(200):
        coordinator.schedule(step, args=(data,))
    coordinator.join()
    kernel, bias = (variable.numpy().ravel().tolist() for variable in model.trainable_variables)
    print("FOUND", json.dumps([kernel, bias, [variable.value.device for variable in model.trainable_variables]]))
    local = keras.models.clone_model(model)
    local.set_weights(model.get_weights())
    local.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""


ESTIMATOR = """
    import argparse, os
    import numpy as np
    import tensorflow as tf

    def input_fn():
        x = np.random.RandomState(0).normal(size=(256, 4)).astype("float32")
        y = x.dot(np.array([[1.0], [2.0], [3.0], [4.0]], "float32")) + 5.0
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat().batch(32)

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--model_dir")
        estimator = tf.compat.v1.estimator.LinearRegressor(
            [tf.feature_column.numeric_column("x", shape=4)],
            model_dir=parser.parse_args().model_dir,
            optimizer=lambda: tf.compat.v1.train.AdamOptimizer(0.3),
        )
        config = estimator.config
        print("TASK", config.task_type, config.task_id, config.num_ps_replicas, config.num_worker_replicas, flush=True)
        train = tf.estimator.TrainSpec(input_fn, max_steps=600)
        tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(input_fn, steps=8))
        if config.is_chief:
            weights = estimator.get_variable_value("linear/linear_model/x/weights")
            print("WEIGHTS", *weights.ravel().round(2), flush=True)
"""


@pytest.fixture(scope="module")
def three(jobs_of: Any) -> Iterator[Any]:
    """Yield jobs of a service that runs up to three instances."""
    with Service(settings={"max_instances": 3}) as service:
        yield jobs_of(service)


def run(
    jobs: Any, script: str, instances: int, members: dict[str, Any] | None = None, **hyperparameters: str
) -> tuple[dict[str, Any], list[str]]:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1}
    job = jobs.run(script, ResourceConfig=resources, HyperParameters=hyperparameters, **(members or {}))
    return job, jobs.log(job["TrainingJobName"])


def check_digits(jobs: Any, job: dict[str, Any], log: list[str], instances: int) -> None:
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    hosts = ", ".join(f"'algo-{number + 1}:8890'" for number in range(instances))
    lines = [line for line in log if line.startswith("FOUND ")]
    assert len(lines) == instances
    assert all(line.endswith(f" {{'worker': [{hosts}]}}") for line in lines)
    first, *others = (json.loads(line.removeprefix("FOUND ").partition("} ")[0] + "}") for line in lines)
    assert first["replicas"] == instances
    assert first["accuracy"] > 0.85
    assert all(other == first for other in others), "replicas end with equal weights"
    assert sum("are repaired here" in line for line in log) == instances
    assert "1/saved_model.pb" in jobs.model_files(job)


@pytest.mark.matrix
def test_keras_trains_on_two_mirrored_workers(jobs: Any) -> None:
    job, log = run(jobs, DIGITS, 2, **{MIRRORED: "true"})
    check_digits(jobs, job, log, 2)


@pytest.mark.matrix
@pytest.mark.parametrize("instances", [2, 3])
def test_scripts_build_their_own_cluster_of_mirrored_workers(three: Any, instances: int) -> None:
    job, log = run(three, OWN_CLUSTER + DIGITS, instances)
    check_digits(three, job, log, instances)


@pytest.mark.matrix
def test_a_single_mirrored_worker_has_its_own_cluster(jobs: Any) -> None:
    script = 'import os\nprint("CONFIG", os.environ["TF_CONFIG"], flush=True)\n' + textwrap.dedent(DIGITS)
    job, log = run(jobs, script, 1, **{MIRRORED: "true"})
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    (config,) = [json.loads(line.removeprefix("CONFIG ")) for line in log if line.startswith("CONFIG ")]
    assert [host.partition(":")[0] for host in config["cluster"]["worker"]] == ["algo-1"]
    assert "isolation=full" in log[0], "TensorFlow listens on all interfaces"
    assert config["task"] == {"type": "worker", "index": 0}
    assert not any("repaired" in line for line in log), "Keras is sound on one worker"


def check_custom_loop(job: dict[str, Any], log: list[str], instances: int) -> None:
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    (found,) = [line.removeprefix("FOUND ") for line in log if line.startswith("FOUND ")]
    kernel, bias, devices = json.loads(found)
    assert kernel + bias == pytest.approx([1, 2, 3, 4, 5], abs=0.01)
    assert all(device.startswith("/job:ps/") for device in devices)
    assert sum(line.startswith("SERVING ") for line in log) == instances - 1
    assert sum("tidemill: script.left exit_code=-15" in line for line in log) == instances - 1


def test_a_custom_loop_trains_on_the_parameter_servers_of_two_instances(jobs: Any) -> None:
    job, log = run(jobs, CUSTOM_LOOP, 2, **{SERVERS: "true"})
    check_custom_loop(job, log, 2)
    assert "1/saved_model.pb" in jobs.model_files(job)


@pytest.mark.matrix
def test_a_custom_loop_trains_on_the_parameter_servers_of_three_instances(three: Any) -> None:
    job, log = run(three, CUSTOM_LOOP, 3, **{SERVERS: "true"})
    check_custom_loop(job, log, 3)


@pytest.mark.matrix
@pytest.mark.parametrize("instances", [2, 3])
@pytest.mark.parametrize("version", ["2.15", "1.15"])
def test_estimators_train_on_parameter_servers_with_checkpoints_in_s3(three: Any, version: str, instances: int) -> None:
    release = FRAMEWORKS[version].release
    image = f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{release}-cpu-py3"
    name = f"estimator-{uuid.uuid4().hex[:8]}"
    members = {
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/"},
        "name": name,
    }
    model_dir = f"s3://{BUCKET}/{name}/model"
    hyperparameters = {SERVERS: "true", "model_dir": json.dumps(model_dir)}
    job, log = run(three, ESTIMATOR, instances, members, **hyperparameters)
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    assert "WEIGHTS 1.0 2.0 3.0 4.0" in log
    workers = [f"TASK worker {index} {instances} {instances}" for index in range(instances - 1)]
    assert [line for line in log if line.startswith("TASK ")] == [f"TASK master 0 {instances} {instances}", *workers]
    listed = three.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/model/")["Contents"]
    keys = {each["Key"] for each in listed}
    last = max(int(match[1]) for key in keys if (match := re.search(r"model\.ckpt-(\d+)\.index$", key)))
    assert 600 <= last < 600 + instances, "other workers may take their last steps after the 600th"
    parts = [key for key in keys if f"/model.ckpt-{last}.data-" in key]
    assert len(parts) >= instances, "each server writes its part"
