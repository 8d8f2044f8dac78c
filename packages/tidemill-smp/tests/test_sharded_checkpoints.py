"""Checkpoints of replicas that shard optimizer slots: complete, and restorable with any partitions and replicas."""

from pathlib import Path
from typing import Any

import pytest

import checkpoints
import ranks
from checkpoints import CONFIG, Save

pytestmark = pytest.mark.smp_saved

LAYOUTS = [(2, 2, True), (2, 2, False), (1, 4, True), (1, 1, False)]
"""(partitions, replicas, whether they shard slots)."""


def run(layout: tuple[int, int, bool], function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    partitions, replicas, shared = layout
    config = {**CONFIG, "partitions": partitions, "ddp": True, "shard_optimizer_state": shared}
    return ranks.run(partitions * replicas, function, *args, config=config, **kwargs)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Save:
    directory = str(tmp_path_factory.mktemp("shared"))
    return Save.of(directory, run((2, 2, True), checkpoints.saved, "chain", directory))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_other_jobs_resume_from_checkpoints_of_sharded_slots(shared: Save, layout: tuple[int, int, bool]) -> None:
    when = "after" if layout == LAYOUTS[0] else "before"
    at_three, at_five = zip(*run(layout, checkpoints.resumed, "chain", shared.directory, when), strict=True)
    checkpoints.assert_equal(shared.at_three, checkpoints.merged(at_three))
    # Other replicas sum the gradients of other rows.
    checkpoints.assert_equal(shared.at_five, checkpoints.merged(at_five), 0.0 if layout[:2] == (2, 2) else 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=str)
def test_sharded_slots_resume_from_checkpoints_of_other_jobs(tmp_path: Path, layout: tuple[int, int, bool]) -> None:
    save = Save.of(str(tmp_path), run(layout, checkpoints.saved, "chain", str(tmp_path)))
    at_three, at_five = zip(*run((2, 2, True), checkpoints.resumed, "chain", save.directory, "before"), strict=True)
    checkpoints.assert_equal(save.at_three, checkpoints.merged(at_three))
    checkpoints.assert_equal(save.at_five, checkpoints.merged(at_five), 0.0 if layout[:2] == (2, 2) else 1e-4)


def test_the_files_equal_those_of_replicas_that_keep_all_slots(shared: Save, tmp_path: Path) -> None:
    import numpy as np
    import tensorflow as tf

    run((2, 2, False), checkpoints.saved, "chain", str(tmp_path))
    for mp_rank in (0, 1):
        parts = [Path(root) / f"mp_rank_{mp_rank}" for root in (shared.directory, tmp_path)]
        assert [sorted(path.name for path in part.iterdir()) for part in parts] == 2 * [
            ["checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index"]
        ]
        one, other = (tf.train.load_checkpoint(str(part / "ckpt-1")) for part in parts)
        assert one.get_variable_to_shape_map() == other.get_variable_to_shape_map()
        assert one.get_variable_to_dtype_map() == other.get_variable_to_dtype_map()
        for key in one.get_variable_to_shape_map():
            np.testing.assert_array_equal(one.get_tensor(key), other.get_tensor(key), err_msg=key)


@pytest.mark.parametrize("optimizer", ["Adam", "legacy.Adam"])
def test_a_plain_checkpoint_has_the_slots_of_all_replicas(tmp_path: Path, optimizer: str) -> None:
    environment = {"TF_USE_LEGACY_KERAS": "1"} if optimizer.startswith("legacy") else {}
    given, written = str(tmp_path / "given"), str(tmp_path / "written")
    exported = run((1, 2, True), checkpoints.exported, "chain", given, optimizer, environment=environment)
    read = run(
        (1, 1, False), checkpoints.read_and_written_plainly, "chain", given, written, optimizer, environment=environment
    )
    checkpoints.assert_equal(checkpoints.merged(exported), read[0])


def test_replicas_that_save_different_objects_get_an_error(tmp_path: Path) -> None:
    for text in run((1, 2, True), save_other_objects, str(tmp_path)):
        assert "could not save" in text
        assert "from rank 1 (partition 0 of replica 1)" in text
        assert "create tf.train.Checkpoint(...) with the same objects on all ranks" in text


# --- on the ranks -----------------------------------------------------------------------------------------------------


def save_other_objects(directory: str) -> str:
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError

    training = checkpoints.Training()
    training.run_to(1)
    objects = {"model": training.model} | ({"optimizer": training.optimizer} if smp.dp_rank() == 0 else {})
    manager = smp.CheckpointManager(tf.train.Checkpoint(**objects), directory)
    with pytest.raises(SMPCheckpointError) as refusal:
        manager.save()
    assert manager.latest_checkpoint is None
    return str(refusal.value)
