"""Checkpoints: each rank writes its own part, and resumed training equals uninterrupted training."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import checkpoints
import parity
import ranks
from checkpoints import CONFIG, Save

pytestmark = pytest.mark.smp_saved

TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}

RESUMED = [
    # (partitions, model, when it is restored): every pair of values occurs
    (1, "chain", "before"),
    (1, "language", "after"),
    (2, "chain", "before"),
    (2, "language", "after"),
    (3, "chain", "after"),
    (3, "language", "before"),
]
CRASHES = [(None, 0), (0, 1)]
"""(number of the checkpoint, rank that crashes); the other two pairs are in the matrix."""


def run(size: int, function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return ranks.run(size, function, *args, config=CONFIG, **kwargs)


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Save]:
    return {model: _save(model, str(tmp_path_factory.mktemp(model))) for model in ("chain", "language")}


def _save(model: str, directory: str) -> Save:
    return Save.of(directory, run(2, checkpoints.saved, model, directory))


@pytest.mark.parametrize(
    ("size", "model", "when"),
    [
        *RESUMED[:-1],
        pytest.param(*RESUMED[-1], marks=pytest.mark.smp_first),
        *(
            pytest.param(*case, marks=pytest.mark.matrix)
            for case in itertools.product((1, 2, 3, 4), ("chain", "language"), ("before", "after"))
            if case not in RESUMED
        ),
    ],
)
def test_any_number_of_partitions_resumes_from_a_checkpoint_of_two(
    saves: dict[str, Save], size: int, model: str, when: str
) -> None:
    save = saves[model]
    at_three, at_five = zip(*run(size, checkpoints.resumed, model, save.directory, when), strict=True)
    checkpoints.assert_equal(save.at_three, checkpoints.merged(at_three))
    # With another cut, gradients of the same tensor are added in another order, also those of microbatches.
    tolerance = 0.0 if size == 2 else {"chain": 1e-6, "language": 1e-5}[model]
    checkpoints.assert_equal(save.at_five, checkpoints.merged(at_five), tolerance)


@pytest.mark.parametrize("model", ["chain", "language"])
def test_saved_values_equal_those_that_keras_trains_in_one_process(saves: dict[str, Save], model: str) -> None:
    pieces = 1 if model in parity.WHOLE else CONFIG["microbatches"]
    [(at_three, at_five)] = run(1, checkpoints.trained_plainly, model, pieces)
    checkpoints.assert_equal(saves[model].at_three, at_three, 2e-5)
    checkpoints.assert_equal(saves[model].at_five, at_five, 2e-5)


def test_each_rank_writes_its_own_variables_and_the_index_lists_them(saves: dict[str, Save]) -> None:
    path = Path(saves["chain"].directory)
    assert sorted(file.name for file in path.iterdir()) == ["ckpt-1.json", "mp_rank_0", "mp_rank_1"]
    for rank in (0, 1):
        names = sorted(file.name for file in (path / f"mp_rank_{rank}").iterdir())
        assert names == ["checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index"]
    variables = json.loads((path / "ckpt-1.json").read_text())["variables"]
    key = "{}/.ATTRIBUTES/VARIABLE_VALUE"
    assert variables[key.format("optimizer/_trainable_variables/0")] == {
        "dtype": "float32",
        "shape": [6, 8],
        "ranks": [0],
    }
    assert variables[key.format("model/head/_kernel")] == {"dtype": "float32", "shape": [8, 4], "ranks": [1]}
    assert variables[key.format("step")]["ranks"] == [0, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_restore_without_a_checkpoint_has_no_effect(tmp_path: Path, when: str) -> None:
    for restored, latest in run(2, checkpoints.nothing_to_restore, str(tmp_path / "none"), when):
        assert restored == [None, None]
        assert latest == (None, [])
    assert not (tmp_path / "none").exists()


def test_a_checkpoint_is_restored_by_its_name(tmp_path: Path) -> None:
    for rank, (paths, steps, kept) in enumerate(run(2, checkpoints.several, str(tmp_path))):
        assert paths == [str(tmp_path / f"mp_rank_{rank}" / f"ckpt-{number}") for number in (1, 2, 3)]
        assert steps == {None: 3, "ckpt-2": 2, "ckpt-1": 1, "ckpt-7": 0}
        assert kept == (3, 4, ["ckpt-3", "ckpt-2"])


def test_the_checkpoint_saved_last_is_the_latest_regardless_of_its_number(tmp_path: Path) -> None:
    run(2, checkpoints.several, str(tmp_path))
    for rank, latest in enumerate(run(2, checkpoints.latest_of, str(tmp_path))):
        assert latest == (str(tmp_path / f"mp_rank_{rank}" / "ckpt-2"), str(tmp_path / f"mp_rank_{rank}" / "ckpt-2"))


def test_a_checkpoint_whose_files_of_a_rank_were_lost_with_its_machine_is_passed_over(tmp_path: Path) -> None:
    run(2, checkpoints.several, str(tmp_path))
    order = {json.loads(file.read_text())["order"]: file.stem for file in tmp_path.glob("ckpt-*.json")}
    *_, before, latest = (order[number] for number in sorted(order))
    for file in (tmp_path / "mp_rank_1").glob(f"{latest}.*"):
        file.unlink()
    for rank, (restored, step, saved, then) in enumerate(run(2, checkpoints.resumed_and_saved, str(tmp_path))):
        assert (restored, step) == (str(tmp_path / f"mp_rank_{rank}" / before), 3)
        assert saved == then


@pytest.mark.parametrize(
    ("number", "victim"),
    [
        case if case in CRASHES else pytest.param(*case, marks=pytest.mark.matrix)
        for case in itertools.product((None, 0), (0, 1))
    ],
)
def test_a_crash_anywhere_in_save_leaves_one_checkpoint_for_all_ranks(
    tmp_path: Path, number: int | None, victim: int
) -> None:
    results = run(2, checkpoints.crashes, str(tmp_path), number, victim)
    assert len({tuple(outcomes) for outcomes in results}) == 1, "the ranks restored different checkpoints"
    outcomes = results[0]
    assert len(outcomes) >= 8
    assert outcomes == sorted(outcomes), "the commit is one moment: before it the old one counts, after it the new one"
    assert set(outcomes) == {1, 2}


def test_a_rank_that_cannot_write_fails_the_save_on_all_ranks_and_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    for message, latest in run(2, checkpoints.unwritable, str(tmp_path)):
        assert "ckpt-2" in message and "rank 1" in message and "No space left" in message
        assert latest == ("ckpt-1", 1)
    assert sorted(path.name for path in (tmp_path / "mp_rank_0").iterdir()) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]


@pytest.mark.parametrize("model", ["chain", pytest.param("language", marks=pytest.mark.matrix)])
def test_plain_checkpoints_are_exported_and_imported(tmp_path: Path, model: str) -> None:
    exported = checkpoints.merged(run(2, checkpoints.exported, model, str(tmp_path / "out")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.data-00000-of-00001", "out.index"]
    [plain] = run(1, checkpoints.read_and_written_plainly, model, str(tmp_path / "out"), str(tmp_path / "in"))
    seeds = exported.keys() - plain.keys()
    checkpoints.assert_equal({name: exported[name] for name in plain}, plain)
    assert bool(seeds) == (model == "language")
    for when in ("before", "after"):
        arguments = model, str(tmp_path), when, str(tmp_path / "in")
        imported = checkpoints.merged([at_three for at_three, _ in run(2, checkpoints.resumed, *arguments)])
        checkpoints.assert_equal({name: imported[name] for name in plain}, plain)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_different_model_is_refused_on_all_ranks_with_variable_file_and_rank(
    saves: dict[str, Save], when: str
) -> None:
    for message in run(2, checkpoints.refused, saves["chain"].directory, when):
        for part in ("rank 1", "head", "ckpt-1", "mp_rank_1", "shape"):
            assert part in message


@pytest.mark.parametrize(
    ("optimizer", "environment", "way"),
    [
        ("Adam", {}, "train"),
        ("legacy.Adam", TF_KERAS, "build"),
        pytest.param("Adam", {}, "build", marks=pytest.mark.matrix),
        pytest.param("legacy.Adam", TF_KERAS, "train", marks=pytest.mark.matrix),
    ],
)
def test_a_slot_that_one_rank_cannot_read_when_it_is_created_is_an_error_on_all_ranks(
    tmp_path: Path, optimizer: str, environment: dict[str, str], way: str
) -> None:
    results = run(2, checkpoints.saved, "chain", str(tmp_path), optimizer=optimizer, environment=environment)
    slots = [value for name, value in results[1][0].items() if name.startswith("optimizer") and value.size > 1]
    data = tmp_path / "mp_rank_1" / "ckpt-1.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[content.index(slots[-1].tobytes())] ^= 1
    data.write_bytes(content)
    for message in run(2, checkpoints.unreadable_slots, str(tmp_path), way, optimizer, environment=environment):
        assert "rank 1: " in message and "rank 0: " not in message
        assert "optimizer" in message and str(tmp_path / "mp_rank_1" / "ckpt-1") in message


def test_a_model_that_first_runs_in_a_later_step_is_restored_too(tmp_path: Path) -> None:
    undisturbed, restored = zip(*run(2, checkpoints.resume_both, str(tmp_path)), strict=True)
    checkpoints.assert_equal(checkpoints.merged(undisturbed), checkpoints.merged(restored))


def test_managers_of_other_names_share_a_directory_and_a_checkpoint_may_have_a_root(tmp_path: Path) -> None:
    for restored, names, values in run(2, checkpoints.side_by_side, str(tmp_path)):
        assert restored == ["ckpt-2", "ckpt-best-1", "rooted-1"]
        assert names == [["ckpt-2"], ["ckpt-best-1"], ["rooted-1"]]
        assert values == [1, 10, 100, 1000]


def test_files_that_cannot_be_received_fail_on_both_ranks(tmp_path: Path) -> None:
    for message in run(2, checkpoints.sent_badly, str(tmp_path)):
        assert "mp_rank_1" in message and "Not a directory" in message


def test_checkpoints_of_the_previous_format_are_read_and_those_of_a_later_one_refused(tmp_path: Path) -> None:
    from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
    from smdistributed.modelparallel.tensorflow.checkpoint.directory import Directory

    members = {"name": "ckpt-1", "order": 1, "token": "a", "time_s": 1.0, "partitions": 2, "variables": {}}
    file = tmp_path / "ckpt-1.json"
    file.write_text(json.dumps({"format": 1, **members}))
    (commit,) = Directory(tmp_path, "ckpt").commits()
    assert commit.name == "ckpt-1" and list(commit.cuts) == []
    file.write_text(json.dumps({"format": 3, **members}))
    with pytest.raises(SMPCheckpointError, match="written by a newer release"):
        Directory(tmp_path, "ckpt").commits()
