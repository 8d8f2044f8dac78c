"""Training script: a model in two partitions, with one replica for each two ranks, and images drawn by NumPy.

    LAUNCH="python -m smdistributed.modelparallel.tensorflow.run"

    $LAUNCH -n 4 train.py                         # 2 partitions x 2 replicas, averaged by Horovod
    $LAUNCH -n 4 train.py --average ddp           # the same, averaged by the library
    mpirun -np 4 python train.py                  # the same, started by MPI
    python train.py --partitions 1                # one process: the same losses

All of these commands print the same lines, up to rounding.
"""

import argparse
import json

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd  # smp.init starts it: no hvd.init in the script
import smdistributed.modelparallel.tensorflow as smp

DIGITS, PIXELS, EXAMPLES, BATCH = 10, 64, 1024, 64


class Net(smp.DistributedModel):
    def __init__(self):
        super().__init__()
        self.body = tf.keras.layers.Dense(64, activation="relu")
        self.middle = tf.keras.layers.Dense(64, activation="relu")
        self.head = tf.keras.layers.Dense(DIGITS)

    def call(self, images, training=None):
        return self.head(self.middle(self.body(images)))


def draw(seed):
    """Return noisy images of ten shapes, and the number of each image's shape; the same on all ranks."""
    random = np.random.default_rng(seed)
    shapes = np.random.default_rng(0).normal(size=(DIGITS, PIXELS))
    digits = random.integers(DIGITS, size=EXAMPLES)
    images = shapes[digits] + 1.5 * random.normal(size=(EXAMPLES, PIXELS))
    return images.astype("float32"), digits


def batches(images, digits):
    """Yield this replica's share of every batch. Ranks of one replica must get the same examples in the same order."""
    for start in range(0, EXAMPLES, BATCH):
        rows = slice(start + smp.dp_rank(), start + BATCH, smp.dp_size())
        yield tf.constant(images[rows]), tf.constant(digits[rows])


parser = argparse.ArgumentParser()
parser.add_argument("--partitions", type=int, default=2)
parser.add_argument("--average", choices=["horovod", "ddp"], default="horovod")
parser.add_argument("--epochs", type=int, default=3)
args, _ = parser.parse_known_args()

smp.init({"partitions": args.partitions, "microbatches": 2, args.average: True})
tf.keras.utils.set_random_seed(1)
net, optimizer = Net(), tf.keras.optimizers.Adam(3e-3)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@smp.step
def forward_backward(images, digits):
    logits = net(images, training=True)
    loss = loss_of(digits, logits)
    return optimizer.get_gradients(loss, net.trainable_variables), loss


@smp.step
def evaluate(images, digits):
    hits = tf.equal(tf.argmax(net(images, training=False), -1), tf.cast(digits, tf.int64))
    return tf.reduce_mean(tf.cast(hits, tf.float32))


@tf.function
def train_step(images, digits, first_batch):
    grads, loss = forward_backward(images, digits)
    grads = [grad.accumulate() for grad in grads]
    if args.average == "horovod":
        grads = [hvd.allreduce(grad) for grad in grads]
    grads, _ = smp.clip_by_global_norm(grads, 1.0)
    optimizer.apply_gradients(zip(grads, net.trainable_variables, strict=True))
    if args.average == "horovod" and first_batch:
        hvd.broadcast_variables(net.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    return loss.reduce_mean()


def mean(value):
    """Return the mean over the replicas."""
    return float(np.mean(smp.allgather(float(value), smp.DP_GROUP)))


training, held_out = draw(seed=2), draw(seed=3)
for epoch in range(args.epochs):
    for number, (images, digits) in enumerate(batches(*training)):
        loss = train_step(images, digits, first_batch=epoch == number == 0)
    accuracy = np.mean([evaluate(images, digits).reduce_mean() for images, digits in batches(*held_out)])
    told = {"epoch": epoch, "loss": round(mean(loss), 4), "accuracy": round(mean(accuracy), 4)}
    if smp.rank() == 0:
        print(json.dumps(told), flush=True)
