"""The next values to try, from the stored trials: no search keeps a state of its own, so each survives kill -9.

Random and Grid depend on the number of the trial alone. Bayesian asks a process (`tidemill.control.tuning.model`) that
fits a model to the objectives so far; its first trials are random.
"""

import asyncio
import contextlib
import itertools
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from tidemill.control.tuning.ranges import Range
from tidemill.core.tuning import TuningTrial

Point = Sequence[float]
"""A coordinate for each range, in their order."""

_DRAWS = 64
_RANDOM_TRIALS = 5
_PROCESSES = 2
_ANSWER_MAX_BYTES = 16 * 1024 * 1024


def grid_points(ranges: Sequence[Range]) -> int:
    """Return the number of combinations of categorical ranges.

    Args:
        ranges: Categorical ranges.
    """
    return math.prod(each.choices for each in ranges)


def grid_point(ranges: Sequence[Range], number: int) -> Point:
    """Return one combination of categorical ranges.

    Args:
        ranges: Categorical ranges.
        number: From 0; the last range changes first.
    """
    return next(itertools.islice(itertools.product(*(range(each.choices) for each in ranges)), number, None))


def random_point(ranges: Sequence[Range], random: Random, *, tried: Iterable[Mapping[str, str]] = ()) -> Point:
    """Return a random point whose values were not tried before, if one is found.

    Args:
        random: Source of the draws.
        tried: Hyperparameters of earlier trials.
    """
    known = [dict(each) for each in tried]
    for _ in range(_DRAWS):
        point = [each.draw(random) for each in ranges]
        if texts_at(ranges, point) not in known:
            break
    return point


def texts_at(ranges: Sequence[Range], point: Point) -> dict[str, str]:
    """Return the hyperparameters at a point."""
    return {each.name: each.text(coordinate) for each, coordinate in zip(ranges, point, strict=True)}


def model_task(
    ranges: Sequence[Range], trials: Iterable[TuningTrial], *, maximizes: bool, seed: int
) -> dict[str, Any] | None:
    """Return the task of the model's process; None before there are enough trials with an objective.

    Args:
        ranges: What is tuned.
        trials: Trials of these ranges, and those of the parents of a warm start. Trials outside the ranges, and failed
            ones, teach nothing.
        maximizes: Whether higher values are better.
        seed: Seed of this suggestion.
    """
    points: list[list[float]] = []
    values: list[float | None] = []
    for trial in trials:
        coordinates = [each.coordinate(trial.hyperparameters.get(each.name, "")) for each in ranges]
        known = [coordinate for coordinate in coordinates if coordinate is not None]
        if len(known) < len(ranges) or (trial.status.terminal and trial.objective is None):
            continue
        points.append(known)
        values.append(None if trial.objective is None else (-trial.objective if maximizes else trial.objective))
    if sum(value is not None for value in values) < max(_RANDOM_TRIALS, len(ranges) + 2):
        return None
    return {"choices": [each.choices for each in ranges], "points": points, "values": values, "seed": seed}


class ModelProcess:
    """The process that fits models, started by the first task: its library takes a second to import."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, so that its first answer comes sooner."""
        async with self._turn:
            await self._running()

    async def suggest(self, task: Mapping[str, Any]) -> list[float]:
        """Return the coordinates to try next. A process that is killed, e.g. for its memory, is replaced once.

        Args:
            task: A result of `model_task`.

        Raises:
            RuntimeError: The process failed.
        """
        async with self._turn:
            for _ in range(_PROCESSES):
                answer = await self._answer(task)
                if answer.endswith(b"\n"):
                    return json.loads(answer)
        raise RuntimeError(f"the search for hyperparameters failed: {_PROCESSES} processes ended without an answer")

    async def _answer(self, task: Mapping[str, Any]) -> bytes:
        process = await self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            await process.stdin.drain()
            answer = await process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        except BaseException:
            await self._end()  # its next answer would be for this task
            raise
        if not answer.endswith(b"\n"):
            await self._end()
        return answer

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-W", "ignore", "-m", "tidemill.control.tuning.model"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_ANSWER_MAX_BYTES,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
