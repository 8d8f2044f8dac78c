"""A PostgreSQL server for one test, on loopback, from the machine's binaries.

Debian's package installs them in /usr/lib/postgresql. The server refuses to run as root, so root runs it as `nobody`.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["PostgresqlServer", "binaries"]

USER = "tidemill"
NOBODY = 65534
START_S = 60


def binaries() -> Path | None:
    """Return the directory of `initdb` and `postgres`; None if PostgreSQL is not installed."""
    if found := shutil.which("initdb"):
        installed = [Path(found).resolve().parent]
    else:
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if shutil.which("pg_lsclusters") else []
    return next((path for path in reversed(installed) if (path / "postgres").exists()), None)


class PostgresqlServer:
    """One server with its own directory, which `close` removes."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None, "PostgreSQL is not installed: apt install postgresql"
        self._bin = found
        self.root = Path(tempfile.mkdtemp(prefix="tidemill-postgresql-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self.root, NOBODY, NOBODY)
            self._as = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        # Bound, but never listening: the system gives the port to nothing else while the server is down, and
        # PostgreSQL sets SO_REUSEADDR.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        options = ["-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--wal-segsize=1", "-D", self.root / "data"]
        subprocess.run([self._bin / "initdb", *options], check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as)

    def start(self) -> None:
        """Start the server, or start it again with the same data; return when it answers."""
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.root}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.root / "data", *settings],
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **self._as,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                with self._admin():
                    return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.root / "log").read_text()
                assert time.monotonic() < deadline, (self.root / "log").read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL to the server and all of its processes, to simulate a power failure."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # starts no further process
        # Each server process leads a session of its own, and commits for a moment after the death of the first one.
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for each in (*map(int, children), pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()

    def empty_database(self) -> str:
        """Empty the database of the tests, which is faster than creating one, and return its URL."""
        with self._admin() as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def disconnect_all(self) -> None:
        """End the connections of all clients, as an administrator or a failover does."""
        self._disconnect("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")

    def disconnect_writers(self) -> None:
        """End the connections that hold the lock of a service."""
        self._disconnect("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")

    def _disconnect(self, pids: str) -> None:
        ending = "SELECT pg_terminate_backend(pid, 10000) FROM ({}) AS found WHERE pid <> pg_backend_pid()"
        with self._admin() as connection:
            connection.execute(ending.format(pids))

    def close(self) -> None:
        """Kill the server and remove its directory."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._reserved.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _admin(self) -> Any:
        url = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        return psycopg.connect(url, autocommit=True, connect_timeout=5)
