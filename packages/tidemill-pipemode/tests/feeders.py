"""Feeders for laptops as separate processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 60


class FeederProcess:
    """`python -m sagemaker_tensorflow.feed` for one channel."""

    def __init__(self, pipe_dir: Path, *arguments: object) -> None:
        words = ["--pipe-dir", pipe_dir, *arguments]
        command = [sys.executable, "-m", "sagemaker_tensorflow.feed", *map(str, words)]
        for number in (signal.SIGINT, signal.SIGHUP):
            # In a background shell or under nohup the test ignores these signals, and the feeder would inherit that.
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def end(self, number: int = 0) -> tuple[int, str]:
        """Optionally send a signal, then wait; return the exit status and the text on standard error."""
        if number:
            os.kill(self.pid, number)
        errors = self._process.communicate(timeout=DEADLINE_S)[1]
        return self._process.returncode, errors

    def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def feeding(pipe_dir: Path, *arguments: object) -> Iterator[FeederProcess]:
    """Run a feeder during the block; it may end earlier."""
    feeder = FeederProcess(pipe_dir, *arguments)
    try:
        yield feeder
    finally:
        feeder.close()


def open_files(pid: int) -> list[Path]:
    """Return the files that a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(link.readlink())
    return found


def stop(feeder: FeederProcess) -> None:
    """Suspend a feeder."""
    os.kill(feeder.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, feeder.pid, os.WSTOPPED | os.WNOWAIT)
