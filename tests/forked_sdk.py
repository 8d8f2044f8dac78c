"""Clients of AWS's SDK v2 in processes that are forked from one that has imported it: the import takes 2.5 s of CPU.

    done = ForkedSdk(python).run(Path("client.py"), "argument", directory=..., variables=...)

This file also runs in the SDK's environment, as the process from which the scripts are forked. Requests and answers are
lines of JSON: the words of a script; the id of its process; its exit status.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forked_scripts import run_here

_IMPORTED = (
    *("boto3", "numpy", "pandas", "sagemaker", "sagemaker.experiments.run", "sagemaker.processing"),
    *("sagemaker.sklearn.processing", "sagemaker.tensorflow", "sagemaker.tuner", "sagemaker.workflow.pipeline"),
    *("sagemaker.workflow.pipeline_context", "sagemaker.workflow.steps"),
)
_OF_THE_IMPORT = {"AWS_DEFAULT_REGION": "us-west-2", "SAGEMAKER_SUPPRESS_V2_WARNING": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Variables that the libraries read on import. A fork would lose the threads of OpenBLAS."""


class ForkedSdk:
    """Runs scripts one after the other.

    Args:
        python: Interpreter of the environment with the SDK.
    """

    def __init__(self, python: Path) -> None:
        self._server = subprocess.Popen(
            [python, __file__],
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **_OF_THE_IMPORT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line is not read before it is awaited
        )
        assert self._server.stdin is not None and self._server.stdout is not None
        self._requests, self._answers = self._server.stdin, self._server.stdout

    def run(
        self, script: Path, *arguments: object, directory: Path, variables: Mapping[str, str], timeout_s: float = 600
    ) -> "subprocess.CompletedProcess[str]":
        """Run a script to its end. If it does not end in time, or fails, the error has its output.

        Args:
            script: Path of the script, absolute or below `directory`.
            arguments: Its arguments.
            directory: Its working directory.
            variables: Its whole environment.
            timeout_s: Time limit, in seconds.
        """
        with tempfile.TemporaryDirectory(prefix="forked-sdk-") as outputs:
            paths = [Path(outputs, name) for name in ("output", "errors")]
            words = [str(directory / script), [str(each) for each in arguments], dict(variables), *map(str, paths)]
            self._requests.write(json.dumps({"directory": str(directory), "words": words}).encode() + b"\n")
            pid = self._answer(None)
            status = self._answer(timeout_s)
            if status is None:
                os.killpg(pid, signal.SIGKILL)
                self._answer(None)
            output, errors = (path.read_text() if path.exists() else "" for path in paths)
        assert status == 0, f"{script} ended with {status} (None: after {timeout_s} s)\n{output}\n{errors[-8000:]}"
        return subprocess.CompletedProcess([], status, output, errors)

    def close(self) -> None:
        """End the process from which the scripts are forked."""
        self._server.communicate(timeout=60)

    def _answer(self, timeout_s: float | None) -> Any:
        if not select.select([self._answers], [], [], timeout_s)[0]:
            return None
        return json.loads(self._answers.readline())


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the import prints
    for name in _IMPORTED:
        importlib.import_module(name)
    _check_the_schema_once()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            answers.close()
            os.setsid()
            os.chdir(request["directory"])
            run_here(*request["words"])
        print(pid, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)


def _check_the_schema_once() -> None:
    """Leave out what takes most of the CPU of a client.

    Whenever the SDK resolves an argument it validates its configuration file, and the schema of that file, too, which
    takes 0.08 s and has the same result every time.
    """
    import jsonschema
    from sagemaker.config.config_schema import SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA as SCHEMA

    kind = jsonschema.validators.validator_for(SCHEMA)
    check = kind.check_schema
    check(SCHEMA)
    kind.check_schema = lambda schema, *args, **options: schema is SCHEMA or check(schema, *args, **options)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _serve()
