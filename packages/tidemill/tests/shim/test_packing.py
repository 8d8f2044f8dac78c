"""Packing by two threads: content, digests, progress, and a disk that is full while the other thread reads on."""

import contextlib
import errno
import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from tidemill._shared.trees import remove_tree
from tidemill.shim import packing
from tidemill.shim.failures import ClientFailure, InstanceFailure
from tidemill.shim.packing import pack

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "model/deep").mkdir(parents=True)
    (tmp_path / "model/a").write_bytes(os.urandom(5 * MIB))
    (tmp_path / "model/deep/b").write_bytes(os.urandom(40 * MIB))
    return tmp_path


def test_an_archive_has_the_files_the_digests_are_its_own_and_progress_is_shown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_SHOWN_EVERY_S", 0.0)
    shown: list[str] = []
    target = root / "artifacts/model.tar.gz"
    made = pack(root, "model", target, place="/opt/ml/model", note=shown.append)
    assert made is not None
    data = target.read_bytes()
    assert (made.size_bytes, made.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert made.md5 == hashlib.md5(data, usedforsecurity=False).hexdigest()
    with tarfile.open(target) as archive:
        for name in ("a", "deep/b"):
            file = archive.extractfile(name)
            assert file is not None
            assert file.read() == (root / "model" / name).read_bytes()
    assert shown[0].startswith("tidemill: packing /opt/ml/model: 0 of 47 MB, ")
    assert shown[-1].endswith(" of 47 MB, 0 s left\r")


def test_a_full_disk_ends_the_packing_and_leaves_nothing(root: Path) -> None:
    target = root / "artifacts/model.tar.gz"
    target.parent.mkdir()
    target.symlink_to("/dev/full")
    with pytest.raises(ClientFailure, match="no space left on device: /opt/ml/model"):
        pack(root, "model", target, place="/opt/ml/model")
    assert not target.is_symlink()


class Disk:
    """Statistics of a disk of 1 GiB."""

    f_frsize, f_blocks = 4096, (1 << 30) // 4096

    def __init__(self, free_bytes: int) -> None:
        self.f_bavail = free_bytes // 4096


def test_a_large_archive_leaves_space_for_what_other_jobs_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = root / "artifacts/model.tar.gz"

    def statistics(fd: int) -> Disk:
        return Disk(20 * MIB - os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fstatvfs", statistics)
    with pytest.raises(ClientFailure, match="no space left on device: /opt/ml/model"):
        pack(root, "model", target, place="/opt/ml/model")
    assert not target.exists()
    monkeypatch.setattr(os, "fstatvfs", lambda fd: Disk(0))
    for path in root.glob("model/**/?"):
        if path.is_file():
            path.write_bytes(b"small")
    made = pack(root, "model", target, place="/opt/ml/model")
    assert made is not None and made.size_bytes == target.stat().st_size


def test_deep_trees_are_packed_up_to_the_longest_path_that_can_be_unpacked_again(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    fd = os.open(tmp_path / "model", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    lines: list[str] = []
    made = pack(tmp_path, "model", tmp_path / "artifacts/model.tar.gz", place="/opt/ml/model", note=lines.append)
    assert made is not None
    with tarfile.open(tmp_path / "artifacts/model.tar.gz") as archive:
        assert [len(name) for name in archive.getnames()] == list(range(1, 1025, 2))
    assert lines == [
        "tidemill: /opt/ml/model has paths that are too long for keys of S3 (1,024 bytes): these files are left out,"
        f" beginning with 'd{'/d' * 29}...'"
    ]
    remove_tree(tmp_path / "model")  # pytest could not


def test_an_empty_directory_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    assert pack(tmp_path, "model", tmp_path / "artifacts/model.tar.gz", place="/opt/ml/model") is None


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_job_replaces_by_a_link_while_it_is_packed_leads_nowhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"of the service")
    model = tmp_path / "model"
    victim = model / "victim"
    model.mkdir()
    victim.write_bytes(b"weights") if kind == "file" else victim.mkdir()
    real, replaced = os.open, []

    def open_after_the_job_has_replaced_it(path: object, flags: int, *rest: object, **options: object) -> int:
        if path == "victim" and not replaced:
            replaced.append(path)
            victim.unlink() if kind == "file" else victim.rmdir()
            victim.symlink_to(secret / "key" if kind == "file" else secret)
        return real(path, flags, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_after_the_job_has_replaced_it)
    target = tmp_path / "artifacts/model.tar.gz"
    # Whether the file is left out or the job fails: nothing of the service is in the archive.
    with contextlib.suppress(InstanceFailure):
        pack(tmp_path, "model", target, place="/opt/ml/model")
    assert replaced
    if target.exists():
        with tarfile.open(target) as archive:
            assert not any(member.isfile() for member in archive.getmembers())
