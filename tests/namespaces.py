"""Machines of a simulated network: network namespaces with separate addresses on one bridge.

They are inside the namespaces of the test run, whose network contains nothing else.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

HEAD = "10.88.0.1"


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def make_bridge() -> None:
    """Create the network that all machines share; this process is the machine at ``HEAD``."""
    Path("/run/netns").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", "bridge0", "type", "bridge")
    ip("address", "add", f"{HEAD}/24", "dev", "bridge0")
    ip("link", "set", "bridge0", "up")


class Machine:
    """One machine on the bridge.

    Args:
        number: Number from 1; the machine's address ends with ``10 + number``.
    """

    def __init__(self, number: int) -> None:
        self.name = f"node{number}"
        self.address = f"10.88.0.{10 + number}"
        self._outer = f"port{number}"
        ip("netns", "add", self.name)
        ip("link", "add", self._outer, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self._outer, "master", "bridge0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")

    def pids(self) -> list[int]:
        """Return all processes of the machine."""
        return [int(line) for line in ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """Send SIGKILL to all processes of the machine."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Disconnect the machine from the network; its processes keep running."""
        ip("link", "set", self._outer, "down")

    def mend(self) -> None:
        """Reconnect the machine."""
        ip("link", "set", self._outer, "up")
