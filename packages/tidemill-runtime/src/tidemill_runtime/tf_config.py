"""``TF_CONFIG``: the cluster that tf.distribute and tf.estimator read, as SageMaker's TensorFlow toolkit writes it."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from tidemill_runtime.events import emit

if TYPE_CHECKING:
    from tidemill_runtime.environment import Environment

MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
PARAMETER_SERVERS = "sagemaker_parameter_server_enabled"
SCRIPT_PORT = 2222
PARAMETER_SERVER_PORT = 2223
MIRRORED_PORT = 8890


def has_parameter_servers(environment: Environment) -> bool:
    """Return whether this instance runs a parameter server; a job of one instance has none, as on SageMaker.

    Args:
        environment: The job, as this instance sees it.
    """
    hosts = environment.distribution_hosts
    asked = _is_set(environment, PARAMETER_SERVERS)
    return asked and len(hosts) > 1 and environment.current_host in hosts


def tf_config_variables(environment: Environment) -> dict[str, str]:
    """Return ``TF_CONFIG`` for the script if the job's distribution sets it, else nothing.

    Args:
        environment: The job, as this instance sees it.

    Returns:
        ``{"TF_CONFIG": JSON}`` or ``{}``.
    """
    if has_parameter_servers(environment):
        index = environment.distribution_hosts.index(environment.current_host)
        task = {"type": "worker", "index": index - 1} if index else {"type": "master", "index": 0}
        return _variables(_cluster_of_servers(environment), task)
    hosts = environment.distribution_hosts
    if _is_set(environment, MIRRORED) and environment.current_host in hosts:
        port = MIRRORED_PORT if len(hosts) > 1 else _port_of_one()
        task = {"type": "worker", "index": hosts.index(environment.current_host)}
        return _variables({"worker": [f"{host}:{port}" for host in hosts]}, task)
    return {}


def parameter_server_config(environment: Environment) -> dict[str, str]:
    """Return ``TF_CONFIG`` for the parameter server of this instance.

    Args:
        environment: The job, as this instance sees it.

    Returns:
        ``{"TF_CONFIG": JSON}``.
    """
    index = environment.distribution_hosts.index(environment.current_host)
    return _variables(_cluster_of_servers(environment), {"type": "ps", "index": index})


def _cluster_of_servers(environment: Environment) -> dict[str, list[str]]:
    master, *workers = environment.distribution_hosts
    return {
        "master": [f"{master}:{SCRIPT_PORT}"],
        "worker": [f"{host}:{SCRIPT_PORT}" for host in workers],
        "ps": [f"{host}:{PARAMETER_SERVER_PORT}" for host in environment.distribution_hosts],
    }


def _variables(cluster: dict[str, list[str]], task: dict[str, Any]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "environment": "cloud", "task": task})}


def _is_set(environment: Environment, name: str) -> bool:
    return bool(environment.hyperparameters.framework.get(name))


def _port_of_one() -> int:
    """Return the usual port, or a free one if that is taken: a single instance may share the machine's ports."""
    for port in (MIRRORED_PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            chosen = int(probe.getsockname()[1])
        if chosen != MIRRORED_PORT:
            emit("tf_config.port", port=chosen, reason=f"port {MIRRORED_PORT} of this machine is in use")
        return chosen
    return MIRRORED_PORT
