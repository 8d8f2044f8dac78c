"""The GPUs of a job: what its instance type has, as far as the machine has them. No GPU is needed."""

from typing import Any

import pytest

from tidemill.control.gpus import GpusMissing, plan_gpus


def request(*types: tuple[str, int], version: str = "2.21.0", device: str = "gpu") -> dict[str, Any]:
    groups = [
        {"InstanceGroupName": f"g{number}", "InstanceType": name, "InstanceCount": count}
        for number, (name, count) in enumerate(types)
    ]
    image = f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{version}-{device}-py311"
    return {"AlgorithmSpecification": {"TrainingImage": image}, "ResourceConfig": {"InstanceGroups": groups}}


@pytest.mark.parametrize(
    ("types", "present", "counts"),
    [
        ([("ml.p3.2xlarge", 1)], 4, [1]),
        ([("ml.p3.8xlarge", 1)], 4, [4]),
        ([("ml.p3.16xlarge", 1)], 4, [4]),
        ([("local_gpu", 1)], 3, [3]),
        ([("local_gpu", 2)], 3, [1, 1]),
        ([("ml.g5.12xlarge", 2)], 4, [2, 2]),
        ([("ml.m5.xlarge", 1)], 4, [0]),
        ([("local", 1)], 4, [0]),
        ([("ml.m5.xlarge", 2), ("ml.g4dn.xlarge", 1)], 4, [0, 0, 1]),
        ([("ml.p3.2xlarge", 1)], 0, [0]),
    ],
)
def test_an_instance_gets_the_gpus_of_its_type_or_all_of_the_machine(
    types: list[tuple[str, int]], present: int, counts: list[int]
) -> None:
    assert list(plan_gpus(request(*types), present=present).counts.values()) == counts


def test_the_log_names_instances_with_fewer_gpus_than_their_type() -> None:
    (notice,) = plan_gpus(request(("ml.p3.16xlarge", 1)), present=2).notices
    assert notice == "tidemill: algo-1 gets 2 of its instance type's 8 GPUs: this machine has 2"
    assert plan_gpus(request(("ml.p3.2xlarge", 1)), present=2).notices == ()


def test_more_instances_than_gpus_are_refused_unless_they_may_share() -> None:
    asked = request(("ml.p3.2xlarge", 3))
    with pytest.raises(GpusMissing, match="3 instances with GPUs were asked for, and this machine has 2 GPUs"):
        plan_gpus(asked, present=2)
    assert plan_gpus(asked, present=2, shared=True).total == 3


@pytest.mark.parametrize(("version", "device"), [("2.15.0", "gpu"), ("2.21.0", "cpu")])
def test_no_gpu_is_occupied_by_a_job_that_computes_on_processors(version: str, device: str) -> None:
    assert plan_gpus(request(("ml.p3.2xlarge", 1), version=version, device=device), present=4).total == 0
