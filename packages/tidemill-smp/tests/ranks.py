"""Ranks that are reused between tests, because importing TensorFlow and tracing take long.

    def forward_of(scale):               # at module level of any file; runs on every rank
        ...
        return result                    # anything that can be pickled

    results = ranks.run(2, forward_of, 3.0, config={"microbatches": 4})     # a list, by rank

Each rank has called `smp.init({"partitions": n, **DEFAULTS, **config})` before; ranks with the same number,
configuration and environment are reused. An exception on a rank makes `run` raise `RankError`, with everything that
the ranks printed; `run(..., check=False)` returns a `Failure` instead of that rank's result. In both cases the ranks
are ended, since they may be out of step. `Job` is for tests that end ranks themselves.
"""

import atexit
import collections
import contextlib
import dataclasses
import importlib.util
import os
import pickle
import secrets
import select
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rank_processes import RankProcess, close_servers, fork_rank

TIMEOUT_S = 600
AFTER_FAILURE_S = 15.0
"""Time limit for the other ranks after one has failed: they may wait for it."""
MAX_RANKS_ALIVE = 10
DEFAULTS = {"measure_layers": False}
"""Without measuring: cuts by measured times differ from run to run, and measuring takes longer than most tests."""
_SIZE = struct.Struct("<Q")


class RankError(AssertionError):
    """A rank raised an exception, died, or did not answer."""


@dataclasses.dataclass
class Failure:
    """The exception of a rank."""

    kind: str
    """The name of the exception's class."""
    text: str
    trace: str
    seconds: float
    """Running time of the function, in seconds."""


def run(
    size: int,
    function: Callable[..., Any] | str,
    *args: Any,
    config: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    check: bool = True,
    **kwargs: Any,
) -> list[Any]:
    """Call a function on `size` ranks and return the results by rank.

    Args:
        size: Number of ranks.
        function: A function at module level, or `module:name` of one.
        args: Its arguments, the same on all ranks.
        config: Parameters of `smp.init`; `partitions` is `size` unless it is given.
        environment: Variables of the ranks, beyond those of this process.
        timeout_s: Time limit for all results, in seconds.
        check: Whether to raise `RankError` for an exception on a rank.
        kwargs: Its keyword arguments.
    """
    job = _job(size, {"partitions": size, **DEFAULTS, **(config or {})}, with_keras_2(environment or {}))
    try:
        results = job.call(function, *args, timeout_s=timeout_s, **kwargs)
        failures = [rank for rank, result in enumerate(results) if isinstance(result, Failure)]
        if failures and check:
            words = "\n".join(f"--- rank {rank} ---\n{results[rank].trace}" for rank in failures)
            raise RankError(f"{words}\n{job.output()}")
    except BaseException:
        _forget(job)
        raise
    if failures:
        _forget(job)
    return results


def with_keras_2(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the switch to tf_keras if that is missing: up to 2.15, `tf.keras` is Keras 2."""
    found = importlib.util.find_spec("tf_keras") is not None
    return {name: value for name, value in environment.items() if found or name != "TF_USE_LEGACY_KERAS"}


class Job:
    """Rank processes, each of which waits for functions to call."""

    def __init__(
        self, size: int, config: Mapping[str, Any] | None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.size = size
        self._directory = tempfile.TemporaryDirectory(prefix="smp-test-")
        self.processes: list[RankProcess] = []
        self._pipes: list[tuple[Any, Any]] = []
        secret = secrets.token_hex(32)
        for rank in range(size):
            place = {"SMP_RANK": rank, "SMP_SIZE": size, "SMP_LOCAL_RANK": rank, "SMP_LOCAL_SIZE": size}
            variables = {name: str(value) for name, value in place.items()}
            store = {"SMP_STORE": self._directory.name, "SMP_SECRET": secret}
            self._start(rank, variables | store, environment or {}, config)

    def _start(
        self,
        rank: int,
        variables: Mapping[str, str],
        environment: Mapping[str, str],
        config: Mapping[str, Any] | None,
    ) -> None:
        requests, requests_end = os.pipe()
        answers_end, answers = os.pipe()
        with self._log(rank).open("wb") as log:
            process = fork_rank(
                {**os.environ, **variables, **environment}, environment, requests, answers, log.fileno()
            )
        os.close(requests)
        os.close(answers)
        self.processes.append(process)
        self._pipes.append((os.fdopen(requests_end, "wb"), os.fdopen(answers_end, "rb", buffering=0)))
        _write(self._pipes[rank][0], None if config is None else dict(config))

    def begin(
        self, function: Callable[..., Any] | str, *args: Any, only: list[int] | None = None, **kwargs: Any
    ) -> None:
        """Make ranks call a function, without waiting for it."""
        for rank in range(self.size) if only is None else only:
            with contextlib.suppress(BrokenPipeError):
                _write(self._pipes[rank][0], (_reference(function), args, kwargs))

    def result(self, rank: int, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait for a rank's result, or `Failure`."""
        deadline = time.monotonic() + timeout_s
        return self._read(rank, deadline)

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout_s: float = TIMEOUT_S, **kwargs: Any) -> list:
        """Call a function on all ranks and wait for all results."""
        self.begin(function, *args, **kwargs)
        deadline = time.monotonic() + timeout_s
        waiting = {self._pipes[rank][1]: rank for rank in range(self.size)}
        results: dict[int, Any] = {}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                failures = [result.trace for result in results.values() if isinstance(result, Failure)]
                words = "\n".join([f"the ranks {sorted(waiting.values())} did not answer in time", *failures])
                raise RankError(f"{words}\n{self.output()}")
            for pipe in ready:
                rank = waiting.pop(pipe)
                results[rank] = self._read(rank, deadline)
                if isinstance(results[rank], Failure):
                    deadline = min(deadline, time.monotonic() + AFTER_FAILURE_S)
        return [results[rank] for rank in range(self.size)]

    def _read(self, rank: int, deadline: float) -> Any:
        answers = self._pipes[rank][1]
        data = b""
        size = _SIZE.size
        while len(data) < size:
            ready, _, _ = select.select([answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RankError(f"rank {rank} did not answer in time\n{self.output()}")
            part = answers.read(size - len(data))
            if not part:
                code = self.processes[rank].wait()
                raise RankError(f"rank {rank} ended with exit code {code}\n{self.output()}")
            data += part
            if size == len(data) == _SIZE.size:
                size += _SIZE.unpack(data)[0]
        return pickle.loads(data[_SIZE.size :])

    def output(self) -> str:
        """Return the last part of the output of the ranks."""
        return "\n".join(
            f"--- output of rank {rank} ---\n{self._log(rank).read_text(errors='replace')[-4000:]}"
            for rank in range(self.size)
        )

    def _log(self, rank: int) -> Path:
        return Path(self._directory.name) / f"output.{rank}"

    def release(self) -> None:
        """Tell the ranks to exit, without waiting for them."""
        for requests, _ in self._pipes:
            with contextlib.suppress(BrokenPipeError):
                requests.close()  # a rank exits at the end of its requests

    def close(self) -> None:
        """End the ranks."""
        self.release()
        deadline = time.monotonic() + 10
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for _, answers in self._pipes:
            answers.close()
        self._directory.cleanup()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_alive: "collections.OrderedDict[bytes, Job]" = collections.OrderedDict()


def _job(size: int, config: dict[str, Any], environment: dict[str, str]) -> Job:
    key = repr((size, sorted(config.items()), sorted(environment.items()))).encode()
    if key in _alive:
        _alive.move_to_end(key)
        return _alive[key]
    while _alive and size + sum(job.size for job in _alive.values()) > MAX_RANKS_ALIVE:
        _alive.popitem(last=False)[1].close()
    _alive[key] = Job(size, config, environment)
    return _alive[key]


def _forget(job: Job) -> None:
    for key in [key for key, other in _alive.items() if other is job]:
        del _alive[key]
    for process in job.processes:
        process.kill()
    job.close()


def close_all() -> None:
    """End all reusable ranks and the servers from which they were forked."""
    for job in _alive.values():
        job.release()
    while _alive:
        _alive.popitem()[1].close()
    close_servers()


atexit.register(close_all)


def _reference(function: Callable[..., Any] | str) -> tuple[str, str]:
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return module, name
    path = function.__code__.co_filename
    if "<locals>" in function.__qualname__ or "<lambda>" in function.__qualname__:
        raise TypeError(f"{function.__qualname__} is not at module level, so ranks cannot find it")
    return path, function.__qualname__


# --- in a rank ------------------------------------------------------------------------------------------------------


def _resolve(reference: tuple[str, str]) -> Callable[..., Any]:
    where, name = reference
    if not where.endswith(".py"):
        module: Any = importlib.import_module(where)
    else:
        # Test modules are not in packages; loading them by path loads each once.
        path = Path(where).resolve()
        key = path.stem if path.parent == Path(__file__).parent.resolve() else f"{path.stem}_{abs(hash(path))}"
        module = sys.modules.get(key)
        if module is None:
            spec = importlib.util.spec_from_file_location(key, path)
            assert spec is not None and spec.loader is not None
            module = sys.modules[key] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _write(stream: Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


def serve(requests: Any, answers: Any) -> None:
    """Run a rank until there are no more requests."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    config = pickle.loads(requests.read(_SIZE.unpack(requests.read(_SIZE.size))[0]))
    if config is not None:
        smp.init(config)
    while header := requests.read(_SIZE.size):
        reference, args, kwargs = pickle.loads(requests.read(_SIZE.unpack(header)[0]))
        started = time.monotonic()
        try:
            tf.keras.backend.clear_session()
            result = _resolve(reference)(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            seconds = time.monotonic() - started
            result = Failure(type(error).__name__, str(error), traceback.format_exc(), seconds)
        try:
            _write(answers, result)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            _write(answers, Failure(type(error).__name__, f"the result cannot be pickled: {error}", "", 0.0))
