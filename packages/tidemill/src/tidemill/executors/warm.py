"""Warm starts: for each environment, one process that has imported TensorFlow and forks scripts for jobs.

A warm process only makes starts faster: without it, or while it is still importing, jobs start cold. It ends with the
service; a script that it has forked continues to run.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from tidemill.core.files import read_json, write_json
from tidemill.core.process import ProcessId
from tidemill.environments.builder import Environments, JobEnvironment
from tidemill.errors import EnvironmentBuildError

_MODULES = ("tensorflow",)
_NAME = "warm"
_OLDEST_PYTHON = (3, 10)


class WarmProcesses:
    """The warm processes of a state directory.

    Args:
        state_dir: State directory; the sockets are below its ``warm/``. Hidden from jobs except for the socket of the
            job's environment.
    """

    def __init__(self, state_dir: Path, environments: Environments) -> None:
        self._directory = state_dir / _NAME
        self._environments = environments
        self._children: list[subprocess.Popen[bytes]] = []

    def socket(self, name: str, *, python: str | None = None) -> Path | None:
        """Return the socket of an environment's warm process; without one, start it and return None.

        Args:
            name: Name of the environment, e.g. ``tf-2.21``. An environment that is not built yet has no warm process,
                nor has an environment with a Python before 3.10.
            python: Minor version of the environment's Python. Default: the one that `Environments.describe` chooses.
        """
        self._reap()
        try:
            environment = self._environments.describe(name, python=python)
        except EnvironmentBuildError:
            return None
        if not self._environments.is_built(environment) or environment.interpreter.number < _OLDEST_PYTHON:
            return None
        socket = self._directory / f"{environment.key}.sock"
        if not self._alive(environment):
            self._start(environment, socket)
        return socket if socket.exists() else None

    def close(self) -> None:
        """End all warm processes, including those of an earlier service."""
        for record in self._directory.glob("*.json"):
            process = _process(record)
            if process is not None and process.certainly_alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
            record.unlink()
        for child in self._children:
            child.wait()
        self._children.clear()

    def _alive(self, environment: JobEnvironment) -> bool:
        process = _process(self._directory / f"{environment.key}.json")
        return process is not None and process.alive

    def _start(self, environment: JobEnvironment, socket: Path) -> None:
        (self._directory / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        with (self._directory / f"{environment.key}.log").open("ab") as log:
            child = subprocess.Popen(
                [
                    *(environment.python, "-m", "tidemill_runtime", _NAME, "--socket", socket.name),
                    *(part for module in _MODULES for part in ("--import", module)),
                ],
                # A socket's address is limited to about 100 bytes, so the process gets only the name of the socket.
                cwd=self._directory,
                env={
                    "PATH": f"{environment.prefix}/bin:/usr/bin:/bin",
                    # Private and empty like a job's home directory: Keras reads its settings there during the import.
                    "HOME": str(self._directory / "home"),
                    "LANG": "C.UTF-8",
                    "PYTHONUNBUFFERED": "1",
                    "TIDEMILL_TENSORFLOW": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children.append(child)
        process = ProcessId.of(child.pid)
        if process is not None:
            write_json(
                self._directory / f"{environment.key}.json",
                {
                    "version": 1,
                    "boot_id": process.boot_id,
                    "pid": process.pid,
                    "start_ticks": process.start_ticks,
                },
            )

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _process(record: Path) -> ProcessId | None:
    value = read_json(record)
    return ProcessId(value["boot_id"], value["pid"], value["start_ticks"]) if value else None
