"""Decide how many GPUs each instance of a training job gets: those of its instance type, if the machine has enough."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.frameworks import Frameworks
from tidemill.core.instance_types import ALL_GPUS, instance_type
from tidemill.core.training import instance_groups


class GpusMissing(Exception):
    """The job has more GPU instances than the machine has GPUs; the message becomes the job's FailureReason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """The GPUs of a job.

    Attributes:
        counts: Number of GPUs of each instance, by host name.
        notices: Lines for the job's log, one per instance with fewer GPUs than its instance type has.
    """

    counts: Mapping[str, int]
    notices: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of GPUs of all instances."""
        return sum(self.counts.values())


def plan_gpus(
    request: Mapping[str, Any], *, present: int, shared: bool = False, frameworks: Frameworks | None = None
) -> GpuPlan:
    """Return the GPUs of a CreateTrainingJob request.

    Args:
        request: The request, by botocore's member names.
        shared: Whether several instances may use the same GPU.
        frameworks: Selects the environment. Default: without the setting ``images``.

    Raises:
        GpusMissing: The machine has fewer GPUs than the job has GPU instances, and ``shared`` is false.
        ValueError: No supported framework fits the request; see `tidemill.core.frameworks.select`.
    """
    groups = instance_groups(request["ResourceConfig"])
    asked = {host: instance_type(group.instance_type).num_gpus for group in groups for host in group.hosts}
    wanted = {host: present if count == ALL_GPUS else count for host, count in asked.items()}
    frameworks = frameworks or Frameworks()
    if (
        not present
        or not any(wanted.values())
        or not frameworks.of_training(request, gpus=max(wanted.values())).uses_gpus
    ):
        return GpuPlan(counts=dict.fromkeys(asked, 0))
    counts = {host: min(count, present) for host, count in wanted.items()}
    if not shared and sum(counts.values()) > present:
        takers = sum(count > 0 for count in counts.values())
        if takers > present:
            raise GpusMissing(
                "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML"
                f" instance type: {takers} instances with GPUs were asked for, and this machine has {present} GPUs."
                f" Ask for at most {present} of them, for an instance type without GPUs, or set share_gpus"
            )
        counts = {host: min(count, present // takers) for host, count in counts.items()}
    short = [host for host, count in counts.items() if count < wanted[host]]
    notices = tuple(
        f"tidemill: {host} gets {counts[host]} of its instance type's {wanted[host]} GPUs: this machine has {present}"
        for host in short
    )
    return GpuPlan(counts=counts, notices=notices)
