"""The last value of each metric of a training job, read from its log when it has ended.

What SageMaker calls FinalMetricDataList. The user's regular expressions run in a process of their own
(`tidemill.control.metric_search`), never in the service: one that takes too long costs its metric, and no more.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from tidemill.core.training import FinalMetric

__all__ = ["FoundMetrics", "find_metrics"]

_log = structlog.get_logger("tidemill.training")
_CPU_S = 5
_WALL_S = 300.0
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class FoundMetrics:
    """The metrics of one job.

    Attributes:
        metrics: In the order of their definitions; one without a match is left out.
        faults: A sentence for each definition that gave no value although it may have matched.
    """

    metrics: tuple[FinalMetric, ...] = ()
    faults: tuple[str, ...] = ()


async def find_metrics(
    directory: Path, definitions: Sequence[Mapping[str, str]], *, cpu_s: int = _CPU_S
) -> FoundMetrics:
    """Search a log stream for metrics.

    Args:
        directory: Of the stream.
        definitions: ``{"Name": ..., "Regex": ...}`` each.
        cpu_s: Seconds of CPU that each regular expression may take.
    """
    metrics: list[FinalMetric] = []
    faults: list[str] = []
    waiting = list(definitions)
    while waiting:
        answers, ended_by = await _search(directory, waiting, cpu_s=cpu_s)
        for definition, answer in zip(waiting, answers, strict=False):
            if "value" in answer:
                metrics.append(FinalMetric(definition["Name"], answer["value"], answer["at_ms"]))
            elif "text" in answer:
                faults.append(f"metric {definition['Name']!r} has the value {answer['text'][:_SHOWN]!r}")
        if len(answers) < len(waiting):  # the search ended at the next one; those behind it get another
            faults.append(f"metric {waiting[len(answers)]['Name']!r} has no value: {ended_by}")
        waiting = waiting[len(answers) + 1 :]
    return FoundMetrics(tuple(metrics), tuple(faults))


async def _search(
    directory: Path, definitions: Sequence[Mapping[str, str]], *, cpu_s: int
) -> tuple[list[dict[str, Any]], str]:
    """The answers to the first definitions, and what ended the search if it was not the last of them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tidemill.control.metric_search", str(directory), str(cpu_s)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    answers: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(_WALL_S):
            stdout, stderr = await process.communicate(json.dumps(list(definitions)).encode())
    except TimeoutError:
        return answers, f"more than {_WALL_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    answers = [json.loads(line) for line in stdout.splitlines(keepends=True) if line.endswith(b"\n")]
    killed = process.returncode is not None and process.returncode < 0
    if process.returncode and not killed:
        _log.error("metrics.search_failed", directory=str(directory), error=stderr.decode("utf-8", "replace")[-2000:])
    return answers, f"its regular expression took more than {cpu_s} s" if killed else "the search failed"
