"""An instance on another machine is lost while its service is killed again and again: the job's next attempt starts."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tidemill.testing import Service

LEASE_S = 24.0
UP_S = 8.0  # how long a service runs before it is killed, well below a lease; a start on a busy machine took 19 s
STARTS = 15
SCRIPT = """
    import pathlib, time
    print("RUN", flush=True)
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.05)
    print("END", flush=True)
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Path]:
    """Return the directory of the simulated machines; kill what is left on them at the end."""
    machines = tmp_path / "machines"
    machines.mkdir()
    yield machines
    for agent in agents(machines):
        agent.kill()  # the kernel then kills its instance


def agents(machines: Path, job_id: str = "") -> list[psutil.Process]:
    """Return the agents on the machines, or those of one job."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if "tidemill.node" in command and any(f"{machines}/machine-0/{job_id}" in word for word in command):
            found.append(process)
    return found


def job_of(state_dir: Path, known: set[str]) -> str:
    """Return the id of the only job that is not in ``known``, and add it there."""
    (job_id,) = {path.name for path in (state_dir / "cluster/jobs").iterdir()} - known
    known.add(job_id)
    return job_id


@pytest.mark.matrix
def test_a_lost_instance_is_started_again_once_although_no_service_runs_for_a_lease(
    tmp_path: Path,
    machines: Path,
    jobs_of: Any,
    processes_of: Callable[[str], list[Any]],
    wait_until: Callable[..., Any],
) -> None:
    go = tmp_path / "go"
    service = Service(
        state_dir=tmp_path / "state",
        settings={
            "executor": "ray",
            "ray_address": str(machines),
            "lease_s": LEASE_S,
            "stop_grace_s": 1,  # so that an agent waits long for its service
            "isolation": "plain",
        },
        variables={"PYTHONPATH": str(Path(__file__).with_name("machines"))},
    )
    known: set[str] = set()
    with service:
        jobs = jobs_of(service)
        retries = {"RetryStrategy": {"MaximumRetryAttempts": 3}}
        lost = jobs.create(SCRIPT.format(go=str(go)), **retries)
        jobs.wait_for_line(lost, "RUN")
        lost_id = job_of(service.state_dir, known)
        kept = jobs.create(SCRIPT.format(go=str(go)), **retries)
        jobs.wait_for_line(kept, "RUN")
        kept_id = job_of(service.state_dir, known)

        service.kill()
        (agent,) = agents(machines, lost_id)
        os.kill(agent.pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(lost_id), "the instance of the killed agent has ended")
        starts = 0
        while not agents(machines, lost_id):
            starts += 1
            assert starts <= STARTS, "the instance is never lost"
            service.start()
            end_s = time.monotonic() + UP_S
            while time.monotonic() < end_s and not agents(machines, lost_id):
                time.sleep(0.05)
            service.kill()
        assert starts > 1, "no service has run for a lease"

        service.start()
        jobs.wait_for_line(lost, "RUN", 2)
        assert len(agents(machines, kept_id)) == len(agents(machines, lost_id)) == 1
        go.touch()
        for name in (lost, kept):
            assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
        assert jobs.log(lost).count("RUN") == 2
        assert jobs.log(kept).count("RUN") == 1, "its agent has reported to each service"
