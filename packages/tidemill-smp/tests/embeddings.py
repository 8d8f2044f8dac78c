"""On a rank: models with all kinds of lookups, trained by the library, and by plain Keras on the whole batch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import models
import sessions
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import forget_the_step_before
from smdistributed.modelparallel.tensorflow.variables import is_remote

keras = tf.keras
L = keras.layers
TOKENS, LENGTH, WIDTH = 7, 4, 6
BATCH, STEPS = 16, 6

KINDS = (
    "constant positions",  # tf.range(LENGTH)
    "positions by shape",  # tf.range(tf.shape(tokens)[1])
    "ids",  # from the batch, with many repetitions
    "position ids",  # positions that are part of the batch
    "zeros",  # one row per token, created from the shape of the batch
    "one table",  # for tokens and positions
    "one table on two ranks",
    "tied",  # to the output: the gradient is dense
)
EVERYTHING = "everything but tied"


class Net(keras.Model):
    """Look up tokens and the rows of its kind. The first lookup is on the first rank, the others on the last rank."""

    def __init__(self, kind: str, partitions: int) -> None:
        super().__init__()
        self.kinds = KINDS[:-1] if kind == EVERYTHING else (kind,)
        self.last = partitions - 1
        self.tokens = L.Embedding(TOKENS, WIDTH, embeddings_initializer="normal")
        sizes = {"one table": TOKENS, "one table on two ranks": TOKENS}
        self.tables = [L.Embedding(sizes.get(one, LENGTH), WIDTH, embeddings_initializer="normal") for one in KINDS]
        self.body = L.Dense(WIDTH, activation="tanh")
        self.head = L.Dense(TOKENS)

    def call(self, x: Any, training: bool | None = None) -> Any:
        tokens = x[:, :, 0]
        h = self.tokens(tokens)
        for kind in self.kinds:
            h += self._looked_up(kind, x, tokens)
        with smp.partition(self.last // 2):
            h = tf.reduce_mean(self.body(h), 1)
        with smp.partition(self.last):
            if "tied" in self.kinds:
                return tf.matmul(h, tf.convert_to_tensor(self.tokens.embeddings), transpose_b=True)
            return self.head(h)

    def _looked_up(self, kind: str, x: Any, tokens: Any) -> Any:
        table, length = self.tables[KINDS.index(kind)], tf.shape(tokens)[1]
        if kind == "one table on two ranks":
            h = table(tokens)
            with smp.partition(self.last):
                return h + table(tf.range(length))
        with smp.partition(self.last):
            if kind == "one table":
                return table(tf.range(LENGTH)) + table(tokens)
            if kind in ("ids", "tied"):
                return 0.0
            places = {
                "constant positions": lambda: tf.range(LENGTH),
                "positions by shape": lambda: tf.range(length),
                "position ids": lambda: x[:, :, 1],
                "zeros": lambda: tf.zeros_like(tokens),
            }
            return table(places[kind]())


class DistributedNet(Net, smp.DistributedModel):
    """The same model, partitioned."""


def batches() -> list[tuple[Any, Any]]:
    """Return tokens, positions and targets."""
    random = np.random.RandomState(5)
    targets = random.randn(LENGTH, TOKENS, TOKENS)  # contribution of each token at each place
    places = np.broadcast_to(np.arange(LENGTH), (BATCH, LENGTH))
    drawn = [random.randint(0, TOKENS, (BATCH, LENGTH)) for _ in range(STEPS)]
    return [
        (np.stack([tokens, places], -1).astype("int32"), targets[places, tokens].mean(1).astype("float32"))
        for tokens in drawn
    ]


def optimizer_of(name: str) -> Any:
    """Return an optimizer of the Keras in use."""
    o = keras.optimizers
    return {
        "adam": lambda: o.Adam(0.05),
        "adamw": lambda: o.AdamW(0.05, weight_decay=0.01),
        "rmsprop": lambda: o.RMSprop(0.05),
        "adagrad": lambda: o.Adagrad(0.5),
        "sgd": lambda: o.SGD(0.5, momentum=0.9),
        "clipped": lambda: o.Adam(0.05, global_clipnorm=0.02),
        "clipped each": lambda: o.Adam(0.05, clipnorm=0.01),
        "clipped by hand": lambda: o.SGD(0.5, momentum=0.9),
        "legacy": lambda: o.legacy.Adam(0.05, global_clipnorm=0.02),
    }[name]()


def loss_of(model: Any, x: Any, y: Any) -> Any:
    """Return the mean loss over the rows."""
    return tf.reduce_mean(tf.square(model(x, training=True) - y))


def train_plainly(kind: str, optimizer: str) -> tuple[list[float], list[Any], list[Any]]:
    """Train by plain Keras on whole batches in one process; return losses, weights, and initial weights."""
    keras.utils.set_random_seed(3)
    model, updating = Net(kind, 1), optimizer_of(optimizer)
    model(tf.constant(batches()[0][0]))
    before = [np.array(variable) for variable in model.variables]

    @models.plain_function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        grads = tape.gradient(loss, model.trainable_variables)
        if optimizer == "clipped by hand":
            grads, _ = tf.clip_by_global_norm(grads, 0.02)
        updating.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    losses = [float(step(tf.constant(x), tf.constant(y))) for x, y in batches()]
    return losses, [np.asarray(variable) for variable in model.variables], before


def train(kind: str, optimizer: str, averaging: str, sizes: str) -> tuple[list[float], Any]:
    """Train by the library on this replica's rows of each batch."""
    forget_the_step_before()
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model, updating = DistributedNet(kind, smp.mp_size()), optimizer_of(optimizer)
    known = {"known": [BATCH // smp.dp_size(), LENGTH], "batch unknown": [None, LENGTH], "unknown": [None, None]}[sizes]

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function(input_signature=[tf.TensorSpec([*known, 2], tf.int32), tf.TensorSpec([known[0], TOKENS])])
    def step(x: Any, y: Any) -> Any:
        grads, loss = forward_backward(x, y)
        means = reduced([grad.accumulate() for grad in grads], averaging)
        if optimizer == "clipped by hand":
            means, _ = smp.clip_by_global_norm(means, 0.02)
        updating.apply_gradients(zip(means, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    losses = []
    for x, y in batches():
        mine = float(step(*(tf.constant(np.split(part, smp.dp_size())[smp.dp_rank()]) for part in (x, y))))
        losses.append(float(np.mean(smp.allgather(mine, smp.DP_GROUP))))
    return losses, model


def reduced(grads: list[Any], averaging: str) -> list[Any]:
    """Average the gradients as a script does."""
    if not averaging.startswith("horovod"):
        return grads
    import horovod.tensorflow as hvd

    if averaging == "horovod grouped":
        return list(hvd.grouped_allreduce(grads))
    return [hvd.allreduce(grad) for grad in grads]


def compare(cases: Sequence[tuple[str, int, str, str, str]]) -> dict[Any, Any]:
    """Train each case, and compare.

    Args:
        cases: (kind, microbatches, optimizer, averaging, sizes): averaging is `none`, `ddp`, `sharded`, `horovod` or
            `horovod grouped`; sizes are `known`, `batch unknown` or `unknown` when the step is traced.

    Returns:
        Per case: the largest relative gap of a loss, the largest gap of a weight on this rank, the smallest change of a
        variable by Keras, and the bytes of the variables on this rank.
    """
    wanted = sorted({(kind, optimizer) for kind, _, optimizer, _, _ in cases})
    own = {case: train_plainly(*case) for case in wanted[smp.rank() :: smp.size()]}
    plain = {case: found for mine in smp.allgather(own, smp.WORLD) for case, found in mine.items()}
    results = {}
    for case in cases:
        kind, microbatches, optimizer, averaging, sizes = case
        options = {"ddp": averaging in ("ddp", "sharded"), "shard_optimizer_state": averaging == "sharded"}
        with sessions.configured(microbatches=microbatches, horovod=averaging.startswith("horovod"), **options):
            losses, model = train(kind, optimizer, averaging, sizes)
        plain_losses, weights, before = plain[kind, optimizer]
        held = [(np.asarray(v), w) for v, w in zip(model.variables, weights, strict=True) if not is_remote(v)]
        results[case] = (
            max(math.fabs(a - b) / b for a, b in zip(losses, plain_losses, strict=True)),
            max((float(np.abs(a - b).max()) for a, b in held), default=0.0),
            min(float(np.abs(a - b).max()) for a, b in zip(weights, before, strict=True)),
            [a.tobytes() for a, _ in held],
        )
    return results
