import pytest

from tidemill.core.machine_share import MachineShare, share_of
from tidemill.executors.cluster.fitting import MachineSize, too_few

SMALL = MachineSize(address="10.0.0.1", cpus=2)
LARGE = MachineSize(address="10.0.0.2", cpus=8, gpus=2, labels={"disk": "fast", "ray.io/node-id": "f00"})
ANY = MachineShare()
GPU = MachineShare(cpus=4, gpus=2)
LABELED = MachineShare(labels={"disk": "fast"})


@pytest.mark.parametrize("shares", [[ANY], [GPU], [ANY, GPU], [GPU, ANY], [ANY, LABELED]])
def test_instances_that_fit_different_machines_fit(shares: list[MachineShare]) -> None:
    for machines in ([SMALL, LARGE], [LARGE, SMALL]):
        assert too_few(shares, machines) == ""


@pytest.mark.parametrize(
    "shares",
    [[GPU, GPU], [GPU, LABELED], [ANY, ANY, ANY], [MachineShare(cpus=9)], [MachineShare(labels={"disk": "slow"})]],
)
def test_the_error_for_instances_that_do_not_fit_lists_the_machines(shares: list[MachineShare]) -> None:
    message = too_few(shares, [SMALL, LARGE])
    assert f"{len(shares)} instances need a machine each, with " in message
    assert "10.0.0.1 (2 CPUs), 10.0.0.2 (8 CPUs, 2 GPUs, disk=fast)" in message
    assert str(shares[0]) in message


def test_no_machines_are_too_few() -> None:
    assert too_few([GPU], []).endswith("of the 0 machines of the cluster 0 can be used: there are none")
    assert "4 CPUs, 2 GPUs" in too_few([GPU], [])


def test_the_most_specific_pattern_determines_the_resources_of_a_type() -> None:
    shares = {"ml.p3.*": GPU, "ml.p3.2xlarge": LABELED}
    assert share_of("ml.p3.2xlarge", shares) is LABELED
    assert share_of("ml.p3.8xlarge", shares) is GPU
    assert share_of("ml.m5.large", shares) == ANY


def test_a_label_of_ray_can_be_asked_for() -> None:
    assert LARGE.fits(MachineShare(labels={"ray.io/node-id": "f00"}))


@pytest.mark.parametrize("members", [{"cpus": 0}, {"gpus": -1}, {"labels": {"a": "!b"}}, {"labels": {"": "b"}}])
def test_a_share_that_cannot_be_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        MachineShare(**members)  # type: ignore[arg-type]
