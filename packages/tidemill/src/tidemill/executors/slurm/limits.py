"""Reasons for which Slurm never starts a job, although it keeps the job in the queue until someone cancels it."""

import re
from collections.abc import Mapping

from tidemill.executors.slurm import commands
from tidemill.executors.slurm.queue import SlurmJob

_CHECK = "Check the setting slurm_instance_types"
_NEVER: Mapping[str, str] = {
    "BadConstraints": f"no node of the cluster has what the job asks for. {_CHECK}",
    "DependencyNeverSatisfied": f"the job that it depends on has failed. {_CHECK}",
    "PartitionTimeLimit": f"its time limit is longer than its partition allows. {_CHECK}",
}
_TOO_MANY_OR_DOWN = "PartitionNodeLimit"
_MEMBER = re.compile(r"(\w+)=(\S*)")


def why_never(job: SlurmJob, count: int) -> str:
    """Return why a job never starts, and what to do; an empty string if it may start.

    Args:
        job: A job that has not started.
        count: Number of nodes that it asks for.

    Raises:
        SlurmAway: Slurm does not answer.
    """
    if job.reason != _TOO_MANY_OR_DOWN:
        return _NEVER.get(job.reason, "")
    # Slurm gives this reason also for nodes that are down, which may come back.
    try:
        description = commands.run("scontrol", "show", "job", "--oneliner", str(job.number))
        listing = commands.run("scontrol", "show", "partition", "--oneliner")
    except commands.SlurmRefused:  # the job has just ended
        return ""
    found = re.search(r" Partition=(\S+)", description)
    limits = {name: most for name, most in _most_nodes(listing).items() if found and name in found[1].split(",")}
    if not limits or max(limits.values()) >= count:
        return ""
    most = ", ".join(f"{name} gives a job at most {nodes}" for name, nodes in sorted(limits.items()))
    return f"it asks for {count} nodes, and the partition {most}. Use fewer instances, or another partition"


def _most_nodes(listing: str) -> dict[str, int]:
    """Return the nodes that each partition gives to one job at most, by an output of ``scontrol show partition``."""
    each = (dict(_MEMBER.findall(line)) for line in listing.splitlines() if line.startswith("PartitionName="))
    return {
        partition["PartitionName"]: min(
            int(partition[name]) for name in ("TotalNodes", "MaxNodes") if partition[name].isdigit()
        )
        for partition in each
    }
