"""Scripts in separate processes, forked from one that has already imported TensorFlow, so that they start at once."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO


class Script:
    """A running script, with the part of `subprocess.Popen` that the tests need."""

    def __init__(self, server: Path, request: dict[str, object]) -> None:
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        self.stdout: IO[str] = os.fdopen(output)
        self._stderr: IO[str] = os.fdopen(errors)
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(server))
        socket.send_fds(self._connection, [json.dumps(request).encode()], [output_end, errors_end])
        os.close(output_end)
        os.close(errors_end)
        self._words = self._connection.makefile()
        self.pid = int(self._words.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the exit status, negative for a signal."""
        if self.returncode is None:
            self._connection.settimeout(timeout_s)
            self.returncode = int(self._words.readline())
        return self.returncode

    def communicate(self, timeout_s: float) -> tuple[str, str]:
        """Wait for its end; return its output (up to the size of a pipe) on standard output and error."""
        self.wait(timeout_s)
        return self.stdout.read(), self._stderr.read()

    def close(self) -> None:
        """Kill it if it is still running, and release everything."""
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)
            self.wait(60)
        for file in (self.stdout, self._stderr, self._words, self._connection):
            file.close()


class ScriptServer:
    """Starts scripts; must be closed."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / "scripts.sock"
        self._scripts: list[Script] = []
        command = [sys.executable, Path(__file__).with_name("script_server.py"), self._socket]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self, script: str, *arguments: object, reader: str) -> Script:
        request = {"script": script, "arguments": list(map(str, arguments)), "reader": reader}
        self._scripts.append(Script(self._socket, request))
        return self._scripts[-1]

    def close_scripts(self) -> None:
        """Close the scripts of one test."""
        for script in self._scripts:
            script.close()
        self._scripts.clear()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
