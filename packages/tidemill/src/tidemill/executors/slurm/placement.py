"""Place instances on the nodes of a Slurm cluster: one allocation (sbatch) for each attempt, with an agent per node.

The allocation waits in Slurm's queue under a name that contains the job's id, so that a later service finds it even if
the service died before it could store Slurm's answer. Once it has nodes, sbcast brings the assignments to them.

A controller that does not answer never fails a job: what waits goes on waiting, and what runs is seen by its leases.
"""

import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidemill.core.files import read_json, write_json
from tidemill.core.instances import InstanceRef
from tidemill.core.remotes import pattern_for
from tidemill.core.slurm_options import SlurmOptions
from tidemill.errors import CapacityError, ConfigurationError, LaunchError, MachinesBusy
from tidemill.executors.base import Capacity
from tidemill.executors.slurm import batch, commands
from tidemill.executors.slurm.allocations import Allocation, Allocations
from tidemill.executors.slurm.commands import SlurmAway, SlurmRefused
from tidemill.executors.slurm.limits import why_never
from tidemill.executors.slurm.nodes import ip_address, nodes_of
from tidemill.executors.slurm.queue import AGAIN, Queue, SlurmJob
from tidemill.executors.slurm.watch import AllocationWatch

_RESERVE_S = 3.0
_LOOK_S = 0.3
_FRESH_S = 2.0
_KILL_S = 15.0
_CAPACITY_S = 60.0
_SEND_S = 120.0


class SlurmPlacement:
    """A Slurm cluster. Implements `tidemill.executors.cluster.placement.AgentPlacement`.

    Args:
        root: Directory of the records of allocations.
        options: What allocations ask for, by instance type or pattern. Default: nothing special.
        python: Path on the nodes of the Python with tidemill. Default: that of this process.
        prolog: Lines of shell that run before the agents.

    Raises:
        ConfigurationError: Slurm's commands are missing, or the controller has never answered.
    """

    def __init__(
        self,
        root: Path,
        *,
        options: Mapping[str, SlurmOptions] | None = None,
        python: str = "",
        prolog: Sequence[str] = (),
    ) -> None:
        commands.check_commands()
        self._allocations = Allocations(root)
        self._capacity_file = root / "capacity"
        self._capacity: Capacity | None = None
        self._asked_s = float("-inf")
        self._options = options or {}
        self._python = python or sys.executable
        self._prolog = prolog
        self._root = root
        self._queue = Queue()
        self._watch = AllocationWatch(self._allocations, self._queue)

    def watch(self, ended: Callable[[str, int, str], None]) -> None:
        self._watch.begin(ended)

    def capacity(self) -> Capacity:
        """Return the CPUs of all nodes; if the controller does not answer, those of its last answer.

        Raises:
            ConfigurationError: The controller has never answered.
        """
        if time.monotonic() - self._asked_s < _CAPACITY_S and self._capacity is not None:
            return self._capacity
        try:
            listing = commands.run("sinfo", "--noheader", "--Node", "--format=%N|%c")
        except (SlurmAway, SlurmRefused) as error:
            known = read_json(self._capacity_file)
            if known is None:
                raise ConfigurationError(
                    f"Slurm cannot be used: {error}; check `sinfo` as the user of the service, or set executor ="
                    ' "local"'
                ) from error
            return Capacity(instances=known["cpus"], cpus=known["cpus"], gpus=0)
        cpus = total_cpus(listing)
        write_json(self._capacity_file, {"version": 1, "cpus": cpus})
        self._asked_s = time.monotonic()
        self._capacity = Capacity(instances=cpus, cpus=cpus, gpus=0)
        return self._capacity

    def reserve(self, job_id: str, attempt: int, instance_types: Sequence[str], *, title: str) -> tuple[str, ...]:
        for older in self._allocations.of_job(job_id):
            if older.attempt < attempt:
                self._watch.end(older)
        try:
            return self._reserve(job_id, attempt, instance_types, title)
        except SlurmAway as error:
            raise MachinesBusy(f"Slurm does not answer: {error}") from error
        except SlurmRefused as error:
            kind = CapacityError if error.impossible else LaunchError
            raise kind(f"Slurm refused: {error}. Check the setting slurm_instance_types") from error

    def _reserve(self, job_id: str, attempt: int, instance_types: Sequence[str], title: str) -> tuple[str, ...]:
        options = self._options_of(instance_types)
        allocation = self._allocations.get(job_id, attempt)
        job = None
        if allocation is not None:
            fresh_s = _FRESH_S if allocation.number is not None else 0.0
            job = allocation.find(self._queue.jobs(not_before_s=time.monotonic() - fresh_s))
            if job is not None and allocation.number is None:
                allocation = self._allocations.change(allocation, number=job.number)
        else:
            allocation = self._allocations.put(
                Allocation(job_id=job_id, attempt=attempt, count=len(instance_types), nonce=secrets.token_hex(16))
            )
        if job is None:
            allocation = self._submit(allocation, options, title)
            job = self._await_answer(allocation)
        return self._nodes(allocation, job)

    def _submit(self, allocation: Allocation, options: SlurmOptions, title: str) -> Allocation:
        command = (
            *("sbatch", "--parsable", "--no-requeue", "--export=NIL", "--output=/dev/null", "--chdir=/"),
            f"--job-name={allocation.name}",
            f"--comment={title}",
            f"--nodes={allocation.count}",
            "--ntasks-per-node=1",
            *options.arguments(),
        )
        text = batch.script(python=self._python, prolog=self._prolog, nonce=allocation.nonce)
        try:
            answer = commands.run(*command, script=text)
        except SlurmRefused:
            self._allocations.remove(allocation)
            raise
        return self._allocations.change(allocation, number=int(answer.strip().partition(";")[0]))

    def _await_answer(self, allocation: Allocation) -> SlurmJob | None:
        """Return the job once it has nodes or has ended, or after a few seconds with Slurm's reason for its wait."""
        end_s = time.monotonic() + _RESERVE_S
        while True:
            time.sleep(_LOOK_S)
            job = allocation.find(self._queue.jobs(not_before_s=time.monotonic()))
            if (job is not None and not job.waits) or time.monotonic() >= end_s:
                return job

    def _nodes(self, allocation: Allocation, job: SlurmJob | None) -> tuple[str, ...]:
        """Return the addresses of an allocation's nodes.

        Raises:
            MachinesBusy: It has none yet, or has lost them.
            CapacityError: It never gets any.
            LaunchError: Slurm has ended it.
        """
        if job is None:
            raise MachinesBusy("Slurm does not list the job yet")
        never = "" if job.nodes else why_never(job, allocation.count)
        if never:
            raise CapacityError(f"{job}: {never}")
        if job.waits:
            raise MachinesBusy(str(job))
        if not job.ended:
            return tuple(ip_address(node) for node in nodes_of(job.nodes))
        self._allocations.remove(allocation)
        if job.state in AGAIN:
            raise MachinesBusy(f"{job} before the instances were started, and is submitted again")
        where = f" on the first of the nodes {job.nodes}" if job.nodes else ""
        raise LaunchError(
            f"{job} before the instances were started. What it has written is in"
            f" ~/.local/share/tidemill-node/slurm-{job.number}.log{where}"
        )

    def start(self, assignments: Mapping[InstanceRef, bytes]) -> None:
        if not assignments:
            return
        first = next(iter(assignments))
        allocation = self._allocations.get(first.job_id, first.attempt)
        if allocation is None:
            raise MachinesBusy("the allocation has ended")
        self._allocations.change(allocation, started=True)
        content = batch.pack({ref.instance_index: each for ref, each in assignments.items()})
        try:
            with tempfile.NamedTemporaryFile(dir=self._root, prefix="sent-") as file:  # mode 600, which sbcast keeps
                file.write(content)
                file.flush()
                path = batch.bundle_path(allocation.nonce)
                commands.run("sbcast", f"--jobid={allocation.number}", file.name, path, timeout_s=_SEND_S)
        except (SlurmAway, SlurmRefused) as error:
            self._watch.end(allocation)
            raise MachinesBusy(
                f"the nodes of Slurm's job {allocation.number} did not get their data: {error}"
            ) from error

    def kill(self, ref: InstanceRef) -> bool:
        """Cancel the allocation of the attempt, with all its instances. Return whether its processes have ended."""
        allocation = self._allocations.get(ref.job_id, ref.attempt)
        if allocation is None:
            return False
        try:
            return self._watch.kill(allocation, timeout_s=_KILL_S)
        except (SlurmAway, SlurmRefused):
            return False

    def waits(self, job_id: str) -> bool:
        return any(not each.started for each in self._allocations.of_job(job_id))

    def release(self, job_id: str) -> None:
        for allocation in self._allocations.of_job(job_id):
            self._watch.release(allocation)

    def close(self) -> None:
        self._watch.close()

    def _options_of(self, instance_types: Sequence[str]) -> SlurmOptions:
        found = []
        for each in dict.fromkeys(instance_types):
            pattern = pattern_for(each, self._options)
            options = SlurmOptions() if pattern is None else self._options[pattern]
            if options not in found:
                found.append(options)
        if len(found) > 1:
            raise CapacityError(
                f"the instance types {', '.join(sorted(set(instance_types)))} of one job have different options in"
                " slurm_instance_types, and a job gets one allocation: use one type, or give them the same options"
            )
        return found[0]


def total_cpus(listing: str) -> int:
    """Return the CPUs of all nodes in a listing of ``NODE|CPUS`` lines, which has a line per node and partition.

    Args:
        listing: Output of sinfo.
    """
    nodes = dict(line.strip().split("|", 1) for line in listing.splitlines() if line.strip())
    return sum(int(cpus) for cpus in nodes.values())
