"""The directory of one instance: where each of its files lies, and how they are read and written.

Server and shim share nothing but these files (`docs/reference/instance-files.md`). Both come here for the names, so
that the two cannot drift apart. Nothing here decides anything.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.files import read_json, sync_directory, write_json
from tidemill.core.process import ProcessId
from tidemill.executors import records
from tidemill.executors.base import Entry, InstanceExit, InstanceRef, Phase, StopReason

__all__ = ["InstanceDirectory"]

_JOB_ID = re.compile(r"[0-9a-f]{1,64}")
_INSTANCE = re.compile(r"algo-([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class InstanceDirectory:
    """Names of the files of one instance. ``path`` is absolute."""

    path: Path

    @classmethod
    def of(cls, state_dir: Path, ref: InstanceRef) -> "InstanceDirectory":
        """The directory of ``ref``.

        Raises:
            ValueError: The job id is not hexadecimal: it would be a user's text used as a path.
        """
        if not _JOB_ID.fullmatch(ref.job_id):
            raise ValueError(f"job id {ref.job_id!r} cannot name a directory; allowed are 1 to 64 characters of 0-9a-f")
        return cls(state_dir / "jobs" / ref.job_id / f"algo-{ref.instance_index + 1}")

    @classmethod
    def all_below(cls, state_dir: Path, job_id: str | None = None) -> "Iterator[InstanceDirectory]":
        """Every instance that has a spec, in the order of its names; of one job where ``job_id`` is given."""
        for spec in sorted((state_dir / "jobs").glob(f"{job_id or '*'}/algo-*/spec.json")):
            found = cls(spec.parent)
            if _JOB_ID.fullmatch(spec.parent.parent.name) and _INSTANCE.fullmatch(spec.parent.name):
                yield found

    @property
    def ref(self) -> InstanceRef:
        match = _INSTANCE.fullmatch(self.path.name)
        if match is None:
            raise ValueError(f"{self.path} is not the directory of an instance; expected .../jobs/JOB_ID/algo-N")
        return InstanceRef(self.path.parent.name, int(match[1]) - 1)

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def shim_log(self) -> Path:
        return self.path / "shim.log"

    @property
    def hosts_file(self) -> Path:
        return self.path / "hosts"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def exit_file(self) -> Path:
        return self.path / "exit.json"

    @property
    def ml(self) -> Path:
        return self.path / "ml"

    @property
    def private(self) -> Path:
        """``/opt/ml/.tidemill``: what shim and runtime exchange."""
        return self.ml / ".tidemill"

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def channels(self) -> Path:
        return self.path / "channels"

    def channel_file(self, name: str) -> Path:
        return self.channels / f"{name}.jsonl"

    def write_channel(self, name: str, objects: Iterable[Entry]) -> None:
        """Write the listing of a channel, one entry a line; it is streamed, since it may be long."""
        with self.channel_file(name).open("w", encoding="utf-8", errors="surrogatepass") as file:
            for each in objects:
                file.write(json.dumps(records.entry_to_json(each)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.channels)

    def read_channel(self, name: str) -> Iterator[Entry]:
        """The listing of a channel in File mode."""
        with self.channel_file(name).open(encoding="utf-8", errors="surrogatepass") as file:
            for line in file:
                yield records.entry_from_json(json.loads(line))

    def write_run(self, process: ProcessId) -> None:
        write_json(
            self.path / "run.json",
            {"version": 1, "boot_id": process.boot_id, "pid": process.pid, "start_ticks": process.start_ticks},
        )

    def read_run(self) -> ProcessId | None:
        """Who the shim is or was; None where none has come so far."""
        run = read_json(self.path / "run.json")
        return run and ProcessId(run["boot_id"], run["pid"], run["start_ticks"])

    def write_phases(self, phases: Sequence[Phase]) -> None:
        write_json(
            self.status_file,
            {
                "version": 1,
                "phases": [{"status": p.status, "started_ms": p.started_ms, "message": p.message} for p in phases],
            },
        )

    def read_phases(self) -> tuple[Phase, ...]:
        status = read_json(self.status_file) or {"phases": ()}
        return tuple(Phase(p["status"], p["started_ms"], p["message"]) for p in status["phases"])

    def write_stop(self, reason: StopReason) -> None:
        write_json(self.path / "stop.json", {"version": 1, "reason": reason.value})

    def read_stop(self) -> StopReason | None:
        stop = read_json(self.path / "stop.json")
        return stop and StopReason(stop["reason"])

    def write_exit(self, value: InstanceExit) -> None:
        write_json(self.exit_file, {"version": 1, **records.exit_to_json(value)})

    def read_exit(self) -> InstanceExit | None:
        value = read_json(self.exit_file)
        return value and records.exit_from_json(value)
