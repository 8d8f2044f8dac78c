"""Measure what the samples of an instance's resources cost: processor time of the shim, per sample and of one core.

    .venv/bin/python benchmarks/resource_samples.py --samples 200 --processes 4

Below this process run as many processes as asked for, each with as many threads as TensorFlow has. The sampler of the
shim takes samples of them without a pause; its CPU time, divided by the ten seconds between two samples, is the part of
a core. The files of the instance are measured as often as in a job of that length.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import Site, SpecRecord
from tidemill.instance.samples import SAMPLED_EVERY_MS, SAMPLES_FILE
from tidemill.instance.spec import InstanceSpec
from tidemill.shim.sampling import Sampler

_PROCESS = """
import sys, threading
for _ in range(60):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


class SampledClock(SystemClock):
    """A clock of which ten seconds pass with each sample, on top of the real time."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_ms / 1000


def main() -> None:
    """Print the cost of the samples and the size of their file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--files", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        directory, task = _instance(Path(root), files=asked.files)
        for _ in range(asked.processes):
            _start(stack)
        clock = SampledClock()
        sampler = Sampler(directory, task, clock=clock, note=print)
        begun_s = time.process_time()
        for _ in range(asked.samples):
            clock.passed_ms += SAMPLED_EVERY_MS
            sampler.sample()
        each_ms = (time.process_time() - begun_s) / asked.samples * 1000
        size = (task.log_directory / SAMPLES_FILE).stat().st_size
    processes = sum(path.name.isdigit() for path in Path("/proc").iterdir())
    print(f"{asked.processes} processes of the instance, {processes} of the machine, {asked.files} files")
    print(f"a sample takes {each_ms:.2f} ms of CPU: {each_ms / SAMPLED_EVERY_MS:.4%} of a core (limit: 0.1 %)")
    print(f"{asked.samples} samples take {size / 1024:.0f} KiB")


def _instance(root: Path, *, files: int) -> tuple[InstanceDirectory, SpecRecord]:
    directory = InstanceDirectory(root / "jobs/ab/algo-1")
    (root / "logs").mkdir()
    for each in (directory.ml / "model", directory.home, directory.tmp):
        each.mkdir(parents=True)
    for number in range(files):
        (directory.ml / "model" / str(number)).write_bytes(b"x")
    spec = InstanceSpec(
        ref=InstanceRef("ab", 0),
        kind="training",
        job_name="job",
        hosts=("algo-1",),
        framework_version="2.21",
        log=StreamName("group", "stream"),
    )
    site = Site(state_dir=root, environments_dir=root, backend="plain")
    return directory, SpecRecord(spec=spec, channels=(), log_directory=root / "logs", site=site)


def _start(stack: contextlib.ExitStack) -> None:
    command = [sys.executable, "-c", _PROCESS]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    process.stdout.readline()


if __name__ == "__main__":
    main()
