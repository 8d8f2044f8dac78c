"""Packing by two threads: content, digests, progress, and a disk that is full while the other thread reads on."""

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from tidemill.shim import packing
from tidemill.shim.failures import ClientFailure
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
    made = pack(root, "model", target, place="/opt/ml/model", show=shown.append)
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
