"""TF_CONFIG: the clusters of SageMaker's TensorFlow toolkit, instance by instance."""

import json
import socket

import pytest

from tidemill_runtime import tf_config
from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.tf_config import has_parameter_servers, parameter_server_config, tf_config_variables
from tidemill_runtime.variables import script_variables

SERVERS = "sagemaker_parameter_server_enabled"
MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
HOSTS = ["algo-1", "algo-2", "algo-3"]
CLUSTER = {
    "master": ["algo-1:2222"],
    "worker": ["algo-2:2222", "algo-3:2222"],
    "ps": ["algo-1:2223", "algo-2:2223", "algo-3:2223"],
}


@pytest.fixture
def instance(job):
    def instance(host, *flags, hosts=HOSTS, groups=None, **framework):
        values = {**dict.fromkeys(flags, True), **framework}
        job.config("hyperparameters", {name: json.dumps(value) for name, value in values.items()})
        resources = {"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}
        if groups:
            (own,) = (name for name, members in groups.items() if host in members)
            named = [{"instance_group_name": name, "hosts": members} for name, members in groups.items()]
            resources |= {"current_group_name": own, "instance_groups": named}
        job.config("resourceconfig", resources)
        devices = Devices(num_cpus=1, num_gpus=0, num_neurons=0)
        return Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)}, devices=devices)

    return instance


def read(variables):
    config = json.loads(variables["TF_CONFIG"])
    assert config.pop("environment") == "cloud"
    return config


@pytest.mark.parametrize(
    ("host", "task", "index"),
    [
        ("algo-1", {"type": "master", "index": 0}, 0),
        ("algo-2", {"type": "worker", "index": 0}, 1),
        ("algo-3", {"type": "worker", "index": 1}, 2),
    ],
)
def test_the_first_instance_is_the_master_of_parameter_servers(instance, host, task, index):
    environment = instance(host, SERVERS)
    assert has_parameter_servers(environment)
    assert read(script_variables(environment, {}, prefixes=[])) == {"cluster": CLUSTER, "task": task}
    assert read(parameter_server_config(environment)) == {"cluster": CLUSTER, "task": {"type": "ps", "index": index}}


@pytest.mark.parametrize("index", range(3))
def test_mirrored_workers_have_no_chief_and_one_port(instance, index):
    variables = script_variables(instance(HOSTS[index], MIRRORED), {"TF_CONFIG": "the container's"}, prefixes=[])
    workers = [f"{host}:8890" for host in HOSTS]
    assert read(variables) == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}


def test_one_mirrored_worker_has_a_cluster_too_on_another_port_if_the_usual_one_is_taken(instance, capfd, monkeypatch):
    environment = instance("algo-1", MIRRORED, hosts=["algo-1"])
    with socket.create_server(("", 0)) as taken:  # unlike the usual one, no other process takes or leaves it
        usual = taken.getsockname()[1]
        monkeypatch.setattr(tf_config, "MIRRORED_PORT", usual)
        (worker,) = read(tf_config_variables(environment))["cluster"]["worker"]
    host, _, port = worker.partition(":")
    assert host == "algo-1"
    assert int(port) != usual
    assert f"tf_config.port port={port}" in capfd.readouterr().err


def test_parameter_servers_come_before_mirrored_workers(instance):
    assert read(tf_config_variables(instance("algo-2", MIRRORED, SERVERS)))["cluster"] == CLUSTER


@pytest.mark.parametrize("flag", [SERVERS, MIRRORED])
def test_only_instances_of_the_distribution_groups_take_part(instance, flag):
    groups = {"data": ["algo-1"], "train": ["algo-2", "algo-3"]}
    named = {"sagemaker_distribution_instance_groups": ["train"]}
    assert tf_config_variables(instance("algo-1", flag, groups=groups, **named)) == {}
    assert not has_parameter_servers(instance("algo-1", flag, groups=groups, **named))
    config = read(tf_config_variables(instance("algo-2", flag, groups=groups, **named)))
    hosts = {address.partition(":")[0] for members in config["cluster"].values() for address in members}
    assert hosts == {"algo-2", "algo-3"}
    assert config["task"]["index"] == 0


def test_without_a_distribution_the_variable_is_the_users_own(instance):
    environment = instance("algo-2")
    assert script_variables(environment, {"TF_CONFIG": "mine"}, prefixes=[])["TF_CONFIG"] == "mine"
