"""Scripts in processes that are forked from one that has imported TensorFlow, because the import takes 4 s of CPU.

    ended = start("import tensorflow as tf; print(tf.__version__)").wait()
    ended = wait_for_all(start_ranks(2, Path("ranks.py"), "on"))

The import starts no thread of TensorFlow and opens no device, so it can be forked; jobs that start warm are, too.
"""

import atexit
import multiprocessing
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from unittest import mock

__all__ = ["ForkedScript", "start", "start_ranks", "wait_for_all"]

TIMEOUT_S = 900.0
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tensorflow", "keras", "tf_keras"])
_OF_THE_IMPORT = {"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
"""Variables that the libraries read on import. A fork would lose the threads of OpenBLAS."""


class ForkedScript:
    """A script that runs, or has run.

    Args:
        script: Path of the script, or its text.
        arguments: Its arguments.
        variables: Its whole environment.
    """

    def __init__(self, script: Path | str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="forked-script-")
        self._outputs = [Path(self._directory.name, name) for name in ("output", "errors")]
        path = Path(self._directory.name, "script.py") if isinstance(script, str) else script
        if isinstance(script, str):
            path.write_text(script)
        with mock.patch.dict(os.environ, _OF_THE_IMPORT):
            forkserver.ensure_running()
        words = str(path), list(arguments), dict(variables), *map(str, self._outputs)
        self._process = _FORKS.Process(target=run_here, args=words, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, timeout_s: float = TIMEOUT_S, *, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Wait until the script ends. If it does not, or fails and `check` is set, the error has its output."""
        self._process.join(timeout_s)
        is_late = self._process.exitcode is None
        output, errors = (path.read_text() if path.exists() else "" for path in self._outputs)
        self.kill()
        assert not is_late, f"it runs longer than {timeout_s} s\n{output}\n{errors[-8000:]}"
        status = self._process.exitcode
        assert status is not None and (status == 0 or not check), f"it ended with {status}\n{output}\n{errors[-8000:]}"
        return subprocess.CompletedProcess([], status, output, errors)

    def kill(self) -> None:
        """End the script, if it runs, and forget its output."""
        self._process.kill()
        self._process.join()
        self._directory.cleanup()


def start(script: Path | str, *arguments: object, **variables: str) -> ForkedScript:
    """Start a script with the environment of this process and some variables."""
    return ForkedScript(script, [str(each) for each in arguments], {**os.environ, **variables})


def start_ranks(size: int, script: Path, *arguments: object, **variables: str) -> list[ForkedScript]:
    """Start ranks that find each other as those of tidemill's launcher do."""
    # Only the name counts: ranks on one machine meet at an abstract socket that has it.
    common = {"SMP_STORE": f"{tempfile.gettempdir()}/forked-ranks-{secrets.token_hex(8)}"}
    common |= {"SMP_SECRET": secrets.token_hex(32), "SMP_SIZE": str(size), "SMP_LOCAL_SIZE": str(size)}
    places = ({"SMP_RANK": str(rank), "SMP_LOCAL_RANK": str(rank)} for rank in range(size))
    return [start(script, *arguments, **common, **place, **variables) for place in places]


def wait_for_all(
    scripts: Sequence[ForkedScript], timeout_s: float = TIMEOUT_S
) -> list["subprocess.CompletedProcess[str]"]:
    """Wait until scripts end, all of them without an error. When one fails, end the others."""
    try:
        return [script.wait() for script in scripts]
    finally:
        for script in scripts:
            script.kill()


def run_here(script: str, arguments: list[str], variables: dict[str, str], output: str, errors: str) -> None:
    """Run a script as Python does, with other files as output; the process ends here."""
    os.environ.clear()
    os.environ.update(variables)
    for number, path in enumerate((os.devnull, output, errors)):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    random.seed()  # forked processes would draw the same numbers
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = script
    status: int | str | None = 0
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(status)
