"""The number of GPUs in the script's variables. No GPU is needed."""

import pytest

from tidemill_runtime.devices import Devices


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("GPU-a,GPU-b", 2), ("0,1,-1,2", 2), (" 0 , 1 ", 2)]
)
def test_the_gpus_are_those_that_are_visible(visible, count):
    assert Devices.present({"CUDA_VISIBLE_DEVICES": visible}).num_gpus == count


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 2), ("1", 1), ("0,1", 2), ("", 0), ("-1", 0), ("0,-1,1", 1), ("0,1,2", 2)]
)
def test_gpus_that_are_hidden_from_cuda_or_not_there_are_not_counted(visible, count, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: Tide (UUID: GPU-a)'\necho 'GPU 1: Tide (UUID: GPU-b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert Devices.present(variables).num_gpus == count


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("""echo '[{"neuron_device": 0, "nc_count": 2}, {"neuron_device": 1, "nc_count": 4}]'""", 6),
        ("""echo '[{"neuron_device": 0}]'""", 0),
        ("echo '[]'", 0),
        ("true", 0),
        ("echo 'no driver'", 0),
        ("""echo '[{"nc_count": 2}]'; exit 1""", 0),
        ("""echo '{"error": "none"}'""", 0),
        ("""echo '[{"nc_count": null}]'""", 0),
    ],
)
def test_neuron_cores_are_counted_and_a_tool_that_fails_counts_none(script, count, tmp_path, monkeypatch):
    program = tmp_path / "neuron-ls"
    program.write_text(f"#!/bin/sh\n[ $1 = -j ] || exit 2\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert Devices.present({"CUDA_VISIBLE_DEVICES": ""}).num_neurons == count
