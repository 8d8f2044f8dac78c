"""The groups of a training job's instances, from ``ResourceConfig`` of CreateTrainingJob."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["HOMOGENEOUS", "InstanceGroup", "hosts_of_channel", "instance_groups"]

HOMOGENEOUS = "homogeneousCluster"
"""Name of the only group of a job with InstanceCount, as in SageMaker's resourceconfig.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """Instances of one type.

    Attributes:
        hosts: Their names, ``algo-1`` and so on, numbered across all groups of a job in the order of the request.
    """

    name: str
    instance_type: str
    hosts: tuple[str, ...]


def instance_groups(resources: Mapping[str, Any]) -> tuple[InstanceGroup, ...]:
    """Return the groups of a job in the order of the request; one for a job without InstanceGroups.

    Args:
        resources: ``ResourceConfig``, by botocore's member names.
    """
    given = resources.get("InstanceGroups") or (
        {
            "InstanceGroupName": HOMOGENEOUS,
            "InstanceType": resources.get("InstanceType", ""),
            "InstanceCount": resources.get("InstanceCount", 1),
        },
    )
    groups: list[InstanceGroup] = []
    before = 0
    for each in given:
        hosts = tuple(f"algo-{before + i + 1}" for i in range(each["InstanceCount"]))
        groups.append(InstanceGroup(name=each["InstanceGroupName"], instance_type=each["InstanceType"], hosts=hosts))
        before += len(hosts)
    return tuple(groups)


def hosts_of_channel(groups: Sequence[InstanceGroup], channel: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts that get a channel: those of its InstanceGroupNames, or all if it names no groups.

    Args:
        groups: The groups of the job.
        channel: A member of ``InputDataConfig``, by botocore's member names.
    """
    names = channel["DataSource"]["S3DataSource"].get("InstanceGroupNames") or [group.name for group in groups]
    return tuple(host for group in groups if group.name in names for host in group.hosts)
