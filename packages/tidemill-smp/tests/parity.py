"""Train one model twice, in partitions and in one piece, and compare."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

import ranks
from programs import Program

BATCH, STEPS = 16, 20
EXACT = ("chain", "zigzag")
"""Not a bit differs here, without TensorFlow's graph optimizer: it melts ops of a part as it would not in the whole."""
TOLERANCE = 2e-5
"""Where gradients of three and more branches meet: AddN adds them in the order in which it may reuse their memory."""


def check(
    model: str | Program,
    partitions: int,
    microbatches: int,
    pipeline: str,
    *,
    steps: int = STEPS,
    auto_partition: bool = False,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Assert that both give the same losses and weights.

    Args:
        model: A key of `models.MODELS`, or what makes a model.
        partitions: How many ranks.
        microbatches: How many a batch is cut into.
        pipeline: The schedule.
        steps: How many steps to train.
        auto_partition: Whether the library places the layers.
        environment: Of the ranks.
    """
    config = {"auto_partition": True} if auto_partition else {"auto_partition": False, "default_partition": 0}
    arguments = (model, microbatches, pipeline, steps)
    results = ranks.run(partitions, train_both, *arguments, config=config, environment=environment)
    held = set()
    tolerance = 0.0 if model in EXACT else TOLERANCE
    for losses, plain_losses, differences in results:
        assert losses == pytest.approx(plain_losses, rel=tolerance, abs=0.0)
        held |= set(differences)
        assert {name: gap for name, gap in differences.items() if gap > tolerance} == {}
    assert held == set(range(len(held)))


def train_both(model: str | Program, microbatches: int, pipeline: str, steps: int) -> Any:
    """On a rank: train the model plain and distributed, and compare what this rank holds."""
    import numpy as np
    import tensorflow as tf

    import models
    import programs
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow import session
    from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign
    from smdistributed.modelparallel.tensorflow.keras_api import IS_TF_KERAS, tracked_variables

    keras = tf.keras
    if IS_TF_KERAS:
        # Else the numbers of a random layer depend on how many ops the graph had before it.
        keras.backend.experimental.enable_tf_random_generator()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    now = session.current()
    session.set_current(
        dataclasses.replace(now, config=dataclasses.replace(now.config, microbatches=microbatches, pipeline=pipeline))
    )
    data = models.batches(steps, BATCH)
    if isinstance(model, str):
        kind, arguments, optimizer = models.MODELS[model], (now.config.partitions,), keras.optimizers.Adam
    else:
        # Adam makes a large step of a gradient that is 0 but for rounding.
        kind, arguments, optimizer = programs.Random, (now.config.partitions, model), keras.optimizers.SGD
    keras.utils.set_random_seed(3)
    net = models.distributed(kind)(*arguments)
    losses = models.smp_steps(net, optimizer(0.01), data)
    if smp.rank() == 0:
        keras.utils.set_random_seed(3)
        plain = kind(*arguments)
        plain_losses = models.plain_steps(plain, optimizer(0.01), data, microbatches)
        weights = [np.asarray(variable) for variable in tracked_variables(plain)]
        smp.broadcast((plain_losses, weights), smp.WORLD)
    else:
        plain_losses, weights = smp.recv_from(0, smp.RankType.WORLD_RANK)
    differences = {
        number: float(np.abs(np.asarray(a, "float64") - b.astype("float64")).max(initial=0.0))
        for number, (a, b) in enumerate(zip(tracked_variables(net), weights, strict=True))
        if not is_foreign(a)
    }
    return losses, plain_losses, differences
