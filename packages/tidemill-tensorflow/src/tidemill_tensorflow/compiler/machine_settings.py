"""Try settings that TensorFlow reads when it starts, one per job, and use the fastest one in later jobs.

The first job of a script runs with TensorFlow's defaults. Each later job with the same hyperparameters tries one other
setting, until all settings have a time. Then jobs use the setting with the shortest step if it is clearly shorter than
with the defaults. All jobs measure, so that the choice changes if new times do not confirm it.

This module does not import TensorFlow, because settings have an effect only before that import.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import os
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.variants import small_files

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULTS", "MachineSettings", "Record", "Setting", "available", "choose", "current", "start"]

DEFAULTS = "defaults"
MIN_GAIN = 0.05
"""Fraction by which a step must be shorter than with the defaults. Unpaired times of different jobs vary."""
MAX_STARTS = 2
"""Number of jobs without a time, for example failed ones, after which a setting is not tried again."""
MAX_TIMES = 3
"""Number of jobs whose times are kept per setting."""

_DETERMINISTIC = "TF_DETERMINISTIC_OPS"
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 30
_MAX_MMAP_THRESHOLD = 32 << 20


@dataclass(frozen=True)
class Setting:
    """A setting of the process.

    Attributes:
        variables: Environment variables that TensorFlow reads when it starts.
        keeps_memory: Whether glibc's allocator keeps freed memory instead of returning it to the system.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    keeps_memory: bool = False

    def apply(self) -> None:
        """Apply the setting to this process."""
        os.environ.update(self.variables)
        if self.keeps_memory:
            library = ctypes.CDLL(None)
            library.mallopt(_M_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@dataclass
class Record:
    """Measurements of the jobs of one script.

    Attributes:
        function: Key of the timed function, its shapes and the machine; times of other functions are not comparable.
        times_s: Median step times of the newest jobs in seconds, by setting.
        starts: Number of jobs since the last time that started with a setting, by setting.
    """

    function: str = ""
    times_s: dict[str, list[float]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def medians_s(self) -> dict[str, float]:
        """Return the median time of each measured setting, in seconds."""
        return {name: statistics.median(times) for name, times in self.times_s.items() if times}


class MachineSettings:
    """The setting of this process, and the record to which its time is added.

    Attributes:
        name: Name of the setting.
        earlier_s: Median step times of earlier jobs in seconds, by setting.
    """

    def __init__(self, path: Path, name: str, record: Record) -> None:
        self.name = name
        self.earlier_s = record.medians_s()
        self._path = path

    def finish(self, function: str, step_s: float) -> None:
        """Add the step time of this job to the record.

        Args:
            function: Key of the timed function.
            step_s: Median time of a step, in seconds.

        Raises:
            OSError: The record cannot be written.
        """
        record = _read(self._path)
        if record.function != function:
            record = Record(function)
        record.times_s[self.name] = [*record.times_s.get(self.name, []), step_s][-MAX_TIMES:]
        record.starts.pop(self.name, None)
        small_files.replace(self._path, json.dumps(asdict(record)))


_started: list[MachineSettings] = []


def start(directory: Path) -> None:
    """Choose and apply the setting of this process, before TensorFlow is imported.

    The process keeps TensorFlow's defaults, and measures nothing, if other processes train the same model, if the
    script asks for deterministic ops, or if the record cannot be written.

    Args:
        directory: Directory of the records of earlier jobs.
    """
    if "tensorflow" in sys.modules or job.has_several_processes() or os.environ.get(_DETERMINISTIC, "0") != "0":
        return
    path = directory / f"settings-{_script()}.json"
    settings = available()
    record = _read(path)
    name = choose(record, list(settings))
    settings_of_job = MachineSettings(path, name, record)
    record.starts[name] = record.starts.get(name, 0) + 1
    try:
        small_files.replace(path, json.dumps(asdict(record)))
    except OSError:
        return  # without a record, later jobs would try the same setting again
    settings[name].apply()
    _started.append(settings_of_job)


def current() -> MachineSettings | None:
    """Return the setting of this process; None if `start` was not called or had no effect."""
    return _started[-1] if _started else None


def available() -> dict[str, Setting]:
    """Return the settings that this process can try, by name. Variables that the script's job sets are not changed."""
    cores = len(os.sched_getaffinity(0))
    settings = {
        DEFAULTS: Setting(),
        "without oneDNN": Setting({"TF_ENABLE_ONEDNN_OPTS": "0"}),
        "half of the threads": Setting({"TF_NUM_INTRAOP_THREADS": str(cores // 2)}),
        "kept memory": Setting(keeps_memory=True),
    }
    if cores < 2:
        del settings["half of the threads"]
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        del settings["kept memory"]
    return {name: each for name, each in settings.items() if not any(key in os.environ for key in each.variables)}


def choose(record: Record, names: list[str]) -> str:
    """Return the setting of the next job: one without a time, or else the fastest.

    Args:
        record: Measurements of earlier jobs.
        names: Names of the available settings, the defaults first.
    """
    medians = record.medians_s()
    if DEFAULTS not in medians:
        return DEFAULTS
    for name in names:
        if name not in medians and record.starts.get(name, 0) < MAX_STARTS:
            return name
    best = min((name for name in names if name in medians), key=lambda name: medians[name])
    return best if medians[best] < (1 - MIN_GAIN) * medians[DEFAULTS] else DEFAULTS


def _script() -> str:
    """Return a digest of the script's name and hyperparameters, without those that differ from job to job."""
    hyperparameters: dict[str, Any] = {}
    with contextlib.suppress(ValueError, TypeError):
        hyperparameters.update(json.loads(os.environ.get("SM_HPS", "{}")))
    hyperparameters.pop("model_dir", None)
    text = json.dumps([Path(sys.argv[0]).name, hyperparameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> Record:
    """Return the record in a file; an empty record if the file is missing or damaged."""
    try:
        return _parsed(json.loads(small_files.read(path)))
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return Record()


def _parsed(content: Any) -> Record:
    times_s = {str(name): [float(each) for each in times] for name, times in content["times_s"].items()}
    if not all(math.isfinite(each) and each > 0 for times in times_s.values() for each in times):
        raise ValueError("a time is not a positive number")
    return Record(str(content["function"]), times_s, {str(k): int(v) for k, v in content["starts"].items()})
