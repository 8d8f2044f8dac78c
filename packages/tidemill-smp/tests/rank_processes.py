"""Rank processes for tests, forked from a process that has imported TensorFlow, because the import takes seconds."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path


class RankProcess:
    """A forked process that is not a child of this one, with the interface of `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._said = b""
        self.returncode: int | None = None
        while b"\n" not in self._said:
            part = connection.recv(64)
            assert part, "the server of ranks has ended"
            self._said += part
        self.pid = int(self._said.split(b"\n")[0])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code, which is -n if signal n ended the process."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._connection], [], [], left)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(["rank", str(self.pid)], timeout)
            part = self._connection.recv(64)
            assert part, "the server of ranks has ended"
            self._said += part
            if self._said.count(b"\n") == 2:
                self.returncode = int(self._said.split(b"\n")[1])
                self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal if the process runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)


class RankServer:
    """The process from which ranks are forked. Its environment has the variables that TensorFlow reads on import."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="smp-ranks-")
        self._address = str(Path(self._directory.name) / "socket")
        complaints = Path(self._directory.name) / "output"
        with complaints.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("rank_server.py")), self._address],
                env=os.environ | dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", complaints.read_text()

    def fork(self, variables: Mapping[str, str], requests: int, answers: int, output: int) -> RankProcess:
        """Start a rank; this process keeps the descriptors open."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        request = {"variables": dict(variables), "cores": sorted(os.sched_getaffinity(0))}
        socket.send_fds(connection, [json.dumps(request).encode()], [requests, answers, output])
        return RankProcess(connection)

    def close(self) -> None:
        """End the server; running ranks continue."""
        self._process.communicate()
        self._directory.cleanup()


_servers: dict[frozenset[tuple[str, str]], RankServer] = {}


def fork_rank(
    variables: Mapping[str, str], environment: Mapping[str, str], requests: int, answers: int, output: int
) -> RankProcess:
    """Start a rank from the server that has this environment, but for the library's own variables.

    The library reads those in `smp.init`, thus in the rank, whose environment has them: they need no own server.
    """
    of_server = {name: value for name, value in environment.items() if not name.startswith("SMP_")}
    key = frozenset(of_server.items())
    if key not in _servers:
        _servers[key] = RankServer(of_server)
    return _servers[key].fork(variables, requests, answers, output)


def close_servers() -> None:
    """End all servers."""
    while _servers:
        _servers.popitem()[1].close()
