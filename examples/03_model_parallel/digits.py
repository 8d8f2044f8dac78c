"""Learn handwritten digits with a model in two manual partitions: the script of SageMaker's documents.

    python -m smdistributed.modelparallel.tensorflow.run -n 2 digits.py --partitions 2
    python digits.py --partitions 1

In a job, the estimator passes the parameters of the library, so the script may call `smp.init()` without arguments.
"""

import argparse
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import smdistributed.modelparallel.tensorflow as smp

TEST = 320


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn handwritten digits with a model cut by hand.")
    parser.add_argument("--partitions", type=int, default=2, help="model parts; the number of ranks must be a multiple")
    parser.add_argument(
        "--microbatches", type=int, default=4, help="microbatches per batch; the batch size must be a multiple"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "model/digits"))
    # A job also passes the parameters of the library as --mp_parameters, so unknown arguments are ignored.
    return parser.parse_known_args()[0]


class Net(smp.DistributedModel):
    """Two convolutions on the first partition, all other layers on the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tf.keras.layers.Conv2D(32, 3, activation="relu")
        self.conv2 = tf.keras.layers.Conv2D(32, 3, activation="relu")
        self.flatten = tf.keras.layers.Flatten()
        self.dropout = tf.keras.layers.Dropout(0.3)
        self.dense = tf.keras.layers.Dense(128, activation="relu")
        self.head = tf.keras.layers.Dense(10)

    def call(self, images: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Return the logits (n, 10) of images (n, 8, 8, 1)."""
        with smp.partition(0):
            features = self.conv2(self.conv1(images))
        with smp.partition(smp.mp_size() - 1):
            features = self.dropout(self.flatten(features), training=training)
            return self.head(self.dense(features))


def load(batch_size: int) -> tuple[tf.data.Dataset, np.ndarray, np.ndarray]:
    """Return the training batches, the same on all ranks of a replica, and the images and digits of the test data."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 8, 8, 1).astype("float32")
    train = tf.data.Dataset.from_tensor_slices((images[TEST:], labels[TEST:]))
    # All batches must have the same size, a multiple of the number of microbatches.
    batches = train.shuffle(2000, seed=7 + smp.dp_rank()).batch(batch_size, drop_remainder=True)
    return batches, images[:TEST], labels[:TEST]


def main() -> None:
    arguments = parse_arguments()
    if "SM_HP_MP_PARAMETERS" in os.environ:
        smp.init()
    else:
        by_hand = {"auto_partition": False, "default_partition": 0}
        smp.init({"partitions": arguments.partitions, "microbatches": arguments.microbatches, **by_hand})
    tf.keras.utils.set_random_seed(7)
    batches, test_images, test_labels = load(arguments.batch_size)
    model = Net()
    optimizer = tf.keras.optimizers.Adam(2e-3)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def forward_backward(images: tf.Tensor, labels: tf.Tensor):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function
    def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        gradients, loss = forward_backward(images, labels)
        gradients = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    @smp.step
    def evaluate(images: tf.Tensor) -> tf.Tensor:
        return model(images, training=False)

    for epoch in range(arguments.epochs):
        losses = [float(train_step(images, labels)) for images, labels in batches]
        if smp.rank() == 0:
            print(f"epoch {epoch + 1}: loss={np.mean(losses):.4f}", flush=True)

    logits = evaluate(test_images).merge()
    accuracy = np.mean(np.argmax(logits, -1) == test_labels)
    model.save_model(arguments.model_dir)  # collective: one SavedModel of the whole model
    if smp.rank() == 0:
        print(f"accuracy on {TEST} test images: {accuracy:.3f}")
        served = tf.saved_model.load(arguments.model_dir).signatures["serving_default"]
        predicted = np.argmax(served(tf.constant(test_images[:5]))["output_0"], -1)
        print(f"the saved model reads {predicted.tolist()} where {test_labels[:5].tolist()} is written")


if __name__ == "__main__":
    main()
