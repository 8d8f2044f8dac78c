"""Show the progress of building an environment: the current download, MB downloaded, files compiled, time left.

uv prints names and sizes of packages when a download begins and when it ends. The progress in between is estimated from
the number of bytes that uv has written, which the kernel counts. Without /proc (on macOS) the figures only change when
a package is complete.

Each progress state is a line that ends with a carriage return, so that a terminal overwrites it with the next one.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

_EVERY_S = 2.0
_DOWNLOADING = re.compile(r"Downloading (\S+) \(([\d.]+)(KiB|MiB|GiB)\)")
_DOWNLOADED = re.compile(r"\s*Downloaded (\S+)")
_MIB = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
# Size of the unpacked wheels of an environment, as a multiple of the size of the wheels.
_EXPANSION = 3.6
_SHARE_TO_JUDGE_BY = 0.01


class BuildProgress:
    """The progress of one run of ``uv pip install --compile-bytecode``.

    Args:
        name: Name of the environment, e.g. ``tf-2.21``.
        prefix: Directory of the environment.
        log: Called with a progress state at most every two seconds, and with uv's warnings and errors.
        clock: Returns the monotonic time in seconds.
    """

    def __init__(
        self, name: str, *, prefix: Path, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._prefix = prefix
        self._log = log
        self._clock = clock
        self._pid: int | None = None
        self._shown_s = clock()
        self._begun_s = clock()
        self._sizes_mib: dict[str, float] = {}
        self._done: set[str] = set()
        self._num_files: int | None = None
        """Number of files to compile; None until uv has installed them."""

    def started(self, pid: int) -> None:
        """Set the process id of uv."""
        self._pid = pid

    def line(self, text: str) -> None:
        """Process a line that uv printed.

        Args:
            text: Without LF.
        """
        if match := _DOWNLOADING.match(text):
            if not self._sizes_mib:
                self._begun_s = self._clock()
            self._sizes_mib[match[1]] = float(match[2]) * _MIB[match[3]]
        elif match := _DOWNLOADED.match(text):
            self._done.add(match[1])
        elif text.startswith("Installed "):
            self._begun_s = self._clock()
            self._num_files, _ = self._count_files()
        elif text.startswith(("warning", "error")):
            self._log(text)

    def poll(self) -> None:
        """Log the progress if two seconds have passed since the last time."""
        now_s = self._clock()
        if now_s - self._shown_s < _EVERY_S:
            return
        if self._num_files is not None:
            state = self._compiling(now_s - self._begun_s)
        elif self._sizes_mib:
            state = self._downloading(now_s - self._begun_s)
        else:
            return
        self._log(f"tidemill: {self._name}: {state}\r")
        self._shown_s = self._clock()

    def _downloading(self, elapsed_s: float) -> str:
        total = sum(self._sizes_mib.values())
        waiting = [name for name in self._sizes_mib if name not in self._done]
        if not waiting:
            return f"{total:.0f} MB downloaded; unpacking and installing"
        complete = sum(size for name, size in self._sizes_mib.items() if name in self._done)
        received = min(max(complete, self._written_mib() / _EXPANSION), 0.99 * total)
        largest = max(waiting, key=self._sizes_mib.__getitem__)
        left = _time_left(elapsed_s, done=received, total=total)
        return f"downloading {largest}, {received:.0f} of {total:.0f} MB, {left}"

    def _compiling(self, elapsed_s: float) -> str:
        total, compiled = self._count_files()
        left = _time_left(elapsed_s, done=compiled, total=total)
        return f"compiling, {compiled} of {total} files, {left}"

    def _count_files(self) -> tuple[int, int]:
        """Return the number of Python files in the environment, and how many of them are compiled."""
        sources = compiled = 0
        for _, _, names in os.walk(self._prefix / "lib"):
            sources += sum(name.endswith(".py") for name in names)
            compiled += sum(name.endswith(".pyc") for name in names)
        return sources, min(compiled, sources)

    def _written_mib(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{self._pid}/io").read_text().splitlines():
                if line.startswith("wchar:"):
                    return int(line.partition(":")[2]) / 2**20
        return 0.0


def _time_left(elapsed_s: float, *, done: float, total: float) -> str:
    if done < _SHARE_TO_JUDGE_BY * total:
        return "time left unknown"
    return f"{max(1.0, elapsed_s * (total - done) / done):.0f} s left"
