"""The order in which checkpoints are uploaded, and that no file is stored that changed while it was read."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import SyncedDirectory
from tidemill.shim import synchronization
from tidemill.shim.synchronization import _Folder

WANTED = SyncedDirectory(path="checkpoints", uri="s3://bucket/kept", whole=True, restored=True)


class Store:
    """Receives uploads; ``during`` is called after the first bytes of a file were read."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, bytes]] = []
        self.fails: set[str] = set()
        self.during: dict[str, Any] = {}

    def upload(self, client: Any, source: Any, *, bucket: str, key: str) -> None:
        name = key.removeprefix("kept/")
        if name in self.fails:
            raise OSError("the service is away")
        data = source.read(2)
        self.during.pop(name, lambda: None)()
        while more := source.read(2):
            data += more
        self.stored.append((name, data))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(synchronization, "upload", made.upload)
    monkeypatch.setattr(synchronization, "upload_client", lambda variables: object())
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "jobs" / "ab" / "algo-1" / "ml" / "checkpoints"
    directory.mkdir(parents=True)
    return directory


def folder_of(place: Path) -> _Folder:
    session: Any = SimpleNamespace(
        directory=InstanceDirectory(place.parent.parent),
        spec=SimpleNamespace(variables={}),
        base_dir="/opt/ml",
        log=None,
    )
    return _Folder(session, WANTED)


def write(file: Path, text: str, at_s: int) -> None:
    file.write_text(text)
    os.utime(file, (at_s, at_s))


def test_files_go_up_in_the_order_in_which_they_were_written_and_none_before_an_older_one(
    store: Store, place: Path
) -> None:
    folder = folder_of(place)
    write(place / "checkpoint", "ckpt-2", 30)
    write(place / "ckpt-2.index", "index", 20)
    write(place / "ckpt-2.data", "data", 10)
    assert folder.look(is_last=False) == 0
    assert store.stored == [], "nothing is uploaded before it has been seen twice"
    store.fails = {"ckpt-2.index"}
    assert folder.look(is_last=False) == 2
    assert store.stored == [("ckpt-2.data", b"data")]
    store.fails = set()
    assert folder.look(is_last=False) == 0
    assert [name for name, _ in store.stored] == ["ckpt-2.data", "ckpt-2.index", "checkpoint"]


def test_a_file_that_changes_while_it_is_read_is_not_stored_but_goes_up_when_it_has_settled(
    store: Store, place: Path
) -> None:
    folder = folder_of(place)
    write(place / "weights", "old old", 10)
    store.during["weights"] = lambda: write(place / "weights", "new new", 20)
    folder.look(is_last=False)
    assert folder.look(is_last=False) == 1
    assert store.stored == []
    folder.look(is_last=False)
    folder.look(is_last=False)
    assert store.stored == [("weights", b"new new")]


def test_a_restored_file_is_uploaded_again_only_if_it_has_changed(store: Store, place: Path) -> None:
    write(place / "restored", "before", 10)
    folder = folder_of(place)
    folder.look(is_last=True)
    assert store.stored == []
    write(place / "restored", "after", 20)
    folder.look(is_last=True)
    assert store.stored == [("restored", b"after")]


def test_a_directory_that_a_job_replaces_by_a_link_while_it_is_listed_leads_nowhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    write(tmp_path / "secret/key", "of the service", 5)
    folder, victim = folder_of(place), place / "victim"
    victim.mkdir()
    write(place / "weights", "w", 10)
    real, replaced = os.open, []

    def open_after_the_job_has_replaced_it(path: object, flags: int, *rest: object, **options: object) -> int:
        if path == "victim" and not replaced:
            replaced.append(path)
            victim.rmdir()
            victim.symlink_to(tmp_path / "secret")
        return real(path, flags, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_after_the_job_has_replaced_it)
    assert [name for name, _ in folder._files()] == ["weights"]
    assert replaced
