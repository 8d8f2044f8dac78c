"""Checkpoints with tf_keras: its models, its current optimizers, and the legacy ones with their slots."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import checkpoints
import ranks
from checkpoints import CONFIG, Save

pytestmark = pytest.mark.smp_long

OPTIMIZERS = ("Adam", "legacy.Adam", "RMSprop", "legacy.SGD", "legacy.Ftrl")
RESUMED = [
    # (model, partitions, optimizer, when it is restored)
    ("language", 2, "Adam", "after"),
    ("language", 3, "legacy.Adam", "before"),
    ("chain", 2, "RMSprop", "before"),
    ("chain", 2, "RMSprop", "after"),
    ("chain", 1, "legacy.SGD", "after"),
]


def run(size: int, function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return ranks.run(size, function, *args, config=CONFIG, environment={"TF_USE_LEGACY_KERAS": "1"}, **kwargs)


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Results of saving with two partitions, by model and optimizer."""
    made: dict[tuple[str, str], Save] = {}

    def save(model: str, optimizer: str) -> Save:
        if (model, optimizer) not in made:
            directory = str(tmp_path_factory.mktemp(f"{model}-{optimizer}"))
            results = run(2, checkpoints.saved, model, directory, optimizer=optimizer)
            made[model, optimizer] = Save.of(directory, results)
        return made[model, optimizer]

    return save


@pytest.mark.parametrize(
    ("model", "size", "optimizer", "when"),
    [
        *RESUMED,
        *(
            pytest.param("language", *case, marks=pytest.mark.matrix)
            for case in itertools.product((1, 2, 3), OPTIMIZERS, ("before", "after"))
            if ("language", *case) not in RESUMED
        ),
    ],
)
def test_any_number_of_partitions_resumes_from_a_checkpoint_of_two(
    saves: Any, model: str, size: int, optimizer: str, when: str
) -> None:
    save = saves(model, optimizer)
    results = run(size, checkpoints.resumed, model, save.directory, when, optimizer=optimizer)
    at_three, at_five = zip(*results, strict=True)
    checkpoints.assert_equal(save.at_three, checkpoints.merged(at_three))
    checkpoints.assert_equal(save.at_five, checkpoints.merged(at_five), 0.0 if size == 2 else 1e-5)


@pytest.mark.parametrize(("model", "optimizer"), [("language", "Adam"), ("language", "legacy.Adam")])
def test_plain_checkpoints_are_exported_and_imported(tmp_path: Path, model: str, optimizer: str) -> None:
    made = {"optimizer": optimizer}
    exported = checkpoints.merged(run(2, checkpoints.exported, model, str(tmp_path / "out"), **made))
    [plain] = run(1, checkpoints.read_and_written_plainly, model, str(tmp_path / "out"), str(tmp_path / "in"), **made)
    assert exported.keys() > plain.keys(), "seeds are not exported"
    checkpoints.assert_equal({name: exported[name] for name in plain}, plain)
    for when in ("before", "after"):
        arguments = model, str(tmp_path), when, str(tmp_path / "in")
        imported = checkpoints.merged([at_three for at_three, _ in run(2, checkpoints.resumed, *arguments, **made)])
        checkpoints.assert_equal({name: imported[name] for name in plain}, plain)
