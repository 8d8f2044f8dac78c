"""Checkpoints of several replicas: the first replica writes, all restore, and their number may change."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
import ranks
from checkpoints import CONFIG, Save

pytestmark = pytest.mark.smp_long

LAYOUTS = [(1, 2), (2, 1), (4, 1), (2, 2)]
"""(partitions, replicas)."""


def run(layout: tuple[int, int], function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    partitions, replicas = layout
    config = {**CONFIG, "partitions": partitions, "ddp": True}
    return ranks.run(partitions * replicas, function, *args, config=config, **kwargs)


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory: pytest.TempPathFactory) -> Save:
    directory = str(tmp_path_factory.mktemp("two-by-two"))
    return Save.of(directory, run((2, 2), checkpoints.saved, "chain", directory))


def test_the_first_replica_writes(tmp_path: Path) -> None:
    assert run((2, 2), checkpoints.written_by, str(tmp_path)) == [True, True, False, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-1.json", "mp_rank_0", "mp_rank_1"]


@pytest.mark.parametrize(
    ("layout", "when"),
    [
        pytest.param(layout, when, marks=() if (number + later) % 2 else pytest.mark.matrix)
        for number, layout in enumerate(LAYOUTS)
        for later, when in enumerate(("before", "after"))
    ],
    ids=str,
)
def test_other_numbers_of_partitions_and_replicas_resume(two_by_two: Save, layout: tuple[int, int], when: str) -> None:
    at_three, at_five = zip(*run(layout, checkpoints.resumed, "chain", two_by_two.directory, when), strict=True)
    checkpoints.assert_equal(two_by_two.at_three, checkpoints.merged(at_three))
    # One replica sums the gradients of its rows in another order than two.
    checkpoints.assert_equal(two_by_two.at_five, checkpoints.merged(at_five), 0.0 if layout == (2, 2) else 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS[:-1], ids=str)
def test_two_by_two_resumes_from_other_partitions_and_replicas(tmp_path: Path, layout: tuple[int, int]) -> None:
    save = Save.of(str(tmp_path), run(layout, checkpoints.saved, "chain", str(tmp_path)))
    at_three, at_five = zip(*run((2, 2), checkpoints.resumed, "chain", save.directory, "before"), strict=True)
    checkpoints.assert_equal(save.at_three, checkpoints.merged(at_three))
    checkpoints.assert_equal(save.at_five, checkpoints.merged(at_five), 1e-4)


def test_the_first_replica_resumes_bit_identically_with_dropout_and_batch_normalization(tmp_path: Path) -> None:
    # The moving statistics of batch normalization differ between replicas; those of the first are saved.
    directory = str(tmp_path)
    save = Save.of(directory, run((2, 2), checkpoints.saved, "language", directory)[:2])
    at_three, at_five = zip(*run((2, 2), checkpoints.resumed, "language", directory, "before"), strict=True)
    checkpoints.assert_equal(save.at_three, checkpoints.merged(at_three))
    checkpoints.assert_equal(save.at_five, checkpoints.merged(at_five[:2]))


def test_a_save_is_due_after_its_interval_and_all_ranks_count_alike(tmp_path: Path) -> None:
    for saved, message, names in run((2, 2), checkpoints.save_in_intervals, str(tmp_path)):
        assert saved == [1, 3, 5, 7]
        assert names == [f"ckpt-{number}" for number in range(1, 6)]
        assert "different steps (rank 0: 9, rank 1: 10, rank 2: 11, rank 3: 12)" in message


@pytest.mark.parametrize("environment", [{}, {"TF_USE_LEGACY_KERAS": "1"}], ids=["keras", "tf_keras"])
def test_replicas_that_seed_differently_draw_differently(environment: dict[str, str]) -> None:
    first, second = run((1, 2), checkpoints.seeds_after_a_step, environment=environment)
    assert first.keys() == second.keys() and len(first) >= 2
    for name, seed in first.items():
        assert not np.array_equal(seed, second[name])
