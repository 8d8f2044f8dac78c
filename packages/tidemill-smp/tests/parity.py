"""Train one model in partitions and by plain Keras in one process, and compare."""

import functools
from collections.abc import Mapping
from typing import Any

import pytest

import ranks
from programs import Program

BATCH, STEPS = 16, 20
MANUAL = {"auto_partition": False, "default_partition": 0}
EXACT = ("chain", "zigzag")
"""Models that must be bit-equal to a reference. NumPy computes the reference's mean gradients, and TensorFlow's graph
optimizer is off, because it fuses the ops of a part differently from those of the whole model."""
WHOLE = ("chain", "zigzag", "skips", "shared")
"""Models that Keras trains on whole batches. The results of the other models depend on which rows share a piece, so
Keras trains them on pieces of batches, and TensorFlow differentiates the mean of the losses."""
TOLERANCE = 2e-5
"""Sums over rows are rounded differently. If the gradients of three or more branches meet, AddN adds them in an order
that depends on which memory it can reuse."""


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
    """Assert equal losses and weights; see `compare` for the arguments."""
    options = {"steps": steps, "auto_partition": auto_partition, "environment": environment}
    held = set()
    for losses, references in compare(model, partitions, microbatches, pipeline, **options):
        assert references
        for way, (plain_losses, differences) in references.items():
            tolerance = 0.0 if way == "numpy" else TOLERANCE
            assert losses == pytest.approx(plain_losses, rel=tolerance, abs=0.0), way
            held |= set(differences)
            assert {name: gap for name, gap in differences.items() if gap > tolerance} == {}, way
    assert held == set(range(len(held)))


def compare(
    model: str | Program,
    partitions: int,
    microbatches: int,
    pipeline: str,
    *,
    steps: int = STEPS,
    auto_partition: bool = False,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """Train in both ways.

    Args:
        model: A key of `models.MODELS`, or a function that builds a model.
        partitions: Number of ranks.
        microbatches: Number of microbatches.
        pipeline: The schedule.
        steps: Number of steps to train.
        auto_partition: Whether the library places the layers.
        environment: Environment variables of the ranks.

    Returns:
        For each rank its losses and, per kind of reference, the losses of the reference and the gaps to the variables
        on the rank, by index.
    """
    config = {"auto_partition": True} if auto_partition else MANUAL
    variables = tuple(sorted((environment or {}).items()))
    pieces = {"keras": 1 if model in WHOLE else microbatches}
    if model in EXACT:
        pieces["numpy"] = microbatches
    plain = {way: _train_once(way, model, count, steps, variables) for way, count in pieces.items()}
    arguments = (model, microbatches, pipeline, steps, plain)
    return ranks.run(partitions, train_in_parts, *arguments, config=config, environment=environment)


@functools.lru_cache(maxsize=64)
def _train_once(
    way: str, model: str | Program, pieces: int, steps: int, environment: tuple[tuple[str, str], ...]
) -> tuple[list[float], list[Any]]:
    """Return the reference, which does not depend on the number of ranks and the schedule."""
    (trained,) = ranks.run(1, train_plainly, way, model, pieces, steps, config=MANUAL, environment=dict(environment))
    return trained


def train_plainly(way: str, model: str | Program, pieces: int, steps: int) -> tuple[list[float], list[Any]]:
    """On a separate rank: return the losses and the weights of the plain model."""
    import numpy as np

    import models
    from smdistributed.modelparallel.tensorflow.keras_api import tracked_variables

    train = {"keras": models.plain_steps, "numpy": models.numpy_steps}[way]
    kind, arguments, optimizer = _prepared(model)
    whole = kind(*arguments)
    losses = train(whole, optimizer, models.batches(steps, BATCH), pieces=pieces)
    return losses, [np.asarray(variable) for variable in tracked_variables(whole)]


def train_in_parts(
    model: str | Program, microbatches: int, pipeline: str, steps: int, plain: dict[str, tuple[list[float], list[Any]]]
) -> Any:
    """On a rank: return its part of the result of `compare`."""
    import numpy as np

    import models
    import sessions
    from smdistributed.modelparallel.tensorflow.keras_api import tracked_variables
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    with sessions.configured(microbatches=microbatches, pipeline=pipeline):
        kind, arguments, optimizer = _prepared(model)
        net = models.distributed(kind)(*arguments)
        losses = models.smp_steps(net, optimizer, models.batches(steps, BATCH))

    def differences(weights: list[Any]) -> dict[int, float]:
        return {
            number: float(np.abs(np.asarray(a, "float64") - b.astype("float64")).max(initial=0.0))
            for number, (a, b) in enumerate(zip(tracked_variables(net), weights, strict=True))
            if not is_remote(a)
        }

    return losses, {way: (plain_losses, differences(weights)) for way, (plain_losses, weights) in plain.items()}


def _prepared(model: str | Program) -> tuple[Any, tuple[Any, ...], Any]:
    """Return the model's constructor, its arguments and an optimizer, after setting the seed."""
    import tensorflow as tf

    import models
    import programs
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2

    keras = tf.keras
    if IS_KERAS_2:
        # Otherwise the numbers of a random layer depend on the number of ops in the graph before it.
        keras.backend.experimental.enable_tf_random_generator()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    keras.utils.set_random_seed(3)
    if isinstance(model, str):
        return models.MODELS[model], (smp.mp_size(),), keras.optimizers.Adam(0.01)
    # Adam takes a large step for a gradient that is 0 except for rounding.
    return programs.Random, (smp.mp_size(), model), keras.optimizers.SGD(0.01)
