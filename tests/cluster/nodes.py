"""Machines of a Ray cluster, simulated by network namespaces (``make matrix-ray``)."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from namespaces import HEAD, Machine

RAY_PORT = 6379
LEASE_S = 20.0
SPECIAL_ADDRESS = "10.88.0.12"
SPECIAL = ("--num-gpus=2", "--labels=disk=fast")
"""What one machine has. Its GPUs exist in Ray's count alone."""
_MEMORY_BYTES = 80_000_000


class Node(Machine):
    """One machine, which sees neither the service's state directory nor another machine's files.

    Args:
        number: Number from 1; the machine's address ends with ``10 + number``.
        root: Directory of its files.
        hidden: Directory of the service.
    """

    def __init__(self, number: int, root: Path, *, hidden: Path) -> None:
        super().__init__(number)
        self.root = root / self.name
        self._hidden = hidden
        self.root.mkdir(parents=True)
        self._ray: subprocess.Popen[bytes] | None = None

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

    def kill(self) -> None:
        """Send SIGKILL to all processes of the machine."""
        super().kill()
        if self._ray is not None:
            self._ray.wait()


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
