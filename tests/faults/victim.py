"""A service that dies at a fault point."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.testing import Service, ServiceDied

__all__ = ["Victim"]


class Victim:
    """A service that dies at a fault point, and its next start without one."""

    def __init__(self, directory: Path, jobs_of: Any, **settings: object) -> None:
        self.log = directory / "faults.log"
        self._jobs_of = jobs_of
        self._settings = {"stop_grace_s": 5, **settings}
        self.state_dir = directory / "state"
        self.service = Service(state_dir=self.state_dir)

    def start(self, point: str = "", *, skipping: int = 0) -> None:
        """Start the service with a fault point armed."""
        armed = {"TIDEMILL_FAULTS": f"{point}:exit:1:1:{skipping}", "TIDEMILL_FAULTS_LOG": str(self.log)}
        self.service = Service(state_dir=self.state_dir, settings=self._settings, variables=armed if point else {})
        self.service.start()
        self.jobs = self._jobs_of(self.service)

    def await_death(self, point: str) -> None:
        """Wait until the server has killed itself, and check that this fault point was the cause."""
        process = self.service._process
        if process is not None:  # else it died before it answered, and its start has waited for it
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                pytest.fail(f"the server never passed {point}")
        assert self.log.read_text().split()[:2] == [point, "exit"]
        self.log.unlink()

    def die_creating(self, request: dict[str, Any], point: str) -> None:
        """Create a job under the server that was started, which dies at a point while it creates or launches it."""
        with contextlib.suppress(BotoCoreError, ClientError):  # the server may die during the request
            self.jobs.sagemaker.create_training_job(**request)
        self.await_death(point)

    def die_again(self, point: str, *, skipping: int = 0) -> None:
        """Start the next server, which dies at a point as well."""
        self.service.kill()
        with contextlib.suppress(ServiceDied):  # it may die before it answers
            self.start(point, skipping=skipping)
        self.await_death(point)

    def revive(self) -> None:
        """Start the service again without a fault point."""
        self.service.kill()
        self.start()
