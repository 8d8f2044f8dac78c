"""Machines of a Ray cluster, simulated by network namespaces with separate addresses.

They are inside the namespaces of the test run (``make matrix-ray``), whose network contains nothing else.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HEAD = "10.88.0.1"
RAY_PORT = 6379
LEASE_S = 20.0
SPECIAL_ADDRESS = "10.88.0.12"
SPECIAL = ("--num-gpus=2", "--labels=disk=fast")
"""What one machine has. Its GPUs exist in Ray's count alone."""
_MEMORY_BYTES = 80_000_000


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


class Node:
    """One machine, which sees neither the service's state directory nor another machine's files.

    Args:
        number: Number from 1; the machine's address ends with ``10 + number``.
        root: Directory of its files.
        hidden: Directory of the service.
    """

    def __init__(self, number: int, root: Path, *, hidden: Path) -> None:
        self.name = f"node{number}"
        self.address = f"10.88.0.{10 + number}"
        self.root = root / self.name
        self._hidden = hidden
        self.root.mkdir(parents=True)
        self._outer = f"port{number}"
        self._ray: subprocess.Popen[bytes] | None = None
        ip("netns", "add", self.name)
        ip("link", "add", self._outer, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self._outer, "master", "bridge0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")

    def join(self) -> None:
        """Start Ray."""
        special = SPECIAL if self.address == SPECIAL_ADDRESS else ()
        start = ray_start(f"--address={HEAD}:{RAY_PORT}", *special, address=self.address, root=self.root, cpus=2)
        # Ray's files are hidden too: its processes exchange information through them.
        hide = f'mount -t tmpfs tmpfs "{self._hidden}" && mount -t tmpfs tmpfs /tmp/ray && exec "$@"'
        command = ["ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-c", hide, "sh", *start]
        with (self.root / "ray.log").open("ab") as log:
            self._ray = subprocess.Popen(
                command,
                env=environment(self.root),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def pids(self) -> list[int]:
        """Return all processes of the machine."""
        return [int(line) for line in ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """Send SIGKILL to all processes of the machine."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._ray is not None:
            self._ray.wait()

    def cut(self) -> None:
        """Disconnect the machine from the network; its processes keep running."""
        ip("link", "set", self._outer, "down")

    def mend(self) -> None:
        """Reconnect the machine."""
        ip("link", "set", self._outer, "up")


def environment(root: Path) -> dict[str, str]:
    """Return the variables of a machine with its files below ``root``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return kept | {
        "TIDEMILL_CONFIG": os.devnull,
        "TIDEMILL_NODE_DIR": str(root / "instances"),
        "TIDEMILL_ENVIRONMENTS_DIR": os.environ["TIDEMILL_ENVIRONMENTS_DIR"],
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def ray_start(*options: str, address: str, root: Path, cpus: int) -> Sequence[str]:
    """Return the command that adds a machine to the cluster."""
    return (
        str(Path(sys.executable).with_name("ray")),
        "start",
        *options,
        f"--node-ip-address={address}",
        f"--num-cpus={cpus}",
        f"--object-store-memory={_MEMORY_BYTES}",
        "--disable-usage-stats",
        "--block",
    )
