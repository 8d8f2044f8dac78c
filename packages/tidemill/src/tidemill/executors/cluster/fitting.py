"""Check whether a cluster, if all its machines were free, could run each instance of a job on a different machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.core.machine_share import MachineShare

_SHOWN = 6
_RAYS_OWN = "ray.io/"
"""Prefix of the labels that Ray adds to every machine. They can be required, but messages omit them as too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """The resources of a machine, whether free or in use.

    Attributes:
        address: IP address.
        labels: Ray's labels of the machine.
    """

    address: str
    cpus: float
    gpus: float = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def fits(self, share: MachineShare) -> bool:
        """Return whether the machine, if it were free, could provide a share.

        Args:
            share: What an instance needs.
        """
        has_labels = all(self.labels.get(name) == value for name, value in share.labels.items())
        return has_labels and self.cpus >= share.cpus and self.gpus >= (share.gpus or 0)

    def __str__(self) -> str:
        labels = [f"{name}={value}" for name, value in self.labels.items() if not name.startswith(_RAYS_OWN)]
        gpus = [f"{self.gpus:g} GPUs"] if self.gpus else []
        return f"{self.address} ({', '.join([f'{self.cpus:g} CPUs', *gpus, *labels])})"


def too_few(shares: Sequence[MachineShare], machines: Sequence[MachineSize]) -> str:
    """Return why the machines do not suffice; empty if each instance can have a machine.

    Args:
        shares: The share of a machine that each instance takes.
    """
    given: dict[int, int] = {}  # machine: instance
    placed = sum(_place(index, shares, machines, given, set()) for index in range(len(shares)))
    if placed == len(shares):
        return ""
    needs = sorted({str(share) for share in shares})
    shown = ", ".join(str(each) for each in machines[:_SHOWN]) + (", ..." if len(machines) > _SHOWN else "")
    return (
        f"{len(shares)} instances need a machine each, with {' or '.join(needs)}; of the {len(machines)} machines of"
        f" the cluster {placed} can be used: {shown or 'there are none'}"
    )


def _place(
    instance: int,
    shares: Sequence[MachineShare],
    machines: Sequence[MachineSize],
    given: dict[int, int],
    tried: set[int],
) -> bool:
    """Find a machine for an instance, and move other instances if needed (maximum bipartite matching)."""
    for number, machine in enumerate(machines):
        if number not in tried and machine.fits(shares[instance]):
            tried.add(number)
            if number not in given or _place(given[number], shares, machines, given, tried):
                given[number] = instance
                return True
    return False
