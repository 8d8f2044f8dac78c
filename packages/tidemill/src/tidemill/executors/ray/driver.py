"""Requests to Ray, called by several threads at once in a separate process; see `process`.

While an instance runs, no requests are sent to Ray: the lease at the service shows whether the instance is alive.
"""

import contextlib
import signal
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tidemill.core.instances import InstanceRef
from tidemill.core.kernel import end_with_parent
from tidemill.core.machine_share import MachineShare
from tidemill.errors import CapacityError, LaunchError, MachinesBusy
from tidemill.executors.base import Capacity
from tidemill.executors.cluster.fitting import MachineSize, too_few
from tidemill.executors.cluster.machine import Machine
from tidemill.settings import Settings

_NAMESPACE = "tidemill"
_CALL_S = 30.0
_KILL_S = 15.0
_CALLS_AT_ONCE = 4
"""Number of concurrent calls of one actor. More than one, so that a slow call does not delay a kill."""


class MachineActor:
    """The Ray actor of one instance. On the machine that Ray chooses, the actor starts and ends the instance's agent.

    Args:
        own_gpus: Whether the script may use only the GPUs that Ray assigns; else it may use all GPUs of the machine.
    """

    def __init__(self, job_id: str, index: int, attempt: int, *, own_gpus: bool) -> None:
        self._ref = InstanceRef(job_id, index, attempt)
        self._own_gpus = own_gpus
        self._machine = Machine(Settings().node_dir)

    def address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def start(self, assignment: bytes) -> None:
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", ())
        self._machine.start(self._ref, assignment, gpus=tuple(gpus) if self._own_gpus else None)

    def kill(self) -> None:
        self._machine.kill(self._ref)

    def clean(self) -> None:
        self._machine.clean(self._ref)


def prepare() -> None:
    """Make this process end with the service, and ignore Ctrl-C, which the service handles."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def connect(address: str) -> None:
    """Connect to a cluster.

    Raises:
        ConnectionError: No cluster answers, or the cluster has another version of Ray or Python.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises many kinds
        raise ConnectionError(str(error).strip()) from error


def capacity() -> Capacity:
    """Return the CPUs and GPUs of all machines, and the maximum number of instances, with one CPU each."""
    found = ray.cluster_resources()
    cpus = int(found.get("CPU", 0))
    return Capacity(instances=cpus, cpus=cpus, gpus=int(found.get("GPU", 0)))


def reserve(job_id: str, attempt: int, shares: tuple[MachineShare, ...], reserve_s: float) -> tuple[str, ...]:
    """Reserve a different machine for each instance; see `Placement.reserve`.

    Raises:
        CapacityError: The cluster has too few suitable machines.
        MachinesBusy: Too few suitable machines became free within ``reserve_s``.
        LaunchError: The machines do not answer.
    """
    name = f"{job_id}/{attempt}"
    try:
        group = get_placement_group(name)
    except ValueError:  # no such group
        _check_machines(shares)
        bundles = [{"CPU": share.cpus, **({"GPU": share.gpus} if share.gpus else {})} for share in shares]
        group = placement_group(
            bundles,
            strategy="STRICT_SPREAD",
            name=name,
            lifetime="detached",
            bundle_label_selector=[dict(share.labels) for share in shares],
        )
    if not group.wait(reserve_s):  # Ray itself would wait without a limit
        remove_placement_group(group)
        raise MachinesBusy(
            f"{len(shares)} instances need a machine each, with {' or '.join(sorted({str(each) for each in shares}))},"
            " and too few of those that have it are free"
        )
    try:
        actors = [_actor(InstanceRef(job_id, index, attempt), share, group) for index, share in enumerate(shares)]
        return tuple(ray.get([actor.address.remote() for actor in actors], timeout=_CALL_S))
    except ray.exceptions.RayError as error:
        raise LaunchError(f"the machines of the Ray cluster do not answer: {error}") from None


def _check_machines(shares: Sequence[MachineShare]) -> None:
    machines = [
        MachineSize(
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0),
            gpus=node["Resources"].get("GPU", 0),
            labels=node["Labels"],
        )
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0
    ]
    missing = too_few(shares, machines)
    if missing:
        raise CapacityError(
            f"{missing}. Ask for fewer instances, add machines with `ray start --address`, or change what instances of"
            " the type take (the setting ray_instance_types)"
        )


def start(ref: InstanceRef, assignment: bytes) -> None:
    """Start an agent; see `Placement.start`.

    Raises:
        LaunchError: The agent cannot be started.
    """
    try:
        ray.get(ray.get_actor(_actor_name(ref)).start.remote(assignment), timeout=_CALL_S)
    except (ray.exceptions.RayError, ValueError) as error:
        host = f"algo-{ref.instance_index + 1}"
        raise LaunchError(f"the agent of instance {host} cannot be started: {error}") from None


def kill(ref: InstanceRef) -> bool:
    """Kill an instance; see `Placement.kill`.

    Returns:
        Whether its machine was reached.
    """
    try:
        ray.get(ray.get_actor(_actor_name(ref)).kill.remote(), timeout=_KILL_S)
    except (ray.exceptions.RayError, ValueError):
        return False
    return True


def release(job_id: str) -> None:
    """Remove the remaining processes and files of a job; see `Placement.release`.

    Args:
        job_id: Hexadecimal id of the job.
    """
    actors = [name for name in ray.util.list_named_actors(all_namespaces=False) if name.startswith(f"{job_id}/")]
    for name in actors:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            actor = ray.get_actor(name)
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(actor.clean.remote(), timeout=_KILL_S)
            ray.kill(actor)
    for group in placement_group_table().values():
        if group["name"].startswith(f"{job_id}/") and group["state"] != "REMOVED":
            remove_placement_group(get_placement_group(group["name"]))


def _actor(ref: InstanceRef, share: MachineShare, group: Any) -> Any:
    options = {
        "name": _actor_name(ref),
        "lifetime": "detached",
        "num_cpus": share.cpus,
        "num_gpus": share.gpus or 0,
        "max_concurrency": _CALLS_AT_ONCE,
        "max_restarts": 0,
        "get_if_exists": True,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=ref.instance_index
        ),
    }
    actor = ray.remote(MachineActor).options(**options)
    return actor.remote(ref.job_id, ref.instance_index, ref.attempt, own_gpus=share.gpus is not None)


def _actor_name(ref: InstanceRef) -> str:
    return f"{ref.job_id}/{ref.instance_index}/{ref.attempt}"
