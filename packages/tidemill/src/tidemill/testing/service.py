"""Run the service in a child process with a temporary state directory.

It is the same service as that of `tidemill up`, with the same sockets, files and signatures, on a free port. Tests can
kill it and start it again on the same state.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigurationError, TidemillError

if TYPE_CHECKING:
    from tidemill.server.discovery import ServiceConnection
    from tidemill.server.state import StateDirectory

_END_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 40

# The developer's settings must not affect tests, except these: built environments are shared because building takes
# minutes, and fault points are set for the service under test.
_INHERITED = ("TIDEMILL_ENVIRONMENTS_DIR", "TIDEMILL_FAULTS", "TIDEMILL_FAULTS_LOG", "TIDEMILL_FAULTS_SEED")


class ServiceDied(TidemillError):
    """The service ended unexpectedly or did not start. The message contains the end of its log."""


class Service:
    """A service that runs during a ``with`` block.

    When the block ends, the service is stopped and its jobs and endpoints are ended.

    Args:
        state_dir: State directory of the service. Default: a temporary directory that is removed at the end.
        settings: Members of `tidemill.settings.Settings` by name, e.g. ``{"stop_grace_s": 2}``. Other settings have
            their defaults: the caller's settings file and ``TIDEMILL_*`` variables are ignored.
        variables: Additional environment variables of the service process. Default: none.
        start_timeout_s: Time limit of the start, in seconds.

    Attributes:
        state_dir: State directory of the service.
        url: URL of the service; `restart` keeps it.
    """

    def __init__(
        self,
        *,
        state_dir: Path | None = None,
        settings: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._own_directory = state_dir is None
        # A short path: it contains sockets, and the kernel limits a socket's path to 107 characters.
        self.state_dir = Path(tempfile.mkdtemp(prefix="tidemill-")) if state_dir is None else state_dir.absolute()
        self.url = ""
        self._settings = dict(settings or {})
        self._variables = dict(variables or {})
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved_port = 0

    def __enter__(self) -> "Service":
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            stack.callback(self._clean_up)
            self.stop()

    @property
    def pid(self) -> int | None:
        """Process ID of the service; None if it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log(self) -> str:
        """The service's log, including that of earlier starts."""
        path = self._state.service_log
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that `tidemill env` prints, for clients in child processes."""
        from tidemill.server.exports import client_environment

        return client_environment(self._connection(), state=self._state)

    def boto3_session(self) -> Any:
        """Return a new boto3 session whose clients and resources use this service, also after `restart`.

        Returns:
            A `boto3.Session` with the endpoint, the region and the keys of the service.
        """
        from tidemill.server.client import boto_session

        return boto_session(self._connection())

    def client(self, name: str) -> Any:
        """Return a boto3 client of this service.

        Args:
            name: Name of an AWS service as boto3 uses it, e.g. ``"sagemaker"``.

        Returns:
            The client.
        """
        return self.boto3_session().client(name)

    def start(self) -> None:
        """Start the service and wait until it answers; do nothing if it is running.

        Raises:
            ConfigurationError: ``settings`` has an unknown name.
            ServiceDied: The service did not start within ``start_timeout_s`` seconds.
        """
        if self.pid is not None:
            return
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb", buffering=0) as ready:
            try:
                self._process = self._spawn(ready_fd=writer)
            finally:
                os.close(writer)
            answered = select.select([ready], [], [], self._start_timeout_s)[0]
            url = ready.read(4096).decode().strip() if answered else ""
        if not url:
            if answered:
                # The pipe is closed: the process is exiting, and its log contains the reason.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_TIMEOUT_S)
            self.kill()
            when = "" if answered else f" within {self._start_timeout_s:g} s"
            raise ServiceDied(f"the service did not start{when}; the end of its log:\n{self._log_end()}")
        self.url = url

    def stop(self) -> None:
        """Stop the service with SIGTERM; its jobs keep running. Do nothing if it was not started.

        Raises:
            ServiceDied: The service had died before, exited with an error, or did not stop within 30 s.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        try:
            status = process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServiceDied(
                f"the service did not end within {_END_TIMEOUT_S:g} s; the end of its log:\n{self._log_end()}"
            ) from None
        if status != 0:
            raise ServiceDied(f"the service ended with status {status}; the end of its log:\n{self._log_end()}")

    def kill(self) -> None:
        """Kill the service with SIGKILL; its jobs keep running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop the service if it is running, and start it again with the same state and port.

        Raises:
            ServiceDied: The service did not stop or start; see `stop` and `start`.
        """
        self.stop()
        self.start()

    @property
    def _state(self) -> "StateDirectory":
        from tidemill.server.state import StateDirectory

        return StateDirectory(self.state_dir)

    def _connection(self) -> "ServiceConnection":
        from tidemill.server.discovery import connect

        connection = connect(self._state)
        if connection is None:
            raise ServiceDied(f"the service does not run; the end of its log:\n{self._log_end()}")
        return connection

    def _spawn(self, *, ready_fd: int) -> "subprocess.Popen[bytes]":
        port = str(self._settings.get("port") or self._reserve_port())
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(self._state.service_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tidemill.cli", "up", "--foreground"),
                    *("--port", port, "--state-dir", str(self.state_dir), "--ready-fd", str(ready_fd)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._process_environment(),
                pass_fds=[ready_fd],
                # Ctrl-C must reach only the test run; the end of the `with` block stops the service.
                start_new_session=True,
            )
        finally:
            os.close(log)

    def _reserve_port(self) -> int:
        """Return the port for all starts.

        This process keeps a socket bound to it that never listens. So the system gives the port to nothing else while
        the service is down, and the service, which sets SO_REUSEADDR, can listen on it.
        """
        if not self._reserved_port:
            host = str(self._settings.get("host", "127.0.0.1")).strip("[]")
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, 0))
            self._reserved_port = int(sock.getsockname()[1])
            weakref.finalize(self, os.close, sock.detach())
        return self._reserved_port

    def _process_environment(self) -> dict[str, str]:
        from tidemill.settings import Settings

        unknown = sorted(self._settings.keys() - Settings.model_fields.keys())
        if unknown:
            had = ", ".join(sorted(Settings.model_fields))
            raise ConfigurationError(f"settings={unknown} are not settings of the service; there are {had}")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_") or name in _INHERITED
        }
        chosen = {f"TIDEMILL_{name.upper()}": _as_variable(value) for name, value in self._settings.items()}
        return kept | {"TIDEMILL_CONFIG": os.devnull} | chosen | self._variables

    def _log_end(self) -> str:
        return "\n".join(self.log.splitlines()[-_LOG_LINES_SHOWN:]) or "(it wrote nothing)"

    def _clean_up(self) -> None:
        self.kill()
        self._end_instances()
        if self._own_directory:
            from tidemill._shared.trees import remove_tree

            remove_tree(self.state_dir)

    def _end_instances(self) -> None:
        """Kill the jobs, which outlive the service by design, before their state directory is removed."""
        from tidemill.executors.networks import JobNetworks
        from tidemill.instance.directory import InstanceDirectory
        from tidemill.server.background import wait_for_end

        shims = [each.read_run() for each in InstanceDirectory.all_below(self.state_dir)]
        alive = [shim for shim in shims if shim is not None and shim.certainly_alive]
        for shim in alive:
            # The kernel then kills everything that the shim started.
            os.kill(shim.pid, signal.SIGKILL)
        for shim in alive:
            wait_for_end(shim, timeout_s=_END_TIMEOUT_S)
        networks = JobNetworks(self.state_dir)
        for job in {each.path.parent.name for each in InstanceDirectory.all_below(self.state_dir)}:
            networks.end(job)


def _as_variable(value: object) -> str:
    return str(value) if isinstance(value, str | Path) else json.dumps(value)
