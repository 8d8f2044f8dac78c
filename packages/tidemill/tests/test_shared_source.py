"""Source shared by several distributions is one file, with copies in checkouts, wheels and source archives."""

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
COPIES = ROOT / "shared" / "copies.py"


@pytest.fixture
def copies() -> dict[str, Any]:
    return runpy.run_path(str(COPIES))


def test_every_copy_equals_its_source(copies: dict[str, Any]) -> None:
    for package in copies["COPIES"]:
        directory = ROOT / "packages" / package / "_shared"
        found = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert found == copies["wanted"](package)


def test_git_holds_no_copy() -> None:
    tracked = subprocess.run(["git", "ls-files", "--", "*/_shared/*"], cwd=ROOT, capture_output=True, text=True)
    assert tracked.stdout == ""


def test_a_changed_copy_is_renewed_and_one_without_a_source_is_removed(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "packages/tidemill-horovod/src/horovod/tensorflow").mkdir(parents=True)
    shutil.copytree(ROOT / "shared", checkout / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    copy = checkout / "packages/tidemill-horovod/src/horovod/tensorflow/_shared"
    _renew(checkout, "packages/tidemill-horovod")
    (copy / "ranks/mpi_library.py").write_text("changed = True\n")
    (copy / "old").mkdir()
    (copy / "old" / "module.py").write_text("gone = True\n")

    _renew(checkout, "packages/tidemill-horovod")

    assert (copy / "ranks/mpi_library.py").read_bytes() == (ROOT / "shared/ranks/mpi_library.py").read_bytes()
    assert not (copy / "old").exists()


@pytest.mark.parametrize(
    ("distribution", "package", "names"),
    [
        ("tidemill-horovod", "horovod/tensorflow", ("ranks/mpi_library.py",)),
        ("tidemill-runtime", "tidemill_runtime", ("encryption/tls.py", "descendants.py")),
        ("tidemill-serving", "tidemill_serving", ("http/connection.py",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wheel_built_from_a_source_archive_has_the_copies(
    tmp_path: Path, distribution: str, package: str, names: tuple[str, ...]
) -> None:
    _hatchling(ROOT / "packages" / distribution, "sdist", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    _hatchling(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for name in names:
            assert packed.read(f"{package}/_shared/{name}") == (ROOT / "shared" / name).read_bytes()


def _renew(checkout: Path, package: str) -> None:
    subprocess.run([sys.executable, str(checkout / "shared/copies.py"), str(checkout / package)], check=True)


def _hatchling(source: Path, target: str, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    variables = os.environ | {"CXX": "no-compiler"}  # native libraries are none of the copies, and take long to compile
    subprocess.run(command, cwd=source, env=variables, check=True, capture_output=True)
