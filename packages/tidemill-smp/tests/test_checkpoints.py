"""Checkpoints: each rank writes its own, and all go on from them as if nothing had happened."""

import json
from pathlib import Path
from typing import Any

import pytest

import checkpoints
import ranks
from checkpoints import CONFIG


def run(size: int, function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return ranks.run(size, function, *args, config=CONFIG, **kwargs)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("model", ["chain", "language"])
def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path: Path, model: str, when: str) -> None:
    whole = checkpoints.merged(run(2, checkpoints.trained, model, 5))
    again = checkpoints.merged(run(2, checkpoints.interrupted, model, str(tmp_path), 3, 5, when))
    checkpoints.assert_equal(whole, again)


def test_each_rank_writes_its_own_variables_and_the_index_tells_which(tmp_path: Path) -> None:
    run(2, checkpoints.interrupted, "chain", str(tmp_path), 3, 3, "before")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-1.json", "mp_rank_0", "mp_rank_1"]
    for rank in (0, 1):
        names = sorted(path.name for path in (tmp_path / f"mp_rank_{rank}").iterdir())
        assert names == ["checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index"]
    variables = json.loads((tmp_path / "ckpt-1.json").read_text())["variables"]
    kernel = "model/{}/_kernel/.ATTRIBUTES/VARIABLE_VALUE"
    assert variables[kernel.format("body/0")] == {"dtype": "float32", "shape": [6, 8], "ranks": [0]}
    assert variables[kernel.format("head")]["ranks"] == [1]
    assert variables["step/.ATTRIBUTES/VARIABLE_VALUE"]["ranks"] == [0, 1]


@pytest.mark.parametrize("model", ["chain", "language"])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_any_number_of_partitions_restores_what_two_have_saved(tmp_path: Path, model: str, size: int) -> None:
    run(2, checkpoints.interrupted, model, str(tmp_path), 3, 3, "before")
    saved = checkpoints.merged(run(2, checkpoints.resumed, model, str(tmp_path), 3, "before"))
    for when in ("before", "after"):
        restored = checkpoints.merged(run(size, checkpoints.resumed, model, str(tmp_path), 3, when))
        checkpoints.assert_equal(saved, restored)
