"""The links of a channel with many files: names, folders, damaged files, and requests to stop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.shim.failures import ClientFailure, InternalFailure
from tidemill.shim.objects import link_channel

Row = tuple[str, str, str, int, str]


@pytest.fixture
def row(tmp_path: Path) -> Callable[..., Row]:
    """Return a function that stores a file and returns the row of a name for it."""

    def make(name: str, data: bytes = b"data", *, size_bytes: int | None = None) -> Row:
        file = tmp_path / f"stored-{len(list(tmp_path.iterdir()))}"
        file.write_bytes(data)
        file.chmod(0o400)
        return f"s3://bucket/{name}", name, str(file), len(data) if size_bytes is None else size_bytes, "unread"

    return make


@pytest.fixture
def link(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that links batches of rows into a new directory, which it returns."""

    def run(*batches: list[Row], check: Callable[[], None] = lambda: None) -> Path:
        directory = tmp_path / "channel"
        directory.mkdir()
        link_channel(batches, directory, place="/opt/ml/input/data/train", check=check)
        return directory

    return run


def test_files_of_all_folders_and_batches_are_linked_and_can_be_changed_above_an_overlay(row: Any, link: Any) -> None:
    rows = [row("a"), row("deep/er/b", b"b"), row("deep/c"), row("folder/", b""), row("d"), row("deep/er/e")]
    directory = link(rows[:2], rows[2:])
    found = sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))
    assert found == ["a", "d", "deep", "deep/c", "deep/er", "deep/er/b", "deep/er/e", "folder"]
    for _, name, file, _, _ in rows:
        if not name.endswith("/"):
            assert (directory / name).samefile(file)
            assert (directory / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../x", "/x", "a//x", "a/./x", "a/../../x", "", "a/", "a\0b", "b" * 256, "a/\udcff"])
def test_a_name_that_is_no_path_below_the_channel_is_refused(name: str, row: Any, link: Any, tmp_path: Path) -> None:
    before = {each.name for each in tmp_path.iterdir()}
    with pytest.raises(ClientFailure, match="leaves the channel or cannot be a file name"):
        link([row(name)])
    assert {each.name for each in tmp_path.iterdir()} - before == {"channel", "stored-0"}


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_a_name_of_both_a_file_and_something_else_is_refused(names: tuple[str, str], row: Any, link: Any) -> None:
    with pytest.raises(ClientFailure, match=f"s3://bucket/{names[1]} clashes with another object"):
        link([row(each) for each in names])


def test_a_damaged_and_a_missing_file_are_told_by_the_objects_name(row: Any, link: Any, tmp_path: Path) -> None:
    with pytest.raises(InternalFailure, match="s3://bucket/a is damaged in the object store: it has 4 bytes of 5"):
        link([row("a", size_bytes=5)])
    (tmp_path / "channel").rmdir()
    gone = row("b")
    Path(gone[2]).unlink()
    with pytest.raises(InternalFailure, match="s3://bucket/b cannot be read from the object store: No such file"):
        link([gone])


def test_a_request_to_stop_is_heard_before_every_batch(row: Any, link: Any, tmp_path: Path) -> None:
    checks = iter([None, KeyboardInterrupt])

    def check() -> None:
        stopped = next(checks)
        if stopped:
            raise stopped

    with pytest.raises(KeyboardInterrupt):
        link([row("a")], [row("b")], check=check)
    assert [each.name for each in (tmp_path / "channel").iterdir()] == ["a"]
