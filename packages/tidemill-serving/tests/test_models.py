"""Finding the models in a model directory."""

import re
from pathlib import Path

import pytest

from tidemill_serving.errors import StartFailed
from tidemill_serving.models import default_model, find_versions


def put(directory: Path, *versions: str) -> None:
    for version in versions:
        (directory / version).mkdir(parents=True)
        (directory / version / "saved_model.pb").write_bytes(b"")


def found(directory: Path) -> list[tuple[str, int]]:
    return [(version.name, version.version) for version in find_versions(directory)]


def test_a_bare_version_belongs_to_the_model_called_model(tmp_path: Path) -> None:
    put(tmp_path, "1")
    assert found(tmp_path) == [("model", 1)]


def test_the_parent_of_a_version_names_the_model(tmp_path: Path) -> None:
    put(tmp_path, "b/7", "a/2", "a/10", "export/Servo/123")
    assert found(tmp_path) == [("Servo", 123), ("a", 2), ("a", 10), ("b", 7)]


def test_leading_zeros_are_stripped(tmp_path: Path) -> None:
    put(tmp_path, "a/000000123")
    assert found(tmp_path) == [("a", 123)]


def test_hidden_directories_and_other_names_are_ignored(tmp_path: Path) -> None:
    put(tmp_path, "a/1", ".cache/2", "a/.3", "a/latest", "a/1b")
    (tmp_path / "a/9").mkdir()
    assert found(tmp_path) == [("a", 1)]


def test_two_directories_of_one_version_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a/1", "a/01")
    with pytest.raises(StartFailed, match="both version 1 of the model a"):
        find_versions(tmp_path)


def test_without_a_model_the_message_names_the_directory_and_its_content(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/model.h5").write_bytes(b"")
    with pytest.raises(StartFailed, match=re.escape("no SavedModel bundles found!")) as failure:
        find_versions(tmp_path)
    assert str(tmp_path) in str(failure.value)
    assert "weights/model.h5" in str(failure.value)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="absent is not a directory"):
        find_versions(tmp_path / "absent")


def test_the_default_model_is_the_first_by_name_unless_the_variable_names_one(tmp_path: Path) -> None:
    put(tmp_path, "b/1", "a/1")
    versions = find_versions(tmp_path)
    assert default_model(versions, {}) == "a"
    assert default_model(versions, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "b"}) == "b"
    with pytest.raises(StartFailed, match="'c', but the models found are a, b"):
        default_model(versions, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "c"})
