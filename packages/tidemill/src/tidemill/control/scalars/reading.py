"""Run the reader of event files: in a thread for what a file has got lately, in a process for everything else."""

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

from tidemill.control.scalars import event_reader

_PROGRAM = Path(event_reader.__file__)
_CPU_S = 8.0
_ARCHIVE_CPU_S = 30.0
_LIMIT_S = 120.0
_AT_ONCE = 2
_SMALL_BYTES = 128 * 1024
_ANSWER_MAX_BYTES = 64 << 20


class ScalarReaders:
    """Reads event files. At most two processes do that at a time, with limits of CPU time and memory.

    Args:
        cpu_s: Seconds of CPU after which a file is read no further for now. Default: 8.
        archive_cpu_s: The same for archives. Default: 30.
    """

    def __init__(self, *, cpu_s: float = _CPU_S, archive_cpu_s: float = _ARCHIVE_CPU_S) -> None:
        self._cpu_s = cpu_s
        self._archive_cpu_s = archive_cpu_s
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def read_file(self, file: BinaryIO, *, offset: int, size_bytes: int) -> dict[str, Any]:
        """Read an event file from an offset on; see `event_reader.read_file`.

        Args:
            file: A file of the operating system.
            offset: Where a record begins.
            size_bytes: Present size of the file.
        """
        if size_bytes - offset <= _SMALL_BYTES:
            return await asyncio.to_thread(_read_small, file, offset)
        answer = await self._run(file, {"archive": False, "offset": offset, "cpu_s": self._cpu_s})
        return answer or {"tags": {}, "offset": offset, "damage": _TOO_LARGE, "complete": True}

    async def read_archive(self, file: BinaryIO) -> dict[str, Any]:
        """Read the event files in an archive; see `event_reader.read_archive`.

        Args:
            file: As for `read_file`, at its beginning.
        """
        answer = await self._run(file, {"archive": True, "offset": 0, "cpu_s": self._archive_cpu_s})
        return answer or {"files": [], "damage": _TOO_LARGE, "complete": True}

    async def _run(self, file: BinaryIO, task: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer of the program; None if the kernel or the time limit ended it."""
        async with self._places:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_PROGRAM), json.dumps(task)),
                stdin=file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_ANSWER_MAX_BYTES,
            )
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_LIMIT_S):
                    line = await process.stdout.readline()
                    await process.wait()
            except (TimeoutError, ValueError):
                return None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return await asyncio.to_thread(json.loads, line) if line.endswith(b"\n") else None


def _read_small(file: BinaryIO, offset: int) -> dict[str, Any]:
    """Read the records in a part of a file that is not longer than what needs no process, however fast it grows."""
    file.seek(offset)
    scalars = event_reader.EventScalars()
    end, damage, complete = scalars.read(io.BytesIO(file.read(_SMALL_BYTES)), offset=offset)
    return {"tags": scalars.to_json(), "offset": end, "damage": damage, "complete": complete}


_TOO_LARGE = "it takes too long, or too much memory, to read"
