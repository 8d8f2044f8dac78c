"""Instance groups: the instances that take part in distributed training, and their master."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.variables import encode, sm_variables

NAMED = "sagemaker_distribution_instance_groups"
HOSTS = ["algo-1", "algo-2", "algo-3"]


def group(name: str, *hosts: str) -> dict[str, Any]:
    return {"instance_group_name": name, "instance_type": "ml.m5.xlarge", "hosts": list(hosts)}


CPU, GPU = group("cpu", "algo-1"), group("gpu", "algo-2", "algo-3")
ALL = group("homogeneousCluster", *HOSTS)


@dataclass(frozen=True)
class Case:
    """A cluster and its framework parameters, and the values that sagemaker-training 5.1.4 computes."""

    host: str
    group: str | None
    """`current_group_name`; None omits it."""
    groups: list[dict[str, Any]] | None
    """`instance_groups`; None omits it."""
    framework: dict[str, Any]
    distribution_groups: list[str]
    distribution_hosts: list[str]
    master: str
    hosts: tuple[str, ...] = tuple(HOSTS)
    answered_group: str | None = None
    """`current_instance_group` if it differs from `group`."""

    @property
    def resources(self) -> dict[str, Any]:
        optional = {"current_group_name": self.group, "instance_groups": self.groups}
        return {
            "current_host": self.host,
            "current_instance_type": "ml.m5.xlarge",
            "hosts": list(self.hosts),
            "network_interface_name": "eth0",
            **{name: value for name, value in optional.items() if value is not None},
        }


MPI = {"sagemaker_mpi_enabled": True}
# The last three values of each case are those of sagemaker-training 5.1.4, as observed (SM_TRAINING_ENV of
# sagemaker_training.environment.Environment in a separate environment).
CASES = {
    "second group, its first host": Case(
        "algo-2", "gpu", [CPU, GPU], {NAMED: ["gpu"], **MPI}, ["gpu"], ["algo-2", "algo-3"], "algo-2"
    ),
    "second group, its second host": Case(
        "algo-3", "gpu", [CPU, GPU], {NAMED: ["gpu"], **MPI}, ["gpu"], ["algo-2", "algo-3"], "algo-2"
    ),
    "second group, a host outside": Case(
        "algo-1", "cpu", [CPU, GPU], {NAMED: ["gpu"], **MPI}, ["gpu"], ["algo-2", "algo-3"], "algo-2"
    ),
    "both groups, named in the other order": Case(
        "algo-1", "cpu", [CPU, GPU], {NAMED: ["gpu", "cpu"]}, ["gpu", "cpu"], HOSTS, "algo-1"
    ),
    "both groups, configured in the other order": Case(
        "algo-2", "gpu", [GPU, CPU], {NAMED: ["cpu", "gpu"]}, ["cpu", "gpu"], ["algo-2", "algo-3", "algo-1"], "algo-2"
    ),
    "mpi without named groups, in the second": Case(
        "algo-2", "gpu", [CPU, GPU], MPI, ["gpu"], ["algo-2", "algo-3"], "algo-2"
    ),
    "mpi without named groups, in the first": Case("algo-1", "cpu", [CPU, GPU], MPI, ["cpu"], ["algo-1"], "algo-1"),
    "parameter server": Case(
        "algo-3",
        "gpu",
        [CPU, GPU],
        {"sagemaker_parameter_server_enabled": True},
        ["gpu"],
        ["algo-2", "algo-3"],
        "algo-2",
    ),
    "mpi disabled": Case("algo-3", "gpu", [CPU, GPU], {"sagemaker_mpi_enabled": False}, [], [], "algo-1"),
    "no distribution": Case("algo-2", "gpu", [CPU, GPU], {}, [], [], "algo-1"),
    "no distribution, hosts in another order": Case(
        "algo-2", "gpu", [GPU, CPU], {}, [], [], "algo-2", hosts=("algo-2", "algo-3", "algo-1")
    ),
    "an unknown group": Case("algo-2", "gpu", [CPU, GPU], {NAMED: ["tpu"]}, ["tpu"], [], "algo-1"),
    "an empty list": Case("algo-2", "gpu", [CPU, GPU], {NAMED: [], **MPI}, [], [], "algo-1"),
    "a group in another order": Case(
        "algo-2",
        "gpu",
        [CPU, group("gpu", "algo-3", "algo-2")],
        {NAMED: ["gpu"]},
        ["gpu"],
        ["algo-3", "algo-2"],
        "algo-3",
    ),
    "algo-10, which sorts before algo-2": Case(
        "algo-10",
        "g",
        [group("g", "algo-2", "algo-10")],
        {NAMED: ["g"]},
        ["g"],
        ["algo-2", "algo-10"],
        "algo-2",
        hosts=("algo-2", "algo-10"),
    ),
    "one group, mpi": Case("algo-2", "homogeneousCluster", [ALL], MPI, ["homogeneousCluster"], HOSTS, "algo-1"),
    "one group, plain": Case("algo-1", "homogeneousCluster", [ALL], {}, [], [], "algo-1"),
    "no groups, mpi": Case(
        "algo-1", None, None, MPI, ["homogeneousCluster"], HOSTS, "algo-1", answered_group="homogeneousCluster"
    ),
    "no groups, plain": Case("algo-2", None, None, {}, [], HOSTS, "algo-1", answered_group="homogeneousCluster"),
    "no groups, one named": Case(
        "algo-2", None, None, {NAMED: ["gpu"]}, ["gpu"], HOSTS, "algo-1", answered_group="homogeneousCluster"
    ),
    "no current group, mpi": Case(
        "algo-2", None, [CPU, GPU], MPI, ["homogeneousCluster"], [], "algo-1", answered_group="homogeneousCluster"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_and_master_are_the_toolkits(job, name):
    case = CASES[name]
    job.config("resourceconfig", case.resources)
    job.config("hyperparameters", {key: json.dumps(value) for key, value in case.framework.items()})
    job.config("inputdataconfig", {})
    devices = Devices(num_cpus=2, num_gpus=0, num_neurons=0)
    variables = sm_variables(Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)}, devices=devices))
    current = case.answered_group or case.group
    groups = {one["instance_group_name"]: one for one in case.groups or []}
    names, hosts_of_current = list(groups), groups.get(current or "", {}).get("hosts", [])
    expected = {
        "current_instance_group": current,
        "current_instance_group_hosts": hosts_of_current,
        "distribution_hosts": case.distribution_hosts,
        "distribution_instance_groups": case.distribution_groups,
        "hosts": list(case.hosts),
        "instance_groups": names,
        "instance_groups_dict": groups,
        "is_hetero": len(names) > 1,
        "is_master": case.host == case.master,
        "master_hostname": case.master,
    }
    environment = json.loads(variables["SM_TRAINING_ENV"])
    assert {key: environment[key] for key in expected} == expected
    for key in ("distribution_hosts", "is_master", "master_hostname"):
        expected.pop(key)  # these have no variables of their own
    assert {key: variables[f"SM_{key.upper()}"] for key in expected} == {
        key: encode(value) for key, value in expected.items()
    }
