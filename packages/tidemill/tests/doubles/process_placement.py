"""A placement in which directories of this machine simulate the machines of a cluster. Agents are real processes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidemill.core.instances import InstanceRef
from tidemill.errors import CapacityError
from tidemill.executors.base import Capacity
from tidemill.executors.cluster.machine import Machine


class ProcessPlacement:
    """One directory below ``root`` per instance index, all of them on loopback.

    Attributes:
        ended: What `watch` was given: reports that the scheduler has ended an attempt.
        unreachable: Whether machines do not answer, as without a network: nothing is started or killed.
    """

    def __init__(self, root: Path, *, machines: int = 3) -> None:
        self._root = root
        self._machines = machines
        self._started: dict[str, set[InstanceRef]] = {}
        self.unreachable = False

    def capacity(self) -> Capacity:
        return Capacity(instances=self._machines, cpus=self._machines, gpus=0)

    def watch(self, ended: Callable[[str, int, str], None]) -> None:
        self.ended = ended

    def reserve(self, job_id: str, attempt: int, instance_types: Sequence[str], *, title: str) -> tuple[str, ...]:
        if len(instance_types) > self._machines:
            raise CapacityError(f"{len(instance_types)} machines were asked for, and there are {self._machines}")
        return ("127.0.0.1",) * len(instance_types)

    def start(self, assignments: Mapping[InstanceRef, bytes]) -> None:
        for ref, assignment in assignments.items():
            self._machine(ref).start(ref, assignment)
            self._started.setdefault(ref.job_id, set()).add(ref)

    def kill(self, ref: InstanceRef) -> bool:
        if not self.unreachable:
            self._machine(ref).kill(ref)
        return not self.unreachable

    def waits(self, job_id: str) -> bool:
        return False

    def release(self, job_id: str) -> None:
        if not self.unreachable:
            for ref in self._started.pop(job_id, set()):
                self._machine(ref).clean(ref)

    def directories(self, below: str) -> list[Path]:
        """Find a directory of the instances, e.g. ``ml/output/data``."""
        return [path for path in self._root.glob(f"*/*/jobs/*/algo-*/{below}") if path.is_dir()]

    def close(self) -> None:
        pass

    def _machine(self, ref: InstanceRef) -> Machine:
        return Machine(self._root / f"machine-{ref.instance_index}")
