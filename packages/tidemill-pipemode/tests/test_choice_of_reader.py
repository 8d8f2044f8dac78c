"""The choice of the reader, and the messages about it."""

import subprocess
import sys

import pytest

DEADLINE_S = 300  # it compiles
# Hides the library of an installed wheel, and uses an empty cache.
CHOOSE = """
import os, shutil, sys
os.environ["TIDEMILL_NATIVE_DIR"] = sys.argv[1] + "/cache"
if sys.argv[2] == "no compiler":
    os.environ["CXX"] = "none"
from pathlib import Path
from sagemaker_tensorflow import PipeModeDataset, native_library
from sagemaker_tensorflow._shared.native_build.compiling import NativeSources
root = sys.argv[1]
shutil.copytree(native_library.READER.directory, root + "/native")
native_library.READER = NativeSources("pipe", Path(root + "/native"))
for turn in range(2):
    dataset = PipeModeDataset("training", "TextLine", root + "/state", root + "/data", root + "/config")
    print([record.decode() for record in dataset.as_numpy_iterator()], flush=True)
"""


@pytest.mark.parametrize("compiler", ["a compiler", "no compiler"])
def test_without_a_wheel_the_reader_is_compiled_or_python_takes_over_with_a_warning(channels, scripts, compiler):
    for epoch in range(2):
        channels.write(b"one\ntwo", epoch)
    process = scripts.start(CHOOSE, channels.root, compiler, reader="native")
    output, errors = process.communicate(DEADLINE_S)
    assert output == "['one', 'two']\n" * 2, errors
    warned = errors.count("PipeModeFallbackWarning: PipeModeDataset reads with its reader in Python")
    notices = [line for line in errors.splitlines() if line.startswith("pipemode.reader ")]
    assert len(notices) == 1  # once per process
    if compiler == "a compiler":
        assert notices[0].startswith("pipemode.reader reader=native source='compiled' tensorflow=2.")
        assert warned == 0
        assert list((channels.root / "cache").rglob("libtidemill_pipe.so"))
    else:
        assert notices[0].startswith("pipemode.reader reader=python source='there is no C++ compiler")
        assert warned == 1


def test_the_line_about_the_reader_names_the_reader_in_use(channels):
    channels.write(b"one")
    script = "import sys; from sagemaker_tensorflow import PipeModeDataset as D\n"
    script += "a = sys.argv; print(list(D('training', 'TextLine', *a[1:]).as_numpy_iterator()))"
    directories = map(str, (channels.state_dir, channels.pipe_dir, channels.config_dir))
    done = subprocess.run([sys.executable, "-c", script, *directories], capture_output=True, text=True, check=True)
    assert done.stdout == "[b'one']\n"
    assert "pipemode.reader reader=native source=" in done.stderr
