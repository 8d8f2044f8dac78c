"""The network of a job in isolation mode ``full``: created once per job, entered by each of its instances.

Each instance has a network namespace and an address. A bridge connects the instances, and nothing connects the bridge
to the machine. A process that outlives the service holds the network (`network_holder.py`); when it ends, the network
is gone. The only way out is one port on the loopback of each instance, which leads to the service, if the job may use
it.
"""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.core.process import ProcessId

__all__ = ["INTERFACE", "JobNetwork", "enter", "make_network", "network_failure"]

INTERFACE = "eth0"
"""Name of the interface inside an instance."""

_TIMEOUT_S = 60
_MOST_INSTANCES = 65_000
_NEW_MOUNT = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNetwork:
    """A network that a process holds.

    Attributes:
        holder: The process. When it ends, the network is gone.
        user_fd: The holder's descriptor of the user namespace that owns all other namespaces.
        instances: For each instance its IPv4 address, and the holder's descriptor of its network namespace.
    """

    holder: ProcessId
    user_fd: int
    instances: tuple[tuple[str, int], ...]

    def open(self, index: int) -> tuple[int, int]:
        """Open descriptors of the namespaces to enter, in order. The caller closes them.

        Raises:
            OSError: The network is gone.
        """
        opened: list[int] = []
        try:
            opened.append(os.open(f"/proc/{self.holder.pid}/fd/{self.user_fd}", os.O_RDONLY | os.O_CLOEXEC))
            held = self.instances[index][1]
            opened.append(os.open(f"/proc/{self.holder.pid}/fd/{held}", os.O_RDONLY | os.O_CLOEXEC))
            # Checked after opening: if the holder still lives, the descriptors are those of the holder.
            if not self.holder.alive:
                raise ProcessLookupError("the process that held the network of the job has ended")
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        return opened[0], opened[1]

    def to_json(self) -> dict[str, Any]:
        holder = self.holder
        return {
            "boot_id": holder.boot_id,
            "pid": holder.pid,
            "start_ticks": holder.start_ticks,
            "user_fd": self.user_fd,
            "instances": [list(each) for each in self.instances],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "JobNetwork":
        return cls(
            holder=ProcessId(value["boot_id"], value["pid"], value["start_ticks"]),
            user_fd=value["user_fd"],
            instances=tuple((address, fd) for address, fd in value["instances"]),
        )


def make_network(
    name: str, *, instances: int, service: tuple[str, int] | None, variables: Mapping[str, str]
) -> JobNetwork:
    """Create a network, and leave a process behind that holds it.

    Args:
        name: Name of the network, from which its address range is derived. Networks with equal ranges are still
            separate.
        instances: Number of instances.
        service: Loopback address and port of the service, which instances reach under the same address; None: no
            access.
        variables: The environment of the holder.

    Raises:
        OSError: The network cannot be created; the message says why.
    """
    if not 1 <= instances <= _MOST_INSTANCES:
        raise OSError(f"a network of {instances} instances cannot be made: allowed are 1 to {_MOST_INSTANCES}")
    plan = {"addresses": [_address(name, index) for index in range(instances)], "service": service}
    script = str(Path(__file__).with_name("network_holder.py"))
    try:
        made = subprocess.run(
            [sys.executable, "-I", "-S", script, json.dumps(plan)],
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            start_new_session=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the network of the job was not made within {_TIMEOUT_S} s") from error
    if made.returncode:
        text = (made.stdout or made.stderr).decode(errors="replace").strip()
        raise OSError(text or f"exit status {made.returncode}")
    value = json.loads(made.stdout)
    holder = ProcessId.of(value["pid"])
    if holder is None:
        raise ProcessLookupError("the process that held the network of the job has ended")
    return JobNetwork(
        holder=holder, user_fd=value["user_fd"], instances=tuple((each[0], each[1]) for each in value["instances"])
    )


def network_failure() -> str | None:
    """Create a network, enter it and remove it. Return None if that works, else the reason why it does not."""
    try:
        network = make_network("trial", instances=1, service=None, variables={"LANG": "C.UTF-8"})
    except OSError as error:
        return str(error)
    try:
        namespaces = network.open(0)
        try:
            tried = subprocess.run(
                ["/bin/true"],
                preexec_fn=lambda: enter(namespaces),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        finally:
            for fd in namespaces:
                os.close(fd)
        return f"exit status {tried.returncode} inside" if tried.returncode else None
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be entered: {error}"
    finally:
        if network.holder.alive:
            os.kill(network.holder.pid, 9)


def enter(namespaces: tuple[int, ...]) -> None:
    """Enter namespaces, in a process that has one thread and is about to execute another program.

    ``/sys/class/net`` shows the interfaces of the new network if the kernel allows it, else the machine's.

    Raises:
        OSError: A namespace cannot be entered.
    """
    if not namespaces:
        return
    for fd in namespaces:
        if _libc.setns(fd, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"enter a namespace of the job's network: {os.strerror(number)}")
    if _libc.unshare(_NEW_MOUNT) == 0:
        _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        _libc.mount(b"sysfs", b"/sys", b"sysfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)


def _address(name: str, index: int) -> str:
    number = index + 1  # .0.0 is the address of the network itself
    return f"10.{hashlib.sha256(name.encode()).digest()[0]}.{number >> 8}.{number & 255}"
