"""The nodes of an allocation: their addresses, and whether they respond."""

import re
import socket
from dataclasses import dataclass

from tidemill.errors import LaunchError
from tidemill.executors.slurm import commands

_MEMBER = re.compile(r"(\w+)=(\S*)")
_GONE = re.compile(r"\*|DOWN|NOT_RESPONDING|POWERED_DOWN|POWERING_DOWN|UNKNOWN|FAIL|REBOOT")


@dataclass(frozen=True, slots=True)
class Node:
    """A node as ``scontrol show node`` describes it.

    Attributes:
        address: The name or IP address by which Slurm reaches the node.
        state: For example ``ALLOCATED`` or ``DOWN*``.
    """

    name: str
    address: str
    state: str

    @property
    def responds(self) -> bool:
        """Whether the controller has contact with the node."""
        return not _GONE.search(self.state)


def parse(listing: str) -> tuple[Node, ...]:
    """Return the nodes in an output of ``scontrol show node --oneliner``.

    Args:
        listing: One line per node.
    """
    each = (dict(_MEMBER.findall(line)) for line in listing.splitlines() if line.startswith("NodeName="))
    return tuple(Node(node["NodeName"], node["NodeAddr"], node["State"]) for node in each)


def nodes_of(names: str) -> tuple[Node, ...]:
    """Return the nodes of an allocation, in the order of the numbers that Slurm gives them in the allocation.

    Args:
        names: Slurm's compact form, e.g. ``node[1-3]``.

    Raises:
        SlurmAway: Slurm does not answer.
        SlurmRefused: There is no such node.
    """
    order = commands.run("scontrol", "show", "hostnames", names).split()
    found = {node.name: node for node in parse(commands.run("scontrol", "show", "node", "--oneliner", names))}
    return tuple(found[name] for name in order)


def ip_address(node: Node) -> str:
    """Return the IP address of a node.

    Raises:
        LaunchError: The name of the node is unknown here.
    """
    try:
        found = socket.getaddrinfo(node.address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LaunchError(
            f"the address {node.address!r} of Slurm's node {node.name} is unknown on the service's machine: {error}"
        ) from error
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0])
