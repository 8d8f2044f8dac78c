"""Train the digits on two instances with each kind of distribution, and in one process, and print the accuracy of each.

    .venv/bin/python benchmarks/instances_accuracy.py
    .venv/bin/python benchmarks/instances_accuracy.py horovod    # only the named ones

Every way has the same model, initial weights, batches of 64 images over all instances, and 10 epochs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tidemill.sdk import Session, TensorFlow
from tidemill.testing import Service

SCRIPT = """
import argparse, json, os

parser = argparse.ArgumentParser()
parser.add_argument("--way")
way = parser.parse_known_args()[0].way
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
order = np.random.default_rng(0).permutation(len(images))
train, test = order[:1408], order[1408:]
epochs, batch = 10, 64
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def layers():
    kernels = [tf.keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
    hidden = tf.keras.layers.Dense(64, activation="relu", kernel_initializer=kernels[0])
    return hidden, tf.keras.layers.Dense(10, kernel_initializer=kernels[1])


def plain_model():
    return tf.keras.Sequential([tf.keras.Input([64]), *layers()])


def batches():
    for epoch in range(epochs):
        rows = np.random.default_rng(epoch).permutation(train)
        for first in range(0, len(rows), batch):
            yield rows[first : first + batch]


def say(logits):
    print(f"accuracy={np.mean(np.argmax(logits, -1) == labels[test]):.4f}", flush=True)


def loop(model, wrap=lambda tape: tape, part=slice(None)):
    optimizer = tf.keras.optimizers.Adam(0.005)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x))
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for rows in batches():
        step(images[rows[part]], labels[rows[part]])
    return model(images[test])


def one_process():
    say(loop(plain_model()))


def horovod():
    import horovod.tensorflow as hvd

    hvd.init()
    logits = loop(plain_model(), hvd.DistributedGradientTape, slice(hvd.rank(), None, hvd.size()))
    if hvd.rank() == 0:
        say(logits)


def mirrored():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = plain_model()
        model.compile(tf.keras.optimizers.Adam(0.005), loss_of)
    rows = np.concatenate(list(batches()))
    data = tf.data.Dataset.from_tensor_slices((images[rows], labels[rows])).batch(batch)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    model.fit(data.with_options(options), verbose=0)
    if os.environ["SM_CURRENT_HOST"] == "algo-1":
        weights = model.get_weights()
        local = plain_model()
        local.set_weights(weights)
        say(local(images[test]))


def modelparallel():
    import smdistributed.modelparallel.tensorflow as smp

    smp.init()

    class Net(smp.DistributedModel):
        def __init__(self):
            super().__init__()
            self.hidden, self.head = layers()

        def call(self, x):
            with smp.partition(0):
                x = self.hidden(x)
            with smp.partition(1):
                return self.head(x)

    model, optimizer = Net(), tf.keras.optimizers.Adam(0.005)

    @smp.step
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x))
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def step(x, y):
        gradients = [gradient.accumulate() for gradient in gradients_of(x, y)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @smp.step
    def evaluate(x):
        return model(x)

    for rows in batches():
        step(images[rows], labels[rows])
    padded = np.pad(images[test], [(0, -len(test) % 4), (0, 0)])  # microbatches must divide it
    logits = evaluate(padded).merge()[: len(test)]
    if smp.rank() == 0:
        say(logits)


def parameter_server():
    config = json.loads(os.environ["TF_CONFIG"])
    config["cluster"]["chief"] = config["cluster"].pop("master")
    if config["task"]["type"] == "master":
        config["task"]["type"] = "chief"
    os.environ["TF_CONFIG"] = json.dumps(config)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "worker":
        tf.distribute.Server(cluster.cluster_spec(), job_name="worker", task_index=cluster.task_id).join()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = plain_model(), tf.keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        strategy.run(replica, args=(x, y))

    for rows in batches():
        coordinator.schedule(step, args=(tf.constant(images[rows]), tf.constant(labels[rows])))
    coordinator.join()
    local = plain_model()
    local.set_weights([variable.numpy() for variable in model.variables])
    say(local(images[test]))


globals()[way]()
"""
MPI = {"enabled": True, "processes_per_host": 1}
PARAMETERS = {"partitions": 2, "microbatches": 4, "auto_partition": False, "default_partition": 0}
WAYS: dict[str, tuple[int, Any]] = {
    "one_process": (1, None),
    "mirrored": (2, {"multi_worker_mirrored_strategy": {"enabled": True}}),
    "horovod": (2, {"mpi": MPI}),
    "modelparallel": (2, {"smdistributed": {"modelparallel": {"enabled": True, "parameters": PARAMETERS}}, "mpi": MPI}),
    "parameter_server": (2, {"parameter_server": {"enabled": True}}),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Service(settings={"max_instances": 2}) as service:
        script = Path(directory) / "train.py"
        script.write_text(SCRIPT)
        session = Session(service.boto3_session())
        for way in sys.argv[1:] or WAYS:
            instances, distribution = WAYS[way]
            estimator = TensorFlow(
                str(script),
                role="tidemill",
                instance_count=instances,
                instance_type="local",
                framework_version="2.21",
                py_version="py311",
                hyperparameters={"way": way},
                distribution=distribution,
                metric_definitions=[{"Name": "accuracy", "Regex": r"accuracy=([0-9.]+)"}],
                sagemaker_session=session,
            )
            estimator.fit(logs=False)
            found = session.sagemaker_client.describe_training_job(TrainingJobName=estimator.latest_training_job.name)
            (metric,) = found["FinalMetricDataList"]
            print(f"{way}: {metric['Value']:.4f}", flush=True)


if __name__ == "__main__":
    main()
