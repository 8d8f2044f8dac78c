"""Sample what an instance uses, every ten seconds while it runs, into the file beside its log.

Measured are the processes below this one, so also those of an instance in isolation mode ``plain``. The network is the
instance's own in isolation mode ``full``; otherwise it is that of the machine, which the stored description says.
"""

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence

from tidemill.core.clock import Clock
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import SpecRecord
from tidemill.instance.samples import SAMPLED_EVERY_MS, GpuSample, Sample, SampledInstance, SampleWriter
from tidemill.shim.disk_use import DiskLimit, DiskUse
from tidemill.shim.nvml import Nvml, NvmlUnavailable
from tidemill.shim.report import Log
from tidemill.shim.usage import InstanceUsage, UsageCounts

_FIRST_S = (1.0, 2.0, 5.0)
"""Times of the first samples after the start, so that a job of some seconds has samples, too."""
_DISK_PAUSE = 2000
"""Minimum pause before the files are measured again, as a multiple of the time that it took: a 2,000th of a core."""
_COUNTS_PAUSE = 50
"""The same for the counts of the processes: with 5,000 of them, a reading takes half a second of a core."""
_SHORTEST_S = 0.2
_END_TIMEOUT_S = 2.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@contextlib.contextmanager
def sampled(directory: InstanceDirectory, task: SpecRecord, *, log: Log, clock: Clock) -> Generator[None]:
    """Sample the instance during the context, in a thread.

    Nothing of it can end the instance: what cannot be measured or stored is noted once in the log.

    Args:
        log: Gets the notes.
        clock: Provides the time of the samples.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=_sample, args=(directory, task, log, clock, ended), name="resource samples", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_TIMEOUT_S)  # the files of the instance may just be measured, which nobody has to wait for


def _sample(directory: InstanceDirectory, task: SpecRecord, log: Log, clock: Clock, ended: threading.Event) -> None:
    try:
        sampler = Sampler(directory, task, clock=clock, note=log.note)
        begin_s = time.monotonic()
        for due_s in _times(lambda: sampler.pause_s):
            is_last = ended.wait(max(0.0, begin_s + due_s - time.monotonic()))
            sampler.sample(measures_files=not is_last)
            if is_last:
                break
        sampler.close()
    except OSError as error:
        log.note(f"tidemill: no more samples of what this instance uses are stored: {error}")


def _times(pause_s: Callable[[], float]) -> Generator[float]:
    """Yield when to sample, in seconds since the start; after each, those within the pause are left out."""
    next_s = 0.0
    for due_s in itertools.chain(_FIRST_S, itertools.count(SAMPLED_EVERY_MS / 1000, SAMPLED_EVERY_MS / 1000)):
        if due_s >= next_s:
            yield due_s
            next_s = due_s + pause_s()


class Sampler:
    """Samples an instance.

    Args:
        clock: Provides the time of the samples.
        note: Logs a line.
        library: Name or path of NVML. Default: that of the driver.

    Attributes:
        pause_s: Seconds before the next sample should be taken, so that samples take a small part of a core.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(
        self,
        directory: InstanceDirectory,
        task: SpecRecord,
        *,
        clock: Clock,
        note: Callable[[str], None],
        library: str | None = None,
    ) -> None:
        self._clock = clock
        self._gpus = _open_gpus(task, note, library)
        self._usage = InstanceUsage(own_network=task.site.network is not None, forked_elsewhere=task.spec.warm)
        self._disk = _Files(directory, clock)
        described = _described(directory, task, self._gpus)
        self._writer = SampleWriter(task.log_directory, described)
        self._last_s, self._last = clock.monotonic_s(), self._usage.read()
        self.pause_s = 0.0

    def sample(self, *, measures_files: bool = True) -> None:
        """Store a sample of the time since the last one.

        Args:
            measures_files: Whether the files of the instance may be measured now. Default: true.

        Raises:
            OSError: It could not be written.
        """
        now_s = self._clock.monotonic_s()
        span_s = now_s - self._last_s
        if span_s < _SHORTEST_S:
            return
        begun_s = time.thread_time()
        counts, before = self._usage.read(), self._last
        self.pause_s = _COUNTS_PAUSE * (time.thread_time() - begun_s)
        self._last_s, self._last = now_s, counts
        span_ms = round(span_s * 1000)
        self._writer.add(
            Sample(
                # After the last one also if the clock was set back: readers would ignore it otherwise.
                max(self._clock.now_ms(), self._writer.last_ms + span_ms),
                span_ms,
                max(0.0, counts.cpu_s - before.cpu_s) / span_s,
                counts.memory_bytes,
                self._disk.size_bytes(measures=measures_files),
                *_rates(before, counts, span_s),
                self._read_gpus(),
            )
        )

    def close(self) -> None:
        """Close NVML."""
        if self._gpus is not None:
            self._gpus.close()

    def _read_gpus(self) -> tuple[GpuSample, ...]:
        with contextlib.suppress(NvmlUnavailable):
            return self._gpus.read() if self._gpus is not None else ()
        return ()


class _Files:
    """Measures the files of an instance, so seldom that it takes a small part of a core."""

    def __init__(self, directory: InstanceDirectory, clock: Clock) -> None:
        self._clock = clock
        self._use = DiskUse(directory, DiskLimit(1, None), now_s=clock.monotonic_s)
        self._size_bytes = 0
        self._due_s = -math.inf

    def size_bytes(self, *, measures: bool) -> int:
        begun_s = self._clock.monotonic_s()
        if measures and begun_s >= self._due_s:
            self._size_bytes = self._use.measure(()).size_bytes
            self._due_s = begun_s + _DISK_PAUSE * (self._clock.monotonic_s() - begun_s)
        return self._size_bytes


def _rates(before: UsageCounts, now: UsageCounts, span_s: float) -> tuple[float, float, float, float]:
    pairs = (
        (before.read_bytes, now.read_bytes),
        (before.written_bytes, now.written_bytes),
        (before.received_bytes, now.received_bytes),
        (before.sent_bytes, now.sent_bytes),
    )
    first, second, third, fourth = (max(0, after - earlier) / span_s for earlier, after in pairs)
    return first, second, third, fourth


def _open_gpus(task: SpecRecord, note: Callable[[str], None], library: str | None) -> Nvml | None:
    devices = _devices(task)
    if not devices:
        return None
    try:
        return Nvml(devices) if library is None else Nvml(devices, library=library)
    except (NvmlUnavailable, AttributeError) as error:
        note(f"tidemill: the GPUs of this instance are not sampled: {error}")
        return None


def _devices(task: SpecRecord) -> Sequence[str]:
    """Return the GPUs of the instance, as its CUDA_VISIBLE_DEVICES names them; on a cluster its scheduler sets that."""
    if task.devices is not None:
        return task.devices
    named = (each.strip() for each in task.spec.variables.get(_VISIBLE, "").split(","))
    return [each for each in named if each not in ("", "-1", "NoDevFiles")]


def _described(directory: InstanceDirectory, task: SpecRecord, gpus: Nvml | None) -> SampledInstance:
    limits, place = task.spec.limits, directory.path
    disk = os.statvfs(place)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return SampledInstance(
        cpus=limits.cpus or len(os.sched_getaffinity(0)),
        memory_bytes=min(limits.memory_bytes or memory_bytes, memory_bytes),
        disk_bytes=limits.disk_bytes or disk.f_blocks * disk.f_frsize,
        network="instance" if task.site.network is not None else "machine",
        gpus=gpus.names if gpus else (),
        gpu_memory_bytes=gpus.memory_bytes if gpus else (),
    )
