"""Fixtures of the fault tests: processes of a job, and the invariants that must hold after every fault.

I1  an acknowledged create is listed
I2  a terminal state never changes
I3  Completed: the artifact exists, and is the one that the instance packed
I4  no process of an ended job is alive
I5  no temporary files of it are left
I6  its transitions are allowed by the table
I7  every line of its log exists once, in order
"""

import contextlib
import hashlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.files import read_json
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK
from tidemill.testing import Service

sys.path.insert(0, str(Path(__file__).parent))
from deployments import Deployments, make_archives

TERMINAL = ("Completed", "Failed", "Stopped")
WAIT_S = 60.0


@dataclass(frozen=True)
class Process:
    """A process of this machine."""

    pid: int
    command: tuple[str, ...]

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)


def marked_processes(mark: str) -> list[Process]:
    """Return the live processes with the mark of an instance, or of any instance of a job."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(each.startswith(wanted) for each in (entry / "environ").read_bytes().split(b"\0")):
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    found.append(Process(int(entry.name), tuple(words[:-1])))
    return found


class Oracle:
    """Inspects a service from outside, and checks its answers."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs
        self._ends: dict[str, Mapping[str, Any]] = {}
        self._directories: dict[str, InstanceDirectory] = {}

    def directory(self, name: str) -> InstanceDirectory | None:
        """Return the directory of the instance of a job or an endpoint; None if there is none."""
        if name not in self._directories:
            known = {each.path for each in self._directories.values()}
            for found in InstanceDirectory.all_below(self._jobs.service.state_dir):
                if found.path not in known:
                    self._directories[read_json(found.spec_file)["job_name"]] = found
        return self._directories.get(name)

    def processes(self, name: str, *, script: bool = False) -> list[Process]:
        """Return the live processes of an instance; with ``script`` only those that run the user's script."""
        directory = self.directory(name)
        found = marked_processes(f"{directory.ref.job_id}/") if directory else []
        return [each for each in found if not script or each.command[-1:] == ("train.py",)]

    def log(self, name: str) -> list[str]:
        """Return the lines of a job's log so far."""
        try:
            return self._jobs.log(name)
        except self._jobs.logs_client.exceptions.ResourceNotFoundException:
            return []

    def check(self, name: str, status: str, *, lines: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Wait for a job's end, and check the invariants.

        Args:
            name: The job.
            status: The expected status.
            lines: All lines that its script must have logged.
        """
        job = self._jobs.wait(name)
        assert job["TrainingJobStatus"] == status, job.get("FailureReason")
        self._check_listed(name, status)
        self._check_transitions(job)
        self._check_artifact(job)
        self._check_nothing_left(name)
        if lines is not None:
            assert [line for line in self.log(name) if not line.startswith("tidemill: ")] == list(lines)
        self._ends[name] = job
        return job

    def check_ends(self) -> None:
        """Check that nothing that had ended has changed since."""
        for name, job in self._ends.items():
            now = self._jobs.describe(name)
            assert {**now, "ResponseMetadata": None} == {**job, "ResponseMetadata": None}

    def _check_listed(self, name: str, status: str) -> None:
        listed = self._jobs.sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]
        assert [(each["TrainingJobName"], each["TrainingJobStatus"]) for each in listed] == [(name, status)]

    def _check_transitions(self, job: Mapping[str, Any]) -> None:
        transitions = job["SecondaryStatusTransitions"]
        walked = TrainingJob(name="n", arn="a", job_id="0", request={}, created_ms=0, log_streams=())
        for transition in transitions:
            walked = walked.enter(SecondaryStatus(transition["Status"]), at_ms=0, message="")
        assert walked.status == job["TrainingJobStatus"]
        times = [time for each in transitions for time in (each["StartTime"], each["EndTime"])]
        assert times == sorted(times)

    def _check_artifact(self, job: Mapping[str, Any]) -> None:
        directory = self.directory(job["TrainingJobName"])
        ended = directory.read_exit() if directory else None
        packed = ended.artifacts.get("model") if ended else None
        uri = job["ModelArtifacts"]["S3ModelArtifacts"]
        assert bool(uri) == bool(packed), "a model is where the job says, and only where there is one"
        if packed:
            assert hashlib.sha256(self._jobs.object(uri)).hexdigest() == packed.sha256

    def _check_nothing_left(self, name: str) -> None:
        directory = self.directory(name)
        if directory is None:
            return
        self._jobs.wait_until((directory.path.parent / "published.json").exists, f"the clean-up of {name}")
        assert not marked_processes(f"{directory.ref.job_id}/")
        for gone in (directory.ml, directory.home, directory.tmp, directory.artifacts):
            assert not gone.exists()
        assert not list(directory.path.parent.rglob("*.tmp"))


@pytest.fixture(scope="session")
def oracle_of() -> type[Oracle]:
    return Oracle


@pytest.fixture(scope="session")
def processes_of() -> Callable[[str], list[Process]]:
    """Return a function that finds the live processes of a job: its instances', and the holder of its network."""
    return lambda job_id: marked_processes(f"{job_id}/")


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[int, bytes]:
    """Return model.tar.gz by the number that the model answers."""
    return make_archives(root / ".venvs/tf-2.21/bin/python", tmp_path_factory.mktemp("constants"))


@pytest.fixture
def deployments(tidemill_service: Service, archives: dict[int, bytes]) -> Iterator[Deployments]:
    made = Deployments(tidemill_service, f"again-{uuid.uuid4().hex[:8]}")
    for number, archive in archives.items():
        made.prepare(number, archive)
    yield made
    try:
        made.delete()
    except ClientError as error:
        assert "Could not find" in str(error) or "being deleted" in str(error)
