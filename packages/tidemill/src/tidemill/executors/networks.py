"""The networks of jobs on this machine, one for each attempt. A restarted service finds them again.

A file beside the instances names the process that holds the network. The file is written before that process starts, so
that the next service finds the process even if this one is killed in between.
"""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tidemill.core import faults
from tidemill.core.files import read_json, write_json
from tidemill.core.instances import InstanceRef
from tidemill.errors import LaunchError
from tidemill.executors.shim_process import await_end, send_signal
from tidemill.instance.process_tree import MARK, kill_marked
from tidemill.instance.spec import InstanceSpec
from tidemill.sandbox.network import JobNetwork, make_network, network_log


@dataclass(frozen=True, slots=True)
class JobNetworks:
    """Makes, finds and ends the networks of jobs.

    Attributes:
        service_url: URL that jobs may reach from inside, unless their network is isolated; None without a service.
    """

    state_dir: Path
    service_url: str | None = None

    def file(self, ref: InstanceRef) -> Path:
        """Return the file that describes the network of an attempt."""
        return self.state_dir / "jobs" / ref.job_id / f"network.{ref.attempt}.json"

    def ensure(self, spec: InstanceSpec) -> Path:
        """Make the network of the spec's attempt if it does not exist. Return the file that describes it.

        Raises:
            LaunchError: The network cannot be made.
        """
        file = self.file(spec.ref)
        try:
            if _held(file):
                return file
            self._end(file)
            file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            write_json(file, {"version": 1})
            faults.point("executor.network.before")
            service = None if spec.closed else _address(self.service_url)
            variables = {"LANG": "C.UTF-8", MARK: _mark(file)}
            network = make_network(
                spec.ref.job_id,
                instances=len(spec.hosts),
                service=service,
                variables=variables,
                log=network_log(file),
            )
            faults.point("executor.network.made")
            write_json(file, {"version": 1, "network": network.to_json()})
        except OSError as error:
            raise LaunchError(f"the network of the job cannot be made: {error}") from error
        return file

    def end(self, job_id: str, *, before: int | None = None) -> None:
        """End the networks of a job. If ``before`` is given, only those of attempts with smaller numbers.

        Args:
            job_id: Hexadecimal id of the job.
            before: Number of an attempt. Default: all attempts.
        """
        for file in self._files(job_id):
            if before is None or _attempt(file) < before:
                self._end(file)

    def _files(self, job_id: str) -> Iterator[Path]:
        for file in (self.state_dir / "jobs" / job_id).glob("network.*.json"):
            if file.name.split(".")[1].isdecimal():
                yield file

    def _end(self, file: Path) -> None:
        if not file.exists():
            return
        network = _held(file)
        if network:
            send_signal(network.holder, signal.SIGKILL)
            await_end(network.holder)
        else:
            kill_marked(_mark(file))
        for each in (network_log(file), file):
            with contextlib.suppress(FileNotFoundError):
                each.unlink()


def _held(file: Path) -> JobNetwork | None:
    """Return the network that a file describes, or None if it does not exist any more."""
    value = (read_json(file) or {}).get("network")
    network = JobNetwork.from_json(value) if value else None
    return network if network and network.holder.alive else None


def _attempt(file: Path) -> int:
    return int(file.name.split(".")[1])


def _mark(file: Path) -> str:
    return f"{file.parent.name}/network/{_attempt(file)}"


def _address(url: str | None) -> tuple[str, int] | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80
