"""A model that is too large for one rank is not too large for two."""

import pytest

import memory
import ranks

pytestmark = pytest.mark.smp_long

WIDTH = 4096
LIMIT_BYTES = memory.weights_bytes(WIDTH) * 7 // 2
"""One rank needs nearly five times the size of the weights: weights, two slots, gradients. Two ranks need half each,
plus memory of their threads."""


def test_two_ranks_train_a_model_that_exceeds_the_limit_of_one() -> None:
    with ranks.Job(2, {"partitions": 2, **memory.MANUAL}) as two:
        results = two.call(memory.train, WIDTH, 2, LIMIT_BYTES)
        assert [result["steps"] for result in results] == [2, 2]
    with ranks.Job(1, {"partitions": 1, **memory.MANUAL}) as one:
        try:
            (result,) = one.call(memory.train, WIDTH, 2, LIMIT_BYTES)
        except ranks.RankError as error:  # TensorFlow aborts the process
            assert "exit code" in str(error)
        else:
            assert isinstance(result, ranks.Failure), result
