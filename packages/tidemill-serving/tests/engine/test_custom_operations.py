"""Models with operations from their own library, on both engines and through the server."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemill_serving._shared.native_build.compiling import find_compiler

EXPORT_SCRIPT = """
import sys
import tensorflow as tf

operations = tf.load_op_library(sys.argv[1])
module = tf.Module()
module.predict = tf.function(
    lambda x: {"y": operations.tide_double(x=x)}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")]
)
tf.saved_model.save(module, sys.argv[2], signatures={"serving_default": module.predict})
"""
LIBRARY = "libtide.so"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model directory with a library of operations, and a model that uses it."""
    compiler = find_compiler()
    spec = importlib.util.find_spec("tensorflow")
    if compiler is None or spec is None or not spec.submodule_search_locations:
        pytest.skip("needs a C++ compiler and TensorFlow")
    directory = tmp_path_factory.mktemp("archive")
    wheel = spec.submodule_search_locations[0]
    source = Path(__file__).with_name("tide_op.cc")
    libraries = [f"-L{wheel}", "-l:libtensorflow_framework.so.2"]
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", f"-I{wheel}/include"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(directory / LIBRARY), *libraries], check=True)
    command = [sys.executable, "-c", EXPORT_SCRIPT, str(directory / LIBRARY), str(directory / "tide" / "1")]
    subprocess.run(command, check=True, capture_output=True)
    return directory


@pytest.mark.parametrize("engine", ["c_api", "session"])
def test_a_library_named_by_the_variable_serves_its_operations(start: Any, archive: Path, engine: str) -> None:
    environment = {"TIDEMILL_SERVING_OP_LIBRARIES": LIBRARY}
    server = start(archive, arguments=("--engine", engine), environment=environment)
    assert server.predict("tide", {"instances": [1.5, -2.0]}).json == {"predictions": [3.0, -4.0]}


def test_without_the_library_the_operation_is_named(start: Any, archive: Path) -> None:
    with pytest.raises(AssertionError, match=r"cannot load .*/tide/1: .*this TensorFlow has no TideDouble: serve"):
        start(archive)


def test_a_library_that_cannot_be_loaded_is_named(start: Any, archive: Path) -> None:
    with pytest.raises(AssertionError, match=rf"cannot load the operations in {archive}/absent.so: .*No such file"):
        start(archive, environment={"TIDEMILL_SERVING_OP_LIBRARIES": f"{LIBRARY}:absent.so"})
