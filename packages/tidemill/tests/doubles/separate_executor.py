"""An executor that shares no files with the service, like one whose instances run on other machines.

Objects are fetched through the `ObjectStore`, logs delivered to the `LogSink`, artifacts read as streams. All of its
own files are below a root that the service does not know; a new executor on the same root simulates a restart.
Instances are real processes (`separate_instance`), unless their spec has neither script nor model: then a test
simulates them with `report`, `end` and `lose`.
"""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidemill.core.instances import InstanceRef, Isolation, ObjectReference, StreamName
from tidemill.core.process import ProcessId
from tidemill.errors import LaunchError
from tidemill.executors.base import Capacity, EventFile, KnownInstance, LogSink, UnixServer
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import Artifact, InstanceExit, InstanceOutcome, InstanceStatus, Phase, StopReason
from tidemill.store.objects.store import ObjectStore

_POLL_S = 0.01
_KEPT = ("spec.json", "phases.json", "exit.json", "process.json")


class SeparateExecutor:
    """Runs instances below ``root``.

    Attributes:
        launches: The instances that this object has started, in order.
        stops: The stops that were requested from this object.
        reaped: The jobs that this object has reaped.
    """

    isolation = Isolation.PLAIN

    def __init__(self, root: Path, *, objects: ObjectStore, logs: LogSink, instances: int = 2) -> None:
        self._root = root
        self._objects = objects
        self._logs = logs
        self._instances = instances
        self._seen: dict[InstanceRef, object] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self.launches: list[InstanceRef] = []
        self.stops: list[tuple[InstanceRef, StopReason]] = []
        self.reaped: list[str] = []
        self.kept: list[str] = []
        root.mkdir(exist_ok=True)

    def capacity(self) -> Capacity:
        return Capacity(instances=self._instances, cpus=2 * self._instances, gpus=0)

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        for spec in specs:
            if self._newest_attempt(spec.ref) > spec.ref.attempt:
                raise LaunchError(f"attempt {spec.ref.attempt} is over")
        try:
            for spec in specs:
                self._launch(spec)
        except LaunchError:
            for spec in specs:
                self.kill(spec.ref)
                shutil.rmtree(self._directory(spec.ref), ignore_errors=True)
            raise

    def relaunch(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        spec = _read(directory / "spec.json")
        if spec is None or (directory / "process.json").exists() or self._newest_attempt(ref) > ref.attempt:
            return
        if spec["script"] is None and not (directory / "model.tar.gz").exists():
            _write(directory / "process.json", {"played": True})
        else:
            self._start(ref)
        # Last, because a test that waits for the launch may lose or end the instance immediately.
        self.launches.append(ref)

    def _start(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        script = Path(__file__).with_name("separate_instance.py")
        command = [sys.executable, str(script), str(directory)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._children.append(child)
        assert child.stdin is not None
        # The instance begins at the end of its input, so that it is alive while its identity is read.
        with child.stdin:
            process = ProcessId.of(child.pid)
            assert process is not None
            _write(directory / "process.json", {"id": [process.boot_id, process.pid, process.start_ticks]})
        self._seen[ref] = None

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        found = []
        for ref in self._refs():
            if not finished(ref.job_id):
                spec = _read(self._directory(ref) / "spec.json")
                found.append(KnownInstance(ref=ref, kind=spec["kind"], job_name=spec["job_name"]))
                self._seen.setdefault(ref, None)
        return found

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        directory = self._directory(ref)
        launched = (directory / "spec.json").exists()
        alive = launched and self._alive(directory)
        ended = _read(directory / "exit.json")
        if launched:
            self._deliver(directory)
        phases = tuple(Phase(**phase) for phase in _read(directory / "phases.json") or ())
        return InstanceStatus(
            launched=launched,
            running=alive and ended is None,
            phases=phases,
            exit=_exit(ended) if ended else None,
            attempt=ref.attempt,
        )

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        self.stops.append((ref, reason))
        directory = self._directory(ref)
        if (directory / "spec.json").exists() and not (directory / "exit.json").exists():
            _write(directory / "stop.json", {})
            process = _process(directory)
            if process is not None and process.alive:
                os.kill(process.pid, signal.SIGTERM)

    def kill(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        process = _process(directory)
        if process is not None and process.alive:
            os.killpg(process.pid, signal.SIGKILL)
            while process.alive:
                time.sleep(0.001)
        if (_read(directory / "process.json") or {}).get("played"):
            _write(directory / "process.json", {})

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not (news := self._changed_instances()) and loop.time() < deadline_s:
            await asyncio.sleep(_POLL_S)
        return news

    def server_address(self, ref: InstanceRef) -> UnixServer | None:
        path = self._directory(ref) / "serving.sock"
        return UnixServer(path) if path.exists() else None

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        with self._objects.open(archive) as source:
            (self._directory(ref) / name).write_bytes(source.read())

    def event_files(self, ref: InstanceRef) -> Sequence[EventFile]:
        return ()

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        raise FileNotFoundError(name)

    def publication(self, ref: InstanceRef, name: str) -> AsyncIterator[bytes] | None:
        file = self._directory(ref) / f"{name}.tar.gz"
        return _chunks(file) if file.exists() else None

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        self.reaped.append(job_id)
        for ref in [ref for ref in self._refs() if ref.job_id == job_id]:
            if keep_files:
                self.kept.append(job_id)
                self.kill(ref)
            else:
                self._clear(ref)
        return True

    def close(self) -> None:
        """Reap the processes that have ended; others keep running."""
        for child in self._children:
            child.poll()
            child.returncode = child.returncode or 0  # prevents the warning of Popen about a running process

    def report(self, ref: InstanceRef, *statuses: str) -> None:
        """Simulate that an instance has entered these phases."""
        phases = [
            {"status": each, "started_ms": 2_000_000_000_000 + i, "message": each} for i, each in enumerate(statuses)
        ]
        _write(self._directory(ref) / "phases.json", phases)

    def end(
        self,
        ref: InstanceRef,
        outcome: InstanceOutcome = InstanceOutcome.COMPLETED,
        failure: str = "",
        *,
        ended_ms: int = 3,
        lost: bool = False,
    ) -> None:
        """Simulate that an instance has ended."""
        ended = {"outcome": outcome.value, "failure": failure, "ended_ms": ended_ms, "lost": lost, "artifacts": {}}
        _write(self._directory(ref) / "exit.json", ended)

    def lose(self, ref: InstanceRef) -> None:
        """Simulate that an instance is gone without a result."""
        _write(self._directory(ref) / "process.json", {})

    def _launch(self, spec: InstanceSpec) -> None:
        ref, directory = spec.ref, self._directory(spec.ref)
        for other in self._refs():
            if (other.job_id, other.instance_index) == (ref.job_id, ref.instance_index) and other.attempt < ref.attempt:
                self._clear(other)
        if not (directory / "spec.json").exists():
            self._copy_in(spec, directory)
            self._logs.create(spec.log)
            _write(
                directory / "spec.json",
                {
                    "kind": spec.kind,
                    "job_name": spec.job_name,
                    "script": spec.config.get("hyperparameters", {}).get("script"),
                    "log": [spec.log.group, spec.log.stream],
                },
            )
        self.relaunch(ref)

    def _copy_in(self, spec: InstanceSpec, directory: Path) -> None:
        inputs = directory / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        for channel in spec.channels:
            if "/" in channel.name:
                raise LaunchError(f"channel name {channel.name!r} cannot name a file")
            for each in channel.objects:
                assert isinstance(each, ObjectReference), "nothing else is needed here"
                self._fetch(each, inputs / channel.name / each.name)
        if spec.model:
            self._fetch(spec.model, directory / "model.tar.gz")

    def _fetch(self, reference: ObjectReference, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._objects.open(reference) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        if hashlib.sha256(target.read_bytes()).hexdigest() != reference.sha256:
            raise LaunchError(f"{reference.uri} is damaged")

    def _deliver(self, directory: Path) -> None:
        """Deliver the lines that the service does not have yet."""
        spec, log = _read(directory / "spec.json"), directory / "log"
        if log.exists():
            stream = StreamName(*spec["log"])
            offset = self._logs.received_bytes(stream)
            with log.open("rb") as file:
                file.seek(offset)
                lines = file.read()
            if lines := lines[: lines.rfind(b"\n") + 1]:
                self._logs.append(stream, lines, offset=offset)

    def _clear(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        self.kill(ref)
        self._deliver(directory)
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in _KEPT:
                path.unlink()
        self._seen.pop(ref, None)

    def _changed_instances(self) -> set[InstanceRef]:
        news = set()
        for ref, before in list(self._seen.items()):
            directory = self._directory(ref)
            now = (_stamp(directory / "phases.json"), _stamp(directory / "exit.json"), self._alive(directory))
            if now != before:
                news.add(ref)
                self._seen[ref] = now
        return news

    def _alive(self, directory: Path) -> bool:
        for child in self._children:
            child.poll()
        process = _process(directory)
        played = (_read(directory / "process.json") or {}).get("played", False)
        return played if process is None else process.alive

    def _directory(self, ref: InstanceRef) -> Path:
        return self._root / f"{ref.job_id}-{ref.instance_index}-{ref.attempt}"

    def _refs(self) -> Iterator[InstanceRef]:
        for spec in sorted(self._root.glob("*/spec.json")):
            job_id, index, attempt = spec.parent.name.split("-")
            yield InstanceRef(job_id, int(index), int(attempt))

    def _newest_attempt(self, ref: InstanceRef) -> int:
        same = [each for each in self._refs() if (each.job_id, each.instance_index) == (ref.job_id, ref.instance_index)]
        return max((each.attempt for each in same), default=0)


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(1000):
            yield chunk


def _exit(value: dict[str, Any]) -> InstanceExit:
    artifacts = {name: Artifact(**artifact) for name, artifact in value["artifacts"].items()}
    return InstanceExit(
        outcome=InstanceOutcome(value["outcome"]),
        failure=value["failure"],
        ended_ms=value["ended_ms"],
        lost=value.get("lost", False),
        artifacts=artifacts,
    )


def _process(directory: Path) -> ProcessId | None:
    value = (_read(directory / "process.json") or {}).get("id")
    return ProcessId(*value) if value else None


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _write(path: Path, value: Any) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
