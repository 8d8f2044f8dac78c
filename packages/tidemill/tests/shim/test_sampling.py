"""What a sampler measures: of real processes and files, and of GPUs by a library that answers like NVML."""

import ctypes
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.limits import InstanceLimits
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import Site, SpecRecord
from tidemill.instance.samples import GpuSample, SampledInstance, SampleSeries
from tidemill.instance.spec import InstanceSpec
from tidemill.shim.nvml import Nvml, NvmlUnavailable
from tidemill.shim.sampling import Sampler, _times
from tidemill.shim.usage import processes_below

MIB = 1 << 20
BUSY = """
import sys, time
sys.stdin.readline()
held = bytearray(b"1") * (64 << 20)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
open(sys.argv[1], "wb").write(bytes(3 << 20))
print("READY", flush=True)
sys.stdin.readline()
"""


class SteppedClock(SystemClock):
    """A clock of which ten seconds pass between two samples."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.set_back_s = 0.0

    def now_ms(self) -> int:
        return int((self.now_s - self.set_back_s) * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def directory(tmp_path: Path) -> InstanceDirectory:
    directory = InstanceDirectory(tmp_path / "jobs/ab/algo-1")
    for each in (directory.ml, directory.home, directory.tmp, tmp_path / "logs"):
        each.mkdir(parents=True)
    return directory


@pytest.fixture
def task(tmp_path: Path) -> SpecRecord:
    spec = InstanceSpec(
        ref=InstanceRef("ab", 0),
        kind="training",
        job_name="job",
        hosts=("algo-1",),
        framework_version="2.21",
        log=StreamName("group", "stream"),
    )
    site = Site(state_dir=tmp_path, environments_dir=tmp_path, backend="plain")
    return SpecRecord(spec=spec, channels=(), log_directory=tmp_path / "logs", site=site)


@pytest.fixture
def process(directory: InstanceDirectory) -> Iterator[Callable[[], None]]:
    """Start a process and yield a function that makes it use processor, memory and disk."""
    command = [sys.executable, "-c", BUSY, str(directory.ml / "written")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None

    def work() -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "READY\n"

    yield work
    process.communicate("\n")


def test_processor_memory_and_files_are_those_of_the_descendants_also_after_their_end(
    directory: InstanceDirectory, task: SpecRecord, process: Callable[[], None]
) -> None:
    clock = SteppedClock()
    sampler = Sampler(directory, task, clock=clock, note=pytest.fail)
    clock.now_s += 10
    sampler.sample()
    process()
    clock.now_s += 10
    sampler.sample()
    idle, busy = SampleSeries.read(task.log_directory).samples[-2:]
    assert (busy.at_ms, busy.span_ms) == (1_020_000, 10_000)
    assert 0.025 <= busy.cpu < 0.4, "0.3 s and the start of Python, in 10 s"
    # Processes that other tests of this process keep are descendants, too.
    assert 60 * MIB <= busy.memory_bytes - idle.memory_bytes < 200 * MIB
    assert busy.disk_bytes >= 3 * MIB
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    clock.now_s += 10
    sampler.sample()
    later = SampleSeries.read(task.log_directory).samples[-1]
    assert 0.045 <= later.cpu < 0.4, "a process that has begun and ended between two samples counts"
    clock.now_s += 0.1
    sampler.sample()
    assert len(SampleSeries.read(task.log_directory).samples) == 3, "too soon after the last one"


def test_a_clock_that_is_set_back_ends_no_samples(directory: InstanceDirectory, task: SpecRecord) -> None:
    clock = SteppedClock()
    sampler = Sampler(directory, task, clock=clock, note=pytest.fail)
    for set_back_s in (0.0, 600.0, 600.0, 0.0):
        clock.now_s, clock.set_back_s = clock.now_s + 10, set_back_s
        sampler.sample()
    samples = SampleSeries.read(task.log_directory).samples
    assert [each.at_ms for each in samples] == [1_010_000, 1_020_000, 1_030_000, 1_040_000]


def test_samples_of_many_processes_are_taken_more_seldom(
    directory: InstanceDirectory, task: SpecRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    sampler = Sampler(directory, task, clock=clock, note=pytest.fail)
    clock.now_s += 10
    monkeypatch.setattr("time.thread_time", iter([5.0, 5.5]).__next__)
    sampler.sample()
    assert sampler.pause_s == 25
    assert list(itertools.islice(_times(lambda: 0.0), 5)) == [1, 2, 5, 10, 20]
    assert list(itertools.islice(_times(lambda: sampler.pause_s), 4)) == [1, 30, 60, 90]


def test_descendants_are_found_by_the_children_of_threads_where_the_kernel_lists_them(tmp_path: Path) -> None:
    threads = {(1, 1): "2 3 ", (1, 9): "4 ", (2, 2): "", (3, 3): "5 ", (4, 4): "", (7, 7): "8 "}
    for (pid, thread), children in threads.items():
        task = tmp_path / f"{pid}/task/{thread}"
        task.mkdir(parents=True)
        (task / "children").write_text(children)
    assert sorted(processes_below(1, proc=tmp_path)) == [2, 3, 4, 5], "5 has ended meanwhile"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.pid in processes_below(os.getpid())
    child.communicate(b"\n")


def test_the_description_names_the_limits_and_whose_network_it_is(
    directory: InstanceDirectory, task: SpecRecord, tmp_path: Path
) -> None:
    Sampler(directory, task, clock=SteppedClock(), note=pytest.fail)
    whole = SampleSeries.read(task.log_directory).instance
    assert whole is not None and whole.network == "machine" and whole.cpus >= 1
    assert whole.memory_bytes > 64 * MIB and whole.disk_bytes > 64 * MIB
    limits = InstanceLimits(memory_bytes=64 * MIB, cpus=1, disk_bytes=32 * MIB)
    site = replace(task.site, network=tmp_path / "network.json")
    limited = replace(task, spec=replace(task.spec, limits=limits), site=site)
    Sampler(directory, limited, clock=SteppedClock(), note=pytest.fail)
    assert SampleSeries.read(task.log_directory).instance == SampledInstance(
        cpus=1, memory_bytes=64 * MIB, disk_bytes=32 * MIB, network="instance"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a library that answers like NVML."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler (cc, gcc or clang)")
    target = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "nvml_stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return str(target)


def test_gpus_are_sampled_by_nvml_until_one_fails(directory: InstanceDirectory, task: SpecRecord, library: str) -> None:
    clock = SteppedClock()
    task = replace(task, devices=("GPU-0", "GPU-1"))
    sampler = Sampler(directory, task, clock=clock, note=pytest.fail, library=library)
    for _ in range(2):
        clock.now_s += 10
        sampler.sample()
    sampler.close()
    series = SampleSeries.read(task.log_directory)
    assert series.instance is not None
    assert series.instance.gpus == ("Stand-in 9000", "Stand-in 9000")
    assert series.instance.gpu_memory_bytes == (16 << 30, 16 << 30)
    before, after = series.samples
    assert before.gpus == (GpuSample(0.41, 1 << 30), GpuSample(0.41, 2 << 30))
    assert after.gpus == () and after.span_ms == 10_000, "a lost GPU ends the figures of GPUs, and of nothing else"
    assert ctypes.CDLL(library).stand_in_opened() == 0


def test_a_gpu_is_named_by_number_uuid_or_part(library: str) -> None:
    gpus = Nvml(("0", "MIG-0"), library=library)
    assert gpus.names == ("Stand-in 9000", "Part")
    first, part = gpus.read()
    assert 0.4 <= first.busy < 0.5 and first.memory_bytes == 1 << 30
    assert part == GpuSample(0.0, 3 << 30)
    gpus.close()
    with pytest.raises(NvmlUnavailable, match="nvmlDeviceGetHandleByIndex_v2 7 answered 6"):
        Nvml(("7",), library=library)


def test_without_the_driver_a_line_of_the_log_names_the_reason(directory: InstanceDirectory, task: SpecRecord) -> None:
    notes: list[str] = []
    variables = {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    assigned = replace(task, spec=replace(task.spec, variables=variables))
    Sampler(directory, assigned, clock=SteppedClock(), note=notes.append, library="libabsent-ml.so.1")
    assert len(notes) == 1
    assert "GPUs of this instance are not sampled: libabsent-ml.so.1 cannot be opened" in notes[0]
