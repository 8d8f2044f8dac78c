"""How many GPUs a script is told of. No GPU is needed."""

import pytest

from tidemill_runtime.devices import Devices


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("GPU-a,GPU-b", 2), ("0,1,-1,2", 2), (" 0 , 1 ", 2)]
)
def test_the_gpus_are_those_that_are_visible(visible, count):
    assert Devices.present({"CUDA_VISIBLE_DEVICES": visible}).num_gpus == count


def test_without_the_variable_nvidia_smi_counts_them(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: Tide (UUID: GPU-a)'\necho 'GPU 1: Tide (UUID: GPU-b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert Devices.present({}).num_gpus == 2
