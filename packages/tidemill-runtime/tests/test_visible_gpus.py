from pathlib import Path

import pytest

from tidemill_runtime.devices import Devices


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of nvidia-smi that lists two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: Made up (UUID: GPU-a)'\necho 'GPU 1: Made up (UUID: GPU-b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("visible", "count"), [(None, 2), ("1", 1), ("0,1", 2), ("", 0), ("-1", 0), ("0,-1,1", 1), ("0,1,2", 2)]
)
def test_gpus_that_are_hidden_from_cuda_are_not_counted(
    visible: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert Devices.present().num_gpus == count
