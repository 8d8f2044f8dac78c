"""Train in partitions, in the style of the scripts of SageMaker's documents on model parallelism for TensorFlow 2.3.

Reads `plain.npz` and the checkpoint `plain` that `plain_mnist.py` has written to the channel, and writes what that
script compares.
"""

import os

import numpy as np
import tensorflow as tf

import smdistributed.modelparallel.tensorflow as smp

smp.init()
tf.keras.utils.set_random_seed(3)

plain = os.environ["SM_CHANNEL_PLAIN"]
output = os.environ["SM_MODEL_DIR"]
data = np.load(plain + "/plain.npz")
shard = slice(smp.dp_rank(), None, smp.dp_size())
batches = list(zip(data["images"][:, shard], data["labels"][:, shard]))


class Net(smp.DistributedModel):
    def __init__(self):
        super().__init__()
        self.conv = tf.keras.layers.Conv2D(4, 3, activation="relu")
        self.flatten = tf.keras.layers.Flatten()
        self.dense = tf.keras.layers.Dense(32, activation="relu")
        self.head = tf.keras.layers.Dense(10)

    def call(self, x, training=None):
        return self.head(self.dense(self.flatten(self.conv(x))))


def trained(path=None):
    """Return the model, its checkpoints and the loss of each step."""
    model = Net()
    family = tf.keras.optimizers.legacy if data["legacy"] else tf.keras.optimizers
    optimizer = family.Adam(learning_rate=0.01)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train_loss = tf.keras.metrics.Mean(name="train_loss")
    manager = smp.CheckpointManager(tf.train.Checkpoint(model=model, optimizer=optimizer), output + "/checkpoints")

    @smp.step
    def get_grads(images, labels):
        loss = loss_object(labels, model(images, training=True))
        return optimizer.get_gradients(loss, model.trainable_variables), loss

    @tf.function
    def train_step(images, labels):
        gradients, loss = get_grads(images, labels)
        gradients = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss.reduce_mean()

    manager.restore(path)
    losses = []
    for images, labels in batches[len(batches) // 2 if path else 0 :]:
        train_loss.reset_states()
        train_loss(train_step(images, labels))
        losses.append(float(np.mean(smp.allgather(float(train_loss.result()), smp.DP_GROUP))))
    return model, manager, losses


model, manager, losses = trained()
manager.save()
manager.export(output + "/exported")
model.save_model(output + "/model")
_, _, resumed = trained(plain + "/plain-1")
if smp.rank() == 0:
    np.savez(output + "/smp.npz", losses=losses, resumed=resumed)
