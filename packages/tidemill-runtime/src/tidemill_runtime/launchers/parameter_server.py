"""The launcher of parameter servers: a server beside the script on every instance, until the master has ended.

The script of the first instance is the master, and its end is the end of the cluster. The servers of the other
instances continue when their scripts have ended. Scripts that still run after the master are ended: workers of
TensorFlow 2 only serve.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime.events import emit
from tidemill_runtime.process import Child, ColdChild
from tidemill_runtime.tf_config import parameter_server_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from tidemill_runtime.environment import Environment
    from tidemill_runtime.launchers.base import Script

POLL_S = 1.0
CONNECT_TIMEOUT_S = 0.5
GRACE_S = 5.0
"""Time for a script to end by itself after the master, and again after SIGTERM."""

ENDED_FILE = "master-ended"
FAILED = 1
PRIVATE_TO_SCRIPT = (
    "TIDEMILL_COMPILER",
    "TIDEMILL_COMPILER_DEBUG",
    "TIDEMILL_COMPILER_MAX_COST",
    "TIDEMILL_COMPILER_REPORT",
)


class ParameterServerLauncher:
    """Starts a parameter server, then the script.

    Args:
        environment: The job, from the view of this instance.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start both, each in its own session and process group.

        Args:
            script: What to run and its variables.
            stderr_fd: Descriptor for standard error.

        Returns:
            The script; the server ends with it.
        """
        environment = self._environment
        variables = _server_variables(environment, script)
        config = json.loads(variables["TF_CONFIG"])
        task, servers = config["task"], config["cluster"]["ps"]
        python = shutil.which("python", path=script.variables.get("PATH")) or sys.executable
        server = ColdChild(
            (python, "-m", "tidemill_runtime.parameter_server"),
            directory=script.directory,
            variables=variables,
            stderr_fd=stderr_fd,
        )
        emit("parameter_server.started", task=f"ps/{task['index']}", address=servers[task["index"]])
        child = ColdChild(script.argv, directory=script.directory, variables=script.variables, stderr_fd=stderr_fd)
        return ClusterMember(
            child,
            server,
            name=f"{environment.current_host} (ps/{task['index']})",
            master=None if task["index"] == 0 else Master(servers[0], script.variables),
            ended_file=_ended_file(script.variables),
            reports=environment.layout.reports,
        )


class Master:
    """Detects on other instances that the first instance of the cluster has ended.

    Args:
        address: Address of its parameter server, which runs as long as the script; the script's own ports may not be
            used.
        variables: Environment of the script; ``TIDEMILL_JOB_DIRECTORY`` is the directory that the instances share, if
            any.
    """

    def __init__(self, address: str, variables: Mapping[str, str]) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._ended_file = _ended_file(variables)
        self._seen = False
        self._ended = False
        self._next_look = 0.0

    def has_ended(self, *, now: bool = False) -> bool:
        """Check at most once in `POLL_S`, unless `now` is true.

        A server that has never been reached may not have started yet, or may already have ended; a file shows the
        latter.

        Args:
            now: Whether to look now.
        """
        if not self._ended and (now or time.monotonic() >= self._next_look):
            self._ended = bool(self._ended_file and self._ended_file.exists()) or self._is_closed()
            self._next_look = time.monotonic() + POLL_S
        return self._ended

    def _is_closed(self) -> bool:
        try:
            socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S).close()
        except ConnectionError:
            return self._seen
        except OSError:
            return False  # no name or no answer yet; whoever started the instances notices a lost one
        self._seen = True
        return False


class ClusterMember(Child):
    """The script and the parameter server of an instance, as one child.

    Args:
        script: The process whose end decides how the instance ends.
        server: The parameter server; if it ends before the script, the instance fails.
        name: Name of instance and server, for messages.
        master: The first instance; None on the first instance itself.
        ended_file: File that the first instance creates when its script has succeeded; None if the instances share no
            directory.
        reports: Directory of failure reports.
    """

    def __init__(
        self,
        script: Child,
        server: Child,
        *,
        name: str,
        master: Master | None,
        ended_file: Path | None,
        reports: Path,
    ) -> None:
        self.pid = script.pid
        self.helper_pids = (server.pid,)
        self._script, self._server = script, server
        self._name = name
        self._master = master
        self._ended_file = ended_file
        self._reports = reports
        self._exit_code: int | None = None
        self._signaled = False
        self._left_at: float | None = None
        if master:
            signal.signal(signal.SIGALRM, _awake)
            signal.setitimer(signal.ITIMER_REAL, POLL_S, POLL_S)  # wakes the supervisor, which waits for signals

    def signal_group(self, number: int) -> None:
        """Send a signal to the script; the server ends after the script."""
        self._signaled = True
        self._script.signal_group(number)

    def exit_code(self) -> int | None:
        """The exit code of the instance; None while the script runs or other instances need the server."""
        if self._exit_code is None:
            self._exit_code = self._poll()
            if self._exit_code is not None and self._master:
                signal.setitimer(signal.ITIMER_REAL, 0)
        return self._exit_code

    def _poll(self) -> int | None:
        code = self._script.exit_code()
        if self._master and (self._left_at is not None or self._master.has_ended(now=bool(code))):
            return self._end_after_master(code)
        if code is not None and self._signaled:
            return code
        lost = self._server.exit_code()
        if lost is not None and (code != 0 or self._master):
            return self._fail(code, lost)
        if self._master:
            return code or None  # after a successful script the server continues for the other instances
        if code == 0 and self._ended_file:
            with contextlib.suppress(OSError):
                self._ended_file.touch()
        return code

    def _end_after_master(self, code: int | None) -> int | None:
        """End the script after the master. Its exit code is no failure: the signal may have interrupted a step."""
        now = time.monotonic()
        if code is not None:
            if code:
                emit("script.left", exit_code=code, reason="the master has ended: its end decides")
            return 0
        if self._left_at is None:
            self._left_at = now
            emit("cluster.ended", reason=f"the master has ended; the script gets SIGTERM in {GRACE_S:g} s")
        elif now >= self._left_at + 2 * GRACE_S:
            self._script.signal_group(signal.SIGKILL)
        elif now >= self._left_at + GRACE_S:
            self._script.signal_group(signal.SIGTERM)
        return None

    def _fail(self, code: int | None, lost: int) -> int | None:
        """End the script because the server has ended, and report the end of the server as the reason."""
        if code is None:
            self._script.signal_group(signal.SIGKILL)
            return None
        how = f"by signal {-lost}" if lost < 0 else f"with exit code {lost}"
        report: dict[str, Any] = {
            "type": "ParameterServerEnded",
            "module": "",
            "message": f"the parameter server of {self._name} ended {how} before the script did{self._cause()}",
            "frames": [],
        }
        with contextlib.suppress(OSError):  # disk full: then only the log has the reason
            (self._reports / f"{self.pid}.json").write_text(json.dumps(report), encoding="utf-8")
        emit("parameter_server.ended", reason=report["message"])
        return FAILED

    def _cause(self) -> str:
        """Return the uncaught exception of the server; empty if there was none."""
        try:
            report = json.loads((self._reports / f"{self._server.pid}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        return f": {report['type']}: {report['message']}"


def _server_variables(environment: Environment, script: Script) -> dict[str, str]:
    variables = {name: value for name, value in script.variables.items() if name not in PRIVATE_TO_SCRIPT}
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path != str(script.directory))
    variables["CUDA_VISIBLE_DEVICES"] = "-1"
    variables.update(parameter_server_config(environment))
    return variables


def _ended_file(variables: Mapping[str, str]) -> Path | None:
    shared = variables.get("TIDEMILL_JOB_DIRECTORY")
    return Path(shared) / ENDED_FILE if shared else None


def _awake(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal wakes the supervisor through its wakeup descriptor."""
