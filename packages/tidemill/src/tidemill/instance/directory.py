"""The directory of one attempt of an instance: the paths of its files, and how to read and write them.

These files are the only interface between server and shim (`docs/reference/instance-files.md`). Both use this module,
so they agree on names and formats.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidemill.core.files import read_json, sync_directory, write_json
from tidemill.core.instances import InstanceRef
from tidemill.core.process import ProcessId
from tidemill.instance import records
from tidemill.instance.object_rows import FileRow
from tidemill.instance.spec import Entry, SyncedDirectory
from tidemill.instance.status import InstanceExit, Phase, RelayReport, StopReason

T = TypeVar("T")

_JOB_ID = re.compile(r"[0-9a-f]{1,64}")
_LAST_BYTES, _LAST_LINES, _LAST_CHARACTERS = 4096, 4, 500
_INSTANCE = re.compile(r"algo-([1-9][0-9]{0,5})(?:\.([2-9]|[1-9][0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class InstanceDirectory:
    """The files of one attempt of an instance.

    Reports contain the number of their attempt. A report of another attempt is treated as missing, and so is one that
    cannot be read: in isolation mode ``plain`` a job can write here, which must not stop the service.

    Attributes:
        path: Absolute path of the directory.
    """

    path: Path

    @classmethod
    def of(cls, state_dir: Path, ref: InstanceRef) -> "InstanceDirectory":
        """Return the directory of ``ref``.

        Raises:
            ValueError: The job id is not hexadecimal, and so might be text of a user, which must not become a path.
        """
        if not _JOB_ID.fullmatch(ref.job_id):
            raise ValueError(f"job id {ref.job_id!r} cannot name a directory; allowed are 1 to 64 characters of 0-9a-f")
        name = f"algo-{ref.instance_index + 1}"
        return cls(state_dir / "jobs" / ref.job_id / (name if ref.attempt == 1 else f"{name}.{ref.attempt}"))

    @classmethod
    def all_below(cls, state_dir: Path, job_id: str | None = None) -> "Iterator[InstanceDirectory]":
        """Yield every attempt with a spec, sorted by path; only those of one job if ``job_id`` is given."""
        for spec in sorted((state_dir / "jobs").glob(f"{job_id or '*'}/algo-*/spec.json")):
            found = cls(spec.parent)
            if _JOB_ID.fullmatch(spec.parent.parent.name) and _INSTANCE.fullmatch(spec.parent.name):
                yield found

    @property
    def ref(self) -> InstanceRef:
        match = _INSTANCE.fullmatch(self.path.name)
        if match is None:
            raise ValueError(
                f"{self.path} is not the directory of an instance; expected .../jobs/JOB_ID/algo-N[.ATTEMPT]"
            )
        return InstanceRef(self.path.parent.name, int(match[1]) - 1, int(match[2] or 1))

    @property
    def shared(self) -> Path:
        """Directory shared by all instances of this attempt on this machine; exists for multi-instance jobs only."""
        attempt = self.ref.attempt
        return self.path.parent / ("shared" if attempt == 1 else f"shared.{attempt}")

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def shim_log(self) -> Path:
        return self.path / "shim.log"

    def last_words(self) -> str:
        """Return the last lines of the shim's log, at most 500 characters, without control characters."""
        try:
            with self.shim_log.open("rb") as file:
                file.seek(max(0, self.shim_log.stat().st_size - _LAST_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        cleaned = ("".join(filter(str.isprintable, line)).strip() for line in lines)
        return "\n".join([line for line in cleaned if line][-_LAST_LINES:])[-_LAST_CHARACTERS:]

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
    def archives(self) -> Path:
        """Archives of models that the server of a multi-model endpoint is about to load."""
        return self.private / "archives"

    @property
    def private(self) -> Path:
        """``/opt/ml/.tidemill``: files that shim and runtime exchange."""
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

    @property
    def views(self) -> Path:
        """Links to the store's files that a job sees as channels, and the job's changes to them; hidden from the
        job."""
        return self.path / "views"

    @property
    def mounted_checkpoints(self) -> Path:
        """The directory of checkpoints, if the job requested one outside ``/opt/ml``."""
        return self.path / "checkpoints"

    @property
    def trees(self) -> tuple[Path, ...]:
        """The large directories, which are removed when the instance is over. All but the artifacts are the job's."""
        return self.ml, self.home, self.tmp, self.views, self.mounted_checkpoints, self.artifacts

    def root_of(self, synced: SyncedDirectory) -> Path:
        """The directory to which the path of a synced directory is relative."""
        return self.path if synced.mounted_at else self.ml

    def channel_file(self, name: str) -> Path:
        return self.channels / f"{name}.jsonl"

    def write_channel(self, name: str, objects: Iterable[Entry]) -> None:
        """Write the listing of a channel, one entry per line; it is streamed, since it may be long."""
        self._write_listing(name, map(records.entry_to_json, objects))

    def read_channel(self, name: str) -> Iterator[Entry]:
        """Yield the listing of a channel in File mode."""
        return map(records.entry_from_json, self._read_listing(name))

    def write_shared_channel(self, name: str, batches: Iterable[Sequence[FileRow]]) -> None:
        """Write the listing of a channel whose links instances share, one batch of files per line."""
        self._write_listing(name, batches)

    def read_shared_channel(self, name: str) -> Iterator[Sequence[FileRow]]:
        """Yield what `write_shared_channel` wrote."""
        return self._read_listing(name)

    def _write_listing(self, name: str, lines: Iterable[Any]) -> None:
        self.channel_file(name).unlink(missing_ok=True)  # another instance may have a link to it
        with self.channel_file(name).open("w", encoding="utf-8", errors="surrogatepass") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.channels)

    def _read_listing(self, name: str) -> Iterator[Any]:
        with self.channel_file(name).open(encoding="utf-8", errors="surrogatepass") as file:
            for line in file:
                yield json.loads(line)

    def write_run(self, process: ProcessId) -> None:
        self._report("run.json", {"boot_id": process.boot_id, "pid": process.pid, "start_ticks": process.start_ticks})

    def read_run(self) -> ProcessId | None:
        """Return the id of the shim's process, which may have ended; None if none was started."""
        return self._reported("run.json", lambda run: ProcessId(run["boot_id"], run["pid"], run["start_ticks"]))

    def write_phases(self, phases: Sequence[Phase]) -> None:
        listed = [{"status": p.status, "started_ms": p.started_ms, "message": p.message} for p in phases]
        self._report(self.status_file.name, {"phases": listed})

    def read_phases(self) -> tuple[Phase, ...]:
        def parse(report: dict[str, Any]) -> tuple[Phase, ...]:
            return tuple(Phase(p["status"], p["started_ms"], p["message"]) for p in report["phases"])

        return self._reported(self.status_file.name, parse) or ()

    def write_stop(self, reason: StopReason) -> None:
        self._report("stop.json", {"reason": reason.value})

    def read_stop(self) -> StopReason | None:
        return self._reported("stop.json", lambda stop: StopReason(stop["reason"]))

    def write_relay(self, relay: RelayReport) -> None:
        self._report("relay.json", relay._asdict())

    def read_relay(self) -> RelayReport | None:
        return self._reported("relay.json", lambda relay: RelayReport(relay["port"], relay["certificate"]))

    def write_exit(self, value: InstanceExit) -> None:
        self._report(self.exit_file.name, records.exit_to_json(value))

    def read_exit(self) -> InstanceExit | None:
        return self._reported(self.exit_file.name, records.exit_from_json)

    def _report(self, name: str, members: dict[str, Any]) -> None:
        write_json(self.path / name, {"version": 1, "attempt": self.ref.attempt, **members})

    def _reported(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return a report; None without a valid one. A report without a number (of older versions) is of attempt 1."""
        try:
            value = read_json(self.path / name)
            return parse(value) if value and value.get("attempt", 1) == self.ref.attempt else None
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
