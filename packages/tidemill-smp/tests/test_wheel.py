"""The wheel contains the native transport, for every Python and every TensorFlow."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from smdistributed.modelparallel.tensorflow._shared.native_build import compiling
from smdistributed.modelparallel.tensorflow.transport.library import TRANSPORT

pytestmark = pytest.mark.smp_long

PACKAGE = Path(__file__).parent.parent
PLACE = "smdistributed/modelparallel/tensorflow/transport"


def test_the_wheel_has_the_library_and_leaves_the_namespaces_open(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-manylinux_2_17_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{PLACE}/{TRANSPORT.library_name}" in names
    assert f"{PLACE}/native/ops.cc" in names
    assert "smdistributed/__init__.py" not in names
    assert "smdistributed/modelparallel/__init__.py" not in names


def test_the_library_needs_nothing_but_the_c_library(tmp_path):
    library = tmp_path / TRANSPORT.library_name
    compiling.compile_library(TRANSPORT, library)
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert "tensorflow" not in needed
    assert "stdc++" not in needed


def test_without_a_compiler_the_fallback_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "none")
    with pytest.raises(compiling.CompileError, match=r"there is no C\+\+ compiler"):
        compiling.compile_library(TRANSPORT, tmp_path / "library.so")
