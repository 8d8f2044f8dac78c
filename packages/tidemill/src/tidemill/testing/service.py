"""A service in a child process, with a state directory of its own, that leaves nothing behind.

It is the real thing: the same command, sockets, files and signatures as `tidemill up`, on a free port. Tests of what
happens when the service dies can kill it and start it again on the same state.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigurationError, TidemillError

if TYPE_CHECKING:
    from tidemill.server.discovery import Connection
    from tidemill.server.state import StateDirectory

__all__ = ["Service", "ServiceDied"]

_END_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 40

# The developer's own settings must not change what a test sees. Built environments are worth sharing, and fault points
# are meant for the service.
_INHERITED = ("TIDEMILL_ENVIRONMENTS_DIR", "TIDEMILL_FAULTS", "TIDEMILL_FAULTS_LOG", "TIDEMILL_FAULTS_SEED")


class ServiceDied(TidemillError):
    """The service ended, or did not start; the text holds the end of its log."""


class Service:
    """A service for the time of a ``with`` block.

    Args:
        state_dir: Where it keeps its state; by default a temporary directory that is removed at the end.
        settings: Members of `tidemill.settings.Settings` by name, e.g. ``{"stop_grace_s": 2}``. Anything else than
            these has its default: the settings file and ``TIDEMILL_*`` variables of the caller are left out.
        variables: Further environment variables of the service process.
        start_timeout_s: How long its start may take.

    Attributes:
        state_dir: Its state directory.
        url: Where it listens; stays the same over `restart`.
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
        # A short path: sockets lie below it, and their names are limited to about 100 characters.
        self.state_dir = Path(tempfile.mkdtemp(prefix="tidemill-")) if state_dir is None else state_dir.absolute()
        self.url = ""
        self._settings = dict(settings or {})
        self._variables = dict(variables or {})
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

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
        """Process number of the running service; None where it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log(self) -> str:
        """What the service has logged so far, over all its starts."""
        path = self._state.service_log
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that `tidemill env` prints, for clients in processes of their own."""
        from tidemill.server.exports import client_environment

        return client_environment(self._connection(), state=self._state)

    def boto3_session(self) -> Any:
        """A new boto3 session whose clients and resources talk to this service. Stays good over `restart`."""
        from tidemill.server.client import boto_session

        return boto_session(self._connection())

    def client(self, name: str) -> Any:
        """A boto3 client, e.g. ``client("sagemaker")``."""
        return self.boto3_session().client(name)

    def start(self) -> None:
        """Start the service and wait until it answers.

        Raises:
            ConfigurationError: A setting is not one of the service's.
            ServiceDied: It did not start, or not in time.
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
            self.kill()
            when = "" if answered else f" within {self._start_timeout_s:g} s"
            raise ServiceDied(f"the service did not start{when}; the end of its log:\n{self._log_end()}")
        self.url = url

    def stop(self) -> None:
        """End the service in order; its jobs run on. Does nothing where it does not run.

        Raises:
            ServiceDied: It had died before, or did not end in order.
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
        """SIGKILL to the service; its jobs run on."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Start the service again on the same state and port, ending it first where it runs."""
        self.stop()
        self.start()

    @property
    def _state(self) -> "StateDirectory":
        from tidemill.server.state import StateDirectory

        return StateDirectory(self.state_dir)

    def _connection(self) -> "Connection":
        from tidemill.server.discovery import connect

        connection = connect(self._state)
        if connection is None:
            raise ServiceDied(f"the service does not run; the end of its log:\n{self._log_end()}")
        return connection

    def _spawn(self, *, ready_fd: int) -> "subprocess.Popen[bytes]":
        port = self.url.rpartition(":")[2] or str(self._settings.get("port", 0))
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
                # Ctrl-C in the test run is for the test run; the fixture ends the service.
                start_new_session=True,
            )
        finally:
            os.close(log)

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
            from tidemill.executors.build_lock import remove_tree

            remove_tree(self.state_dir)

    def _end_instances(self) -> None:
        """Jobs outlive their service on purpose; here their state goes away, so they go first."""
        from tidemill.executors.directory import InstanceDirectory
        from tidemill.server.background import wait_for_end

        shims = [each.read_run() for each in InstanceDirectory.all_below(self.state_dir)]
        alive = [shim for shim in shims if shim is not None and shim.alive]
        for shim in alive:
            # What a shim started dies with it.
            os.kill(shim.pid, signal.SIGKILL)
        for shim in alive:
            wait_for_end(shim, timeout_s=_END_TIMEOUT_S)


def _as_variable(value: object) -> str:
    return str(value) if isinstance(value, str | Path) else json.dumps(value)
