"""Training in partitions gives the weights of training without."""

import dataclasses
import itertools
from typing import Any

import pytest

import ranks

BATCH, STEPS = 16, 20
EXACT = ("chain", "zigzag")
"""Not a bit differs here, without TensorFlow's graph optimizer: it melts ops of a part as it would not in the whole."""
TOLERANCE = 2e-5
"""Where gradients of three and more branches meet: AddN adds them in the order in which it may reuse their memory."""
CASES = [
    # (model, partitions, microbatches, pipeline): every pair of values occurs
    ("chain", 2, 4, "interleaved"),
    ("chain", 3, 8, "simple"),
    ("chain", 4, 2, "interleaved"),
    ("skips", 2, 8, "simple"),
    ("skips", 3, 1, "interleaved"),
    ("skips", 4, 4, "simple"),
    ("zigzag", 2, 2, "simple"),
    ("zigzag", 3, 4, "interleaved"),
    ("zigzag", 4, 8, "interleaved"),
    ("shared", 2, 1, "interleaved"),
    ("shared", 3, 2, "simple"),
    ("shared", 4, 8, "simple"),
    ("branches", 2, 4, "simple"),
    ("branches", 3, 8, "interleaved"),
    ("branches", 4, 1, "simple"),
    ("language", 2, 4, "interleaved"),
    ("language", 3, 2, "simple"),
    ("language", 4, 2, "interleaved"),
    ("language", 1, 4, "interleaved"),
]
MATRIX = [
    case
    for case in itertools.product(
        ("chain", "skips", "zigzag", "shared", "branches", "language"),
        (1, 2, 3, 4),
        (1, 2, 4, 8),
        ("interleaved", "simple"),
    )
    if case not in CASES
]


@pytest.mark.parametrize(("model", "partitions", "microbatches", "pipeline"), CASES)
def test_weights_equal_those_of_the_model_in_one_piece(
    model: str, partitions: int, microbatches: int, pipeline: str
) -> None:
    _check(model, partitions, microbatches, pipeline)


@pytest.mark.matrix
@pytest.mark.parametrize(("model", "partitions", "microbatches", "pipeline"), MATRIX)
def test_weights_equal_in_every_combination(model: str, partitions: int, microbatches: int, pipeline: str) -> None:
    _check(model, partitions, microbatches, pipeline)


def _check(model: str, partitions: int, microbatches: int, pipeline: str) -> None:
    config = {"auto_partition": False, "default_partition": 0}
    results = ranks.run(partitions, train_both, model, microbatches, pipeline, config=config)
    held = set()
    tolerance = 0.0 if model in EXACT else TOLERANCE
    for losses, plain_losses, differences in results:
        assert losses == pytest.approx(plain_losses, rel=tolerance, abs=0.0)
        held |= set(differences)
        assert {name: gap for name, gap in differences.items() if gap > tolerance} == {}
    assert held == set(range(len(held)))


def train_both(model: str, microbatches: int, pipeline: str) -> Any:
    """On a rank: train the model plain and distributed, and compare what this rank holds."""
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import session
    from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign

    keras = tf.keras
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    now = session.current()
    session.set_current(
        dataclasses.replace(
            now, config=dataclasses.replace(now.config, microbatches=microbatches, pipeline=pipeline)
        )
    )
    data = models.batches(STEPS, BATCH)
    kind = models.MODELS[model]
    keras.utils.set_random_seed(3)
    net = models.distributed(kind)(now.config.partitions)
    losses = models.smp_steps(net, keras.optimizers.Adam(0.01), data)
    if smp.rank() == 0:
        keras.utils.set_random_seed(3)
        plain = kind(now.config.partitions)
        plain_losses = models.plain_steps(plain, keras.optimizers.Adam(0.01), data, microbatches)
        weights = [np.asarray(variable) for variable in plain.variables]
        smp.broadcast((plain_losses, weights), smp.WORLD)
    else:
        plain_losses, weights = smp.recv_from(0, smp.RankType.WORLD_RANK)
    differences = {
        number: float(np.abs(np.asarray(a, "float64") - b.astype("float64")).max(initial=0.0))
        for number, (a, b) in enumerate(zip(net.variables, weights, strict=True))
        if not is_foreign(a)
    }
    return losses, plain_losses, differences
