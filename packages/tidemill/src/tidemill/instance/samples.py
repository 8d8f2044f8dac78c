"""Samples of what an instance uses: CPU, memory, disk, network and GPUs over time, in one small file per instance.

The file is next to the segments of the instance's log, so it is kept and removed with that. Each line is JSON: an
object that describes the instance, whenever a writer begins, and an array per sample. A line that was not written
completely, because the writer was killed, is ignored.

The file is bounded however long the instance runs. When it has `MAX_SAMPLES`, the samples before the latest
`RECENT_SAMPLES` are merged to the finest common length with which they fit into half of the file. So the last two hours
keep one sample per ten seconds, and after a week the time before them has one per five minutes.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.core.files import write_durably

SAMPLES_FILE = "resources.jsonl"
SAMPLED_EVERY_MS = 10_000
RECENT_SAMPLES = 720
MAX_SAMPLES = 4096
_OLDER_SAMPLES = MAX_SAMPLES // 2
_MOST_GPUS = 64
_FIXED = 9
_TAIL_BYTES = 4096
_LARGEST = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledInstance:
    """What the samples of an instance are parts of.

    Attributes:
        cpus: Processors that the instance may use.
        memory_bytes: Its limit of memory; without one, the memory of the machine.
        disk_bytes: Its limit of disk space; without one, the size of the file system that has its files.
        network: ``instance`` if the network figures are those of the instance's own network; ``machine`` if the
            instance shares the network of the machine, so that they are those of the whole machine.
        gpus: Names of its GPUs. Their figures include other processes that use the same GPUs.
    """

    cpus: int
    memory_bytes: int
    disk_bytes: int
    network: str = "machine"
    gpus: tuple[str, ...] = ()
    gpu_memory_bytes: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object of the file's first line."""
        return {
            "version": 1,
            "cpus": self.cpus,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "network": self.network,
            "gpus": list(self.gpus),
            "gpu_memory_bytes": list(self.gpu_memory_bytes),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SampledInstance":
        """Parse the output of `to_json`.

        Raises:
            ValueError: It has another form.
        """
        try:
            return cls(
                cpus=_whole(value["cpus"]),
                memory_bytes=_whole(value["memory_bytes"]),
                disk_bytes=_whole(value["disk_bytes"]),
                network="instance" if value["network"] == "instance" else "machine",
                gpus=tuple(str(name)[:100] for name in value["gpus"][:_MOST_GPUS]),
                gpu_memory_bytes=tuple(_whole(size) for size in value["gpu_memory_bytes"][:_MOST_GPUS]),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(
                f"a description of an instance has another form: {type(error).__name__}: {error}"
            ) from error


class GpuSample(NamedTuple):
    """Use of one GPU.

    Attributes:
        busy: Part of the time in which it computed, 0 to 1.
    """

    busy: float
    memory_bytes: int


class Sample(NamedTuple):
    """What an instance used in one interval.

    Attributes:
        at_ms: End of the interval, in milliseconds since the epoch.
        span_ms: Length of the interval.
        cpu: Average number of busy processors.
        memory_bytes: Anonymous and shared memory of its processes at the end; of merged samples, the largest.
        disk_bytes: Size of its files, as last measured; of merged samples, the largest.
        read_bytes_s: Bytes per second read from disks.
        written_bytes_s: Bytes per second written to disks.
        received_bytes_s: Bytes per second received from networks other than loopback.
        sent_bytes_s: Bytes per second sent to them.
        gpus: One entry per GPU.
    """

    at_ms: int
    span_ms: int
    cpu: float
    memory_bytes: int
    disk_bytes: int
    read_bytes_s: float
    written_bytes_s: float
    received_bytes_s: float
    sent_bytes_s: float
    gpus: tuple[GpuSample, ...] = ()

    def to_line(self) -> bytes:
        """Return the sample as a line of the file, with its LF."""
        rates = (round(each) for each in self[5:9])
        gpus = (value for gpu in self.gpus for value in (round(gpu.busy, 3), gpu.memory_bytes))
        members = [*self[:2], round(self.cpu, 4), *self[3:5], *rates, *gpus]
        return json.dumps(members, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> "Sample":
        """Parse the array of a line.

        Raises:
            ValueError: It has another form.
        """
        gpus = value[_FIXED:]
        if len(value) < _FIXED or len(gpus) % 2 or len(gpus) > 2 * _MOST_GPUS or not all(map(_is_amount, value)):
            raise ValueError(f"a sample has {len(value)} values; expected {_FIXED} amounts, and two for each GPU")
        at_ms, span_ms, cpu, memory, disk, *rates = value[:_FIXED]
        read, written, received, sent = map(float, rates)
        return cls(
            int(at_ms),
            max(1, int(span_ms)),
            float(cpu),
            int(memory),
            int(disk),
            read,
            written,
            received,
            sent,
            tuple(GpuSample(float(busy), int(size)) for busy, size in zip(gpus[::2], gpus[1::2], strict=True)),
        )


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """The content of a file of samples, in order of time.

    Attributes:
        instance: The latest description; None if there is none.
    """

    instance: SampledInstance | None = None
    samples: tuple[Sample, ...] = ()

    @classmethod
    def parse(cls, content: bytes) -> "SampleSeries":
        """Read the lines of a file; those that are incomplete or damaged are left out.

        Args:
            content: Its bytes, or some of its whole lines.
        """
        instance: SampledInstance | None = None
        samples: list[Sample] = []
        for line in content[: content.rfind(b"\n") + 1].splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    instance = SampledInstance.from_json(value)
                elif isinstance(value, list):
                    samples.append(Sample.from_json(value))
        return cls(instance, tuple(sorted(samples)))

    @classmethod
    def read(cls, directory: Path) -> "SampleSeries":
        """Read the samples of an instance; none if it has no file.

        Args:
            directory: Directory of its log stream.
        """
        try:
            return cls.parse((directory / SAMPLES_FILE).read_bytes())
        except FileNotFoundError:
            return cls()

    @classmethod
    def described(cls, directory: Path) -> SampledInstance | None:
        """Return the latest description of an instance, without reading its samples.

        Args:
            directory: Directory of its log stream.
        """
        try:
            lines = (directory / SAMPLES_FILE).read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return None
        return cls.parse(b"".join(line for line in lines if line.startswith(b"{"))).instance

    @classmethod
    def latest(cls, directory: Path) -> "SampleSeries":
        """Return the description of an instance and its last sample, which is quicker than all.

        Args:
            directory: Directory of its log stream.
        """
        try:
            with (directory / SAMPLES_FILE).open("rb") as file:
                head = file.readline()
                begin = max(len(head), file.seek(0, os.SEEK_END) - _TAIL_BYTES)
                file.seek(begin)
                tail = file.read()
        except FileNotFoundError:
            return cls()
        found = cls.parse(tail)
        instance = found.instance or cls.parse(head).instance
        return cls(instance, found.samples[-1:])

    def after(self, at_ms: int) -> "SampleSeries":
        """Return the samples after a time, in milliseconds since the epoch."""
        return SampleSeries(self.instance, tuple(each for each in self.samples if each.at_ms > at_ms))

    def to_lines(self) -> bytes:
        """Return the content of a file with these samples."""
        head = [json.dumps(self.instance.to_json()).encode() + b"\n"] if self.instance else []
        return b"".join([*head, *(each.to_line() for each in self.samples)])


class SampleWriter:
    """Appends samples to the file of an instance. There is one writer at a time.

    A writer begins without parsing the file: a service may get the samples of thousands of instances.

    Args:
        directory: Directory of the instance's log stream, which exists.
        instance: Stored before the first sample, unless it is stored. Default: the stored one stays.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, directory: Path, instance: SampledInstance | None = None) -> None:
        self._directory = directory
        self._file = directory / SAMPLES_FILE
        content = self._file.read_bytes() if self._file.exists() else b""
        self._lines = content.count(b"\n")
        self._last_ms = _last_ms(content)
        if content and not content.endswith(b"\n"):
            self._append(b"\n")  # a writer was killed: readers leave its line out
        described = content[content.rfind(b"\n{") + 1 :].partition(b"\n")[0] + b"\n"
        if instance is not None and SampleSeries.parse(described).instance != instance:
            self._append(SampleSeries(instance).to_lines())

    @property
    def last_ms(self) -> int:
        """End of the last sample in milliseconds since the epoch; 0 before the first."""
        return self._last_ms

    def add(self, *samples: Sample) -> None:
        """Store samples. Those that are not later than the stored ones are ignored.

        Args:
            *samples: In order of time.

        Raises:
            OSError: They could not be written. What was written of them is ignored by readers.
        """
        new = [sample for sample in samples if sample.at_ms > self._last_ms]
        for begin in range(0, len(new), _OLDER_SAMPLES // 2):
            some = new[begin : begin + _OLDER_SAMPLES // 2]
            self._append(b"".join(sample.to_line() for sample in some))
            self._last_ms = some[-1].at_ms
            if self._lines > MAX_SAMPLES:
                self._thin()

    def _append(self, lines: bytes) -> None:
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, lines) < len(lines):  # the disk is full: end the torn line, so that the next one is whole
                os.write(fd, b"\n")
        finally:
            os.close(fd)
        self._lines += lines.count(b"\n")

    def _thin(self) -> None:
        series = SampleSeries.read(self._directory)
        lines = SampleSeries(series.instance, tuple(thinned(series.samples))).to_lines()
        write_durably(self._file, lines)
        self._lines = lines.count(b"\n")


def _last_ms(content: bytes) -> int:
    """Return the end of the last sample in a file; 0 without one."""
    tail = content[-_TAIL_BYTES:]
    samples = SampleSeries.parse(tail).samples
    if not samples and len(tail) < len(content):
        samples = SampleSeries.parse(content).samples
    return samples[-1].at_ms if samples else 0


def reduced(samples: Sequence[Sample], *, most: int) -> list[Sample]:
    """Return samples of which neighbors are merged, so that there are at most ``most``, evenly over the time.

    Args:
        samples: In order of time.
    """
    kept, span_ms = list(samples), SAMPLED_EVERY_MS
    while len(kept) > most:
        span_ms *= 2
        kept = list(_merged(kept, span_ms))
    return kept


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples of which the older ones are merged to at most half of `MAX_SAMPLES`; the recent ones stay.

    Args:
        samples: In order of time.
    """
    older, recent = samples[:-RECENT_SAMPLES], samples[-RECENT_SAMPLES:]
    return [*reduced(older, most=_OLDER_SAMPLES), *recent]


def _merged(samples: Iterable[Sample], span_ms: int) -> Iterator[Sample]:
    """Merge neighbors that together are not longer than ``span_ms``, within a tolerance for late samples."""
    last: Sample | None = None
    for sample in samples:
        if last is not None and last.span_ms + sample.span_ms <= span_ms * 1.25:
            last = _union(last, sample)
            continue
        if last is not None:
            yield last
        last = sample
    if last is not None:
        yield last


def _union(first: Sample, second: Sample) -> Sample:
    span_ms = first.span_ms + second.span_ms

    def mean(one: float, other: float) -> float:
        return (one * first.span_ms + other * second.span_ms) / span_ms

    pairs = zip(first.gpus, second.gpus, strict=False)  # another attempt may have had another number of GPUs
    return Sample(
        second.at_ms,
        span_ms,
        mean(first.cpu, second.cpu),
        max(first.memory_bytes, second.memory_bytes),
        max(first.disk_bytes, second.disk_bytes),
        mean(first.read_bytes_s, second.read_bytes_s),
        mean(first.written_bytes_s, second.written_bytes_s),
        mean(first.received_bytes_s, second.received_bytes_s),
        mean(first.sent_bytes_s, second.sent_bytes_s),
        tuple(GpuSample(mean(a.busy, b.busy), max(a.memory_bytes, b.memory_bytes)) for a, b in pairs),
    )


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LARGEST  # type: ignore[operator] - neither NaN nor infinite


def _whole(value: object) -> int:
    if not _is_amount(value):
        raise ValueError(f"a {type(value).__name__} in a description is no amount")
    return int(value)  # type: ignore[call-overload, no-any-return]
