"""The GPU of each rank. No GPU is needed: the GPUs are fake, and calls to TensorFlow are recorded."""

from typing import Any

import pytest
import tensorflow as tf

from smdistributed.modelparallel.tensorflow.devices import gpu_of, take_gpu

GPUS = [tf.config.PhysicalDevice(f"/physical_device:GPU:{number}", "GPU") for number in range(4)]


def test_each_rank_of_a_machine_has_its_own_gpu_and_ranks_share_gpus_if_there_are_fewer() -> None:
    assert [gpu_of(rank, GPUS) for rank in range(4)] == GPUS
    assert [gpu_of(rank, GPUS[:2]) for rank in range(4)] == GPUS[:2] * 2
    assert gpu_of(3, GPUS[:1]) == GPUS[0], "the launcher has given each rank its own"
    assert gpu_of(0, []) is None


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the devices that are made visible to TensorFlow, of four fake GPUs."""
    told: list[Any] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: GPUS if kind == "GPU" else [])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: told[-1:] or GPUS)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: told.append(device))
    return told


def test_tensorflow_sees_only_the_gpu_of_the_rank(shown: list[Any]) -> None:
    assert take_gpu(2, 4) is GPUS[2]
    assert shown == [GPUS[2]]
    assert take_gpu(1, 4) is None, "what the script has chosen stays"
    assert shown == [GPUS[2]]


@pytest.mark.usefixtures("shown")
def test_impossible_and_costly_assignments_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take_gpu(0, 8)
    assert caplog.messages == ["smp: 8 ranks share 4 GPUs of this machine"]
    caplog.clear()

    def refuse(device: Any, kind: str) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: GPUS)
    monkeypatch.setattr(tf.config, "set_visible_devices", refuse)
    assert take_gpu(1, 4) is None
    (message,) = caplog.messages
    assert "call smp.init() first" in message


def test_a_machine_without_gpus_is_not_changed() -> None:
    assert tf.config.list_physical_devices("GPU") == []
    assert take_gpu(0, 2) is None
