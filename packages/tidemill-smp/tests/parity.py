"""Train one model in partitions, and by Keras alone in one process, and compare."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import ranks
from programs import Program

BATCH, STEPS = 16, 20
EXACT = ("chain", "zigzag")
"""Not a bit differs here from the means that NumPy makes of the microbatches' gradients, without TensorFlow's graph
optimizer: it melts ops of a part as it would not in the whole."""
WHOLE = ("chain", "zigzag", "skips", "shared")
"""Trained by Keras on whole batches. What the other models compute depends on which rows they see together: Keras gets
these in pieces, and TensorFlow differentiates the mean."""
TOLERANCE = 2e-5
"""Sums over rows are rounded otherwise; and where gradients of three and more branches meet, AddN adds them in the
order in which it may reuse their memory."""


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
    for losses, references in results:
        assert references
        for way, (plain_losses, differences) in references.items():
            tolerance = 0.0 if way == "numpy" else TOLERANCE
            assert losses == pytest.approx(plain_losses, rel=tolerance, abs=0.0), way
            held |= set(differences)
            assert {name: gap for name, gap in differences.items() if gap > tolerance} == {}, way
    assert held == set(range(len(held)))


def train_both(model: str | Program, microbatches: int, pipeline: str, steps: int) -> Any:
    """On a rank: the losses, and by way of training plainly those losses and how far off is what this rank holds."""
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
        plain = {}
        for way, train in _plain_ways(model, microbatches).items():
            keras.utils.set_random_seed(3)
            whole = kind(*arguments)
            plain_losses = train(whole, optimizer(0.01), data)
            plain[way] = plain_losses, [np.asarray(variable) for variable in tracked_variables(whole)]
        smp.broadcast(plain, smp.WORLD)
    else:
        plain = smp.recv_from(0, smp.RankType.WORLD_RANK)

    def differences(weights: list[Any]) -> dict[int, float]:
        return {
            number: float(np.abs(np.asarray(a, "float64") - b.astype("float64")).max(initial=0.0))
            for number, (a, b) in enumerate(zip(tracked_variables(net), weights, strict=True))
            if not is_foreign(a)
        }

    return losses, {way: (plain_losses, differences(weights)) for way, (plain_losses, weights) in plain.items()}


def _plain_ways(model: str | Program, microbatches: int) -> dict[str, Callable[..., list[float]]]:
    import models

    whole = functools.partial(models.plain_steps, pieces=1 if model in WHOLE else microbatches)
    if model in EXACT:
        return {"keras": whole, "numpy": functools.partial(models.numpy_steps, pieces=microbatches)}
    return {"keras": whole}
