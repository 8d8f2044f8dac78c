"""The feeder of one instance in a separate directory: its channels, their objects, and readers of its FIFOs."""

import fcntl
import hashlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from polling import poll
from tidemill.core.clock import SystemClock
from tidemill.core.remotes import RemoteS3
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import ChannelSpec, Entry, ObjectFile
from tidemill.shim.feeder import PipeFeeder

MAGIC = 0xCED7230A


@dataclass
class Stage:
    """One instance directory with channels and their objects."""

    path: Path
    lines: list[str] = field(default_factory=list)
    remotes: dict[str, RemoteS3] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = InstanceDirectory(self.path / "jobs" / "a" / "algo-1")
        self.data = self.directory.ml / "input/data"
        self.data.mkdir(parents=True)
        self.directory.channels.mkdir()

    def object(self, name: str, data: bytes) -> ObjectFile:
        digest = hashlib.sha256(data).hexdigest()
        file = self.path / digest
        file.write_bytes(data)
        return ObjectFile(uri=f"s3://bucket/{name}", name=name, file=str(file), size_bytes=len(data), sha256=digest)

    def feeder(self, *entries: Entry, **channel: Any) -> PipeFeeder:
        spec = ChannelSpec(**{"name": "train", "objects": (), "input_mode": "Pipe", **channel})
        self.directory.write_channel(spec.name, entries)
        return PipeFeeder(
            self.directory,
            [spec],
            stores=RemoteStores(self.remotes),
            log=self.lines.append,
            clock=SystemClock(),
        )

    @contextmanager
    def feeding(self, *entries: Entry, **options: Any) -> Iterator[PipeFeeder]:
        feeder = self.feeder(*entries, **options)
        with feeder.running() as start:
            start()
            yield feeder

    def read(self, epoch: int = 0) -> bytes:
        return (self.data / f"train_{epoch}").read_bytes()

    def outcome(self, epoch: int = 0) -> dict[str, Any]:
        line = (self.data / f".tidemill/train_{epoch}.outcome").read_text().removesuffix("\n")
        version, state, sent_bytes, objects, *error = line.split(" ", 4)
        counts = {"version": int(version), "bytes": int(sent_bytes), "objects": int(objects)}
        return {**counts, "state": state, "error": "".join(error)}

    @property
    def lock(self) -> Path:
        return self.data / ".tidemill/train.feeder"

    def is_fed(self) -> bool:
        """Return whether a reader would consider the lock held."""
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def reader(self, script: str, epoch: int = 0) -> "subprocess.Popen[bytes]":
        """Start a process that has `fifo` open, unbuffered, and prints a line when it has."""
        opening = f"import os, sys, signal; fifo = open({str(self.data / f'train_{epoch}')!r}, 'rb', buffering=0)\n"
        command = [sys.executable, "-c", opening + script]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @staticmethod
    def record(data: bytes, *, flag: int = 0) -> bytes:
        return struct.pack("<II", MAGIC, flag << 29 | len(data)) + data + bytes(-len(data) % 4)

    wait_until = staticmethod(poll)

    @staticmethod
    @contextmanager
    def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
