"""Place instances on the machines of a Ray cluster: a placement group for each attempt, an actor for each instance.

The actors are detached, so actors and agents outlive the service. The name of an actor contains the reference of its
instance, so that a later service finds it.

Ray runs in a child process of the service, because Ray installs signal handlers, and ends its process after an internal
error.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tidemill.core.instances import InstanceRef
from tidemill.core.machine_share import MachineShare, share_of
from tidemill.errors import ConfigurationError, LaunchError
from tidemill.executors.base import Capacity
from tidemill.executors.ray import driver
from tidemill.executors.ray.process import RayProcess, RayProcessEnded

Result = TypeVar("Result")


class RayPlacement:
    """A Ray cluster. Implements `tidemill.executors.cluster.placement.AgentPlacement`.

    Args:
        address: Address of the cluster: ``HOST:PORT``, or ``auto`` (the default) for the cluster of this machine.
        shares: Resources of a machine that an instance takes, by instance type or pattern. Default: one CPU.
        reserve_s: Time limit in seconds for Ray to reserve machines. Default: 5.

    Raises:
        ConfigurationError: The cluster cannot be reached.
    """

    def __init__(
        self, address: str = "auto", *, shares: Mapping[str, MachineShare] | None = None, reserve_s: float = 5.0
    ) -> None:
        self._address = address
        self._shares = shares or {}
        self._reserve_s = reserve_s
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._process = RayProcess(address)
        except (ConnectionError, RayProcessEnded) as error:
            raise ConfigurationError(
                f"the Ray cluster {address!r} cannot be used: {error}; start one with `ray start --head`, name its"
                ' address in the setting ray_address, or set executor = "local"'
            ) from error

    def capacity(self) -> Capacity:
        return self._ask(driver.capacity)

    def watch(self, ended: Callable[[str, int, str], None]) -> None:
        """Report nothing: Ray is not asked while an instance runs, because the lease shows whether it is alive."""

    def reserve(self, job_id: str, attempt: int, instance_types: Sequence[str], *, title: str) -> tuple[str, ...]:
        shares = tuple(share_of(each, self._shares) for each in instance_types)
        return self._ask(driver.reserve, job_id, attempt, shares, self._reserve_s)

    def start(self, assignments: Mapping[InstanceRef, bytes]) -> None:
        for ref, assignment in assignments.items():
            self._ask(driver.start, ref, assignment)

    def kill(self, ref: InstanceRef) -> bool:
        return self._ask(driver.kill, ref)

    def waits(self, job_id: str) -> bool:
        """Return False: a request that Ray cannot fulfil at once is removed."""
        return False

    def release(self, job_id: str) -> None:
        self._ask(driver.release, job_id)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._process.close()

    def _ask(self, question: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function of `driver` in Ray's process. If the process has ended, replace it and retry once.

        Raises:
            LaunchError: Ray cannot be reached, or the function raised it.
        """
        process = self._process
        try:
            return process.ask(question, *arguments)
        except RayProcessEnded:
            pass
        try:
            with self._lock:
                if self._closed:
                    raise LaunchError(f"the service has left the Ray cluster {self._address!r}: it is about to end")
                if self._process is process:
                    self._process = RayProcess(self._address)
            return self._process.ask(question, *arguments)
        except (ConnectionError, RayProcessEnded) as error:
            raise LaunchError(f"the Ray cluster {self._address!r} cannot be reached: {error}") from error
