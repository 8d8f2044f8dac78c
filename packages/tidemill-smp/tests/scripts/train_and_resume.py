"""Train with dropout and shuffled data, save after each second step, and resume from the latest checkpoint.

    python -m smdistributed.modelparallel.tensorflow.run -n 2 train_and_resume.py DIRECTORY NUM_STEPS

Prints one line per step, and writes each rank's variables at the end. OPTIMIZER is one of tf.keras.optimizers.
KILL=<rank>:<step>:<where> ends a rank with SIGKILL: before that step, or, with `save<number>`, at the file operation of
that number in the save after the step.
"""

import itertools
import operator
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

import smdistributed.modelparallel.tensorflow as smp

smp.init({"partitions": 2, "microbatches": 2, "auto_partition": False, "default_partition": 0})
if os.environ.get("TF_USE_LEGACY_KERAS"):
    tf.keras.backend.experimental.enable_tf_random_generator()  # so that dropout has seeds to save
tf.keras.utils.set_random_seed(11)
L = tf.keras.layers


class Net(smp.DistributedModel):
    """Layers in a list, dropout, batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.body = [L.Dense(16, activation="tanh"), L.Dropout(0.3), L.Dense(16, activation="tanh")]
        self.norm, self.head = L.BatchNormalization(), L.Dense(3)

    def call(self, x: Any, training: bool | None = None) -> Any:
        for layer in self.body:
            x = layer(x)
        with smp.partition(1):
            return self.head(self.norm(x, training=training))


net = Net()
optimizer = operator.attrgetter(os.environ.get("OPTIMIZER", "Adam"))(tf.keras.optimizers)(0.01)
step = tf.Variable(0, dtype=tf.int64, trainable=False)
order = tf.random.Generator.from_seed(5)
"""Generator that draws the batches. Checkpoints include its state."""


@smp.step
def forward_backward(x: Any, y: Any) -> Any:
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.sparse_categorical_crossentropy(y, net(x, training=True), from_logits=True)
        loss = tf.reduce_mean(losses)
    return tape.gradient(loss, net.trainable_variables), loss


@tf.function
def train_step(x: Any, y: Any) -> Any:
    grads, loss = forward_backward(x, y)
    means = [grad.accumulate() for grad in grads]
    optimizer.apply_gradients(zip(means, net.trainable_variables, strict=True))
    return loss.reduce_mean()


def die(*_: Any, **__: Any) -> NoReturn:
    print("dies", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def kill_in_save(number: int) -> None:
    """Kill this process at the file operation with that number."""
    count = itertools.count()

    def watched(original: Any) -> Any:
        return lambda *args, **options: die() if next(count) >= number else original(*args, **options)

    for name in ("replace", "unlink", "rmdir", "mkdir", "fsync"):
        setattr(os, name, watched(getattr(os, name)))


def main() -> None:
    directory, num_steps = Path(sys.argv[1]), int(sys.argv[2])
    rank, at, where = os.environ.get("KILL", "-1:0:step").split(":")
    checkpoint = tf.train.Checkpoint(net=net, optimizer=optimizer, step=step, order=order)
    manager = smp.CheckpointManager(checkpoint, directory / "checkpoints", max_to_keep=2)
    print(f"rank {smp.rank()} restores {manager.restore()}", flush=True)
    while int(step) < num_steps:
        is_victim = smp.rank() == int(rank) and int(step) == int(at)
        if is_victim and where == "step":
            die()
        x = order.normal([8, 5])
        loss = train_step(x, tf.cast(tf.math.abs(x[:, 0]) * 2, tf.int64) % 3)
        print(f"step {int(step)} on {smp.rank()}: {float(loss).hex()}", flush=True)
        step.assign_add(1)
        if int(step) % 2 == 0:
            if is_victim:
                kill_in_save(int(where.removeprefix("save")))
            manager.save()
    print("steps are over", flush=True)
    held = {
        f"weight{place}": tf.convert_to_tensor(variable).numpy()
        for place, variable in enumerate(smp.local_variables(net))
    }
    held |= {
        f"slot{place}": tf.convert_to_tensor(variable).numpy()
        for place, variable in enumerate(smp.local_variables(optimizer))
    }
    np.savez(directory / f"held-{smp.rank()}.npz", **held)


main()
