"""The library with tf_keras: `tf.keras` of a process with TF_USE_LEGACY_KERAS=1."""

import itertools

import pytest

import parity

pytestmark = pytest.mark.smp_saved

TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
MODELS = ("chain", "skips", "zigzag", "shared", "branches", "language", "mixed", "recurrent", "raw")
CASES = [
    # (partitions, microbatches, pipeline)
    (2, 4, "interleaved"),
    (3, 2, "simple"),
    (2, 2, "simple"),
    (3, 4, "interleaved"),
]
FIRST = [
    (model, CASES[number % 2]) for number, model in enumerate(("chain", "shared", "language", "mixed", "recurrent"))
]
"""Models that differ by what tf_keras does. The others differ by what the engine does, as in `test_parity`."""
OTHERS = [pair for pair in itertools.product(MODELS, CASES) if pair not in FIRST]


@pytest.mark.parametrize(("model", "case"), FIRST, ids=str)
def test_weights_equal_those_of_the_unpartitioned_model(model: str, case: tuple[int, int, str]) -> None:
    parity.check(model, *case, environment=TF_KERAS)


@pytest.mark.matrix
@pytest.mark.parametrize(("model", "case"), OTHERS, ids=str)
def test_weights_equal_in_the_other_combinations(model: str, case: tuple[int, int, str]) -> None:
    parity.check(model, *case, environment=TF_KERAS)
