"""Run TensorFlow Lite models by the interpreter of the wheel, without importing Python's TensorFlow.

The module of the interpreter is a library of 15 MB that needs nothing else of TensorFlow. An interpreter runs one
request at a time, so each model has a pool of them, which share the weights. Loading a model plans its runs (it
allocates the tensors), but runs nothing. The first run of a signature is tried in a process of its own.
"""

import asyncio
import contextlib
import importlib
import queue
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Signature, TensorSpec
from tidemill_serving.engine.tflite_file import Tensors, TfliteFile, custom_operations, read_tflite
from tidemill_serving.engine.tflite_trial import (
    INTERPRETER_MODULE,
    FirstRuns,
    crash_of,
    create_interpreter,
    one_line,
)
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import StartFailed, invalid

_KEPT_BYTES = 2**24
_KEPT_RATIO = 16  # of the bytes of inputs; a new interpreter is made at most once for each such change of sizes
_MISSING_OPERATION = re.compile("Select TensorFlow op|unresolved custom op|Op builtin_code out of range|Didn't find op")


class TfliteLoader:
    """Loads TensorFlow Lite models.

    Args:
        interpreters: Most interpreters of a model; each runs one request at a time.
        threads: Threads inside an operation.
    """

    def __init__(self, *, interpreters: int, threads: int) -> None:
        self._interpreters = interpreters
        self._threads = threads

    def load(self, file: Path) -> LoadedModel:
        """Load a model, and plan the runs of its first subgraph.

        Args:
            file: The flatbuffer.

        Raises:
            StartFailed: The file is no such model, needs operations that the interpreter lacks, or the installed
                TensorFlow has no interpreter.
        """
        try:
            content = file.read_bytes()
        except OSError as error:
            raise StartFailed(f"{file} cannot be read: {error}") from error
        wheel = open_wheel()
        try:
            library: Any = importlib.import_module(INTERPRETER_MODULE)
        except ImportError as error:
            raise StartFailed(f"{file} cannot be loaded: this TensorFlow has no interpreter for it: {error}") from error
        crash = crash_of(content)
        if crash is not None:
            raise StartFailed(f"{file} is damaged: TensorFlow Lite crashes ({crash}) when it plans the model's runs")

        def new() -> _Interpreter:
            # The bytes may not change or move while an interpreter uses them, so the file is not mapped.
            return _Interpreter(create_interpreter(library, content, threads=self._threads), content)

        try:
            first = new()
        except (RuntimeError, ValueError) as error:
            raise StartFailed(f"TensorFlow Lite cannot load {file}: {_reason(error, content)}") from error
        try:
            found = read_tflite(content, wheel=wheel)
        except Exception as error:  # the interpreter does not check names and signatures, and readers trust them
            raise StartFailed(f"{file} is damaged: its signatures cannot be read: {one_line(error)}") from error
        limit = 1 if found.keeps_state else self._interpreters
        pool = _Interpreters(new, first, limit=limit, keeps=found.keeps_state)
        return TfliteModel(found, pool, FirstRuns(content))


class _Interpreter:
    """An interpreter, with the shapes that its inputs have.

    Args:
        wrapper: The interpreter of the library.
        content: The flatbuffer, which the interpreter reads without a copy.
    """

    def __init__(self, wrapper: Any, content: bytes) -> None:
        self._wrapper = wrapper
        self._content = content  # after the wrapper, so that it is freed after it
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}
        self._planned: set[int] = set()
        self._last_bytes = self._most_bytes = 0
        wrapper.AllocateTensors()

    @property
    def is_oversized(self) -> bool:
        """Whether it keeps memory for far larger inputs than the last ones: its tensors grow, but never shrink."""
        return self._most_bytes > max(_KEPT_BYTES, _KEPT_RATIO * self._last_bytes)

    def forget_shapes(self) -> None:
        """Plan the next run of each subgraph from the shapes of its inputs, because a run failed."""
        self._shapes.clear()
        self._planned.clear()

    def plan(self, tensors: Tensors) -> None:
        """Allocate the tensors of a subgraph."""
        self._wrapper.AllocateTensors(tensors.subgraph)
        self._planned.add(tensors.subgraph)

    def run(self, tensors: Tensors, feeds: Sequence[Array], *, resets: bool) -> list[Array]:
        wrapper, subgraph = self._wrapper, tensors.subgraph
        self._last_bytes = sum([feed.nbytes for feed in feeds])
        self._most_bytes = max(self._most_bytes, self._last_bytes)
        for number, feed in zip(tensors.inputs, feeds, strict=True):
            if self._shapes.get((subgraph, number)) != feed.shape:
                wrapper.ResizeInputTensor(number, np.array(feed.shape, np.int32), False, subgraph)
                self._shapes[subgraph, number] = feed.shape
                self._planned.discard(subgraph)
        if subgraph not in self._planned:
            self.plan(tensors)
        for number, feed in zip(tensors.inputs, feeds, strict=True):
            wrapper.SetTensor(number, feed, subgraph)
        if resets:
            wrapper.ResetVariableTensors()
        wrapper.Invoke(subgraph)
        # A tensor without dimensions is returned as a scalar.
        return [np.asarray(wrapper.GetTensor(number, subgraph)) for number in tensors.outputs]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A run by an interpreter of its own, in a process for it."""

    tensors: Tensors
    feeds: Sequence[Array]
    resets: bool

    def __call__(self, library: Any, content: bytes) -> None:
        made = _Interpreter(create_interpreter(library, content, threads=1), content)
        made.run(self.tensors, self.feeds, resets=self.resets)


class _Interpreters:
    """Interpreters of one model, made when they are first needed.

    Args:
        new: Makes an interpreter.
        first: The one that exists.
        limit: Most interpreters; further runs of threads wait for one of them. The event loop does not wait: it has one
            more, which is made if all others are in use.
        keeps: Never replace an interpreter, because it has the values of the model's variables. Such models do not run
            on the event loop.
    """

    def __init__(self, new: Callable[[], _Interpreter], first: _Interpreter, *, limit: int, keeps: bool) -> None:
        self._new = new
        self._keeps = keeps
        self._idle: _Idle = queue.LifoQueue()
        self._idle_of_loop: _Idle = queue.LifoQueue()
        for each in [*[None] * (limit - 1), first]:
            self._idle.put(each)
        self._idle_of_loop.put(None)

    @contextlib.contextmanager
    def interpreter(self) -> Generator[_Interpreter]:
        """Lend an interpreter. If its run fails, another one replaces it: its tensors may not fit each other."""
        idle, found = self._take()
        usable = False
        try:
            found = found or self._new()
            yield found
            usable = not found.is_oversized
        finally:
            if found is not None and self._keeps and not usable:
                found.forget_shapes()
                usable = True
            idle.put(found if usable else None)

    def _take(self) -> "tuple[_Idle, _Interpreter | None]":
        if self._keeps or not _runs_event_loop():
            return self._idle, self._idle.get()
        try:
            return self._idle, self._idle.get_nowait()
        except queue.Empty:
            return self._idle_of_loop, self._idle_of_loop.get_nowait()


_Idle: TypeAlias = "queue.LifoQueue[_Interpreter | None]"  # None: an interpreter that is still to be made


class TfliteModel:
    """A loaded TensorFlow Lite model."""

    def __init__(self, file: TfliteFile, pool: _Interpreters, first_runs: FirstRuns) -> None:
        self._file = file
        self._pool = pool
        self._first_runs = first_runs
        self.signatures, self.unusable = file.signatures.served, file.signatures.unusable
        self.signature_defs = file.signatures.definitions

    def prepare(self, signature: Signature) -> None:
        """Allocate the tensors of a signature, without a run."""
        with contextlib.suppress(RuntimeError, ValueError), self._pool.interpreter() as interpreter:
            interpreter.plan(self._file.tensors[signature.key])  # if that fails, requests get the error

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        """Run; ``pooled`` makes no difference, since the threads of an interpreter are fixed when it is made."""
        for alias, spec, feed in zip(signature.inputs, signature.inputs.values(), feeds, strict=True):
            _check_shape(alias, spec, feed.shape)
        tensors, resets = self._file.tensors[signature.key], self._file.resets
        self._first_runs.check(signature, feeds, _Trial(tensors, feeds, resets))
        try:
            with self._pool.interpreter() as interpreter:
                return interpreter.run(tensors, feeds, resets=resets)
        except (RuntimeError, ValueError) as error:
            raise invalid(one_line(error)) from error

    def close(self) -> None:
        """Nothing to do: the interpreters are freed with this object."""


def _check_shape(alias: str, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Refuse other sizes than those of the model, but for the first: models of old converters fix it needlessly."""
    known = spec.shape
    if known is None:
        return
    expected = known if not known else (-1, *known[1:])
    if len(shape) != len(expected) or any(want not in (-1, got) for want, got in zip(expected, shape, strict=True)):
        raise invalid(f"the model fixes the sizes of {alias}: {list(expected)} where -1 is any, not {list(shape)}")


def _runs_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _reason(error: BaseException, content: bytes) -> str:
    if not _MISSING_OPERATION.search(str(error)):
        return one_line(error)
    return (
        f"it needs operations that the interpreter lacks ({', '.join(custom_operations(content)) or one_line(error)});"
        " convert the model with tf.lite.OpsSet.TFLITE_BUILTINS alone, or serve its SavedModel"
    )
