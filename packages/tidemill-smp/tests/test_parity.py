"""Training in partitions and training without them result in the same weights."""

import itertools

import pytest

import parity

pytestmark = pytest.mark.smp_first

CASES = [
    # (model, partitions, microbatches, pipeline): every model, number of ranks and of microbatches, and both schedules.
    # MATRIX has the rest.
    ("chain", 1, 4, "interleaved"),
    ("language", 2, 4, "interleaved"),
    ("shared", 2, 1, "interleaved"),
    ("branches", 2, 4, "simple"),
    ("chain", 3, 8, "simple"),
    ("recurrent", 3, 4, "simple"),
    ("raw", 3, 2, "interleaved"),
    ("skips", 4, 1, "simple"),
    ("zigzag", 4, 2, "interleaved"),
    ("mixed", 4, 4, "simple"),
]
MATRIX = [
    case
    for case in itertools.product(
        ("chain", "skips", "zigzag", "shared", "branches", "language", "mixed", "recurrent", "raw"),
        (1, 2, 3, 4),
        (1, 2, 4, 8),
        ("interleaved", "simple"),
    )
    if case not in CASES
]


@pytest.mark.parametrize(("model", "partitions", "microbatches", "pipeline"), CASES)
def test_weights_equal_those_of_the_unpartitioned_model(
    model: str, partitions: int, microbatches: int, pipeline: str
) -> None:
    parity.check(model, partitions, microbatches, pipeline)


@pytest.mark.matrix
@pytest.mark.parametrize(("model", "partitions", "microbatches", "pipeline"), MATRIX)
def test_weights_equal_in_every_combination(model: str, partitions: int, microbatches: int, pipeline: str) -> None:
    parity.check(model, partitions, microbatches, pipeline)
