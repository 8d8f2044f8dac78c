"""Limits of instances, with processes that exceed them."""

import os
import re
from dataclasses import replace

import pytest

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.limits import InstanceLimits
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceOutcome
from tidemill.shim.limits import chosen_cpus

MIB = 1 << 20
# Two processes that have 90 MiB each, of which 60 MiB are shared: 120 MiB in all. Measurements find both within 1.25 s.
SHARING = (
    "import mmap, os, signal, time\n"
    "shared = mmap.mmap(-1, 60 << 20); shared[:] = bytes([1]) * (60 << 20)\n"
    "pid = os.fork()\n"
    "sum(shared[::4096]); own = bytearray(b'1') * (30 << 20)\n"
    "time.sleep({seconds})\n"
    "if pid: os.kill(pid, signal.SIGKILL); print('PASSED', flush=True)\n"
)


def test_a_job_over_its_memory_limit_is_killed_with_limit_and_peak_in_the_reason(any_stage):
    ref, ended = any_stage.run(
        "import time\nheld = []\nwhile True: held.append(bytearray(b'1') * (10 << 20)); time.sleep(0.05)\n",
        limits=InstanceLimits(memory_bytes=150 * MIB, source="ml.tiny.test"),
    )
    assert ended.outcome is InstanceOutcome.FAILED
    head = (
        "AlgorithmError: OutOfMemory: Process killed by SIGKILL (signal 9): the instance has a memory limit of 150 MiB"
    )
    assert ended.failure.startswith(f"{head} (ml.tiny.test), and its peak was "), ended.failure
    peak_mib = int(ended.failure.partition("its peak was ")[2].split()[0])
    assert 150 <= peak_mib < 1000
    ref, ended = any_stage.run("print('the next job works')")
    assert ended.outcome is InstanceOutcome.COMPLETED, any_stage.lines(ref)


def test_memory_is_that_of_all_processes_and_shared_memory_counts_once(stage):
    ref, ended = stage.run(SHARING.format(seconds=2), limits=InstanceLimits(memory_bytes=190 * MIB))
    assert ended.outcome is InstanceOutcome.COMPLETED, ended.failure
    assert "PASSED" in stage.lines(ref)
    _, ended = stage.run(SHARING.format(seconds=60), limits=InstanceLimits(memory_bytes=100 * MIB))
    assert "OutOfMemory" in ended.failure


def test_a_job_with_too_many_processes_is_killed(stage):
    script = "import os, time\nfor _ in range(40):\n    if not os.fork(): time.sleep(60); os._exit(0)\ntime.sleep(60)\n"
    _, ended = stage.run(script, limits=InstanceLimits(processes=20, source="settings"))
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("AlgorithmError: TooManyProcesses: the instance was killed with "), ended.failure
    assert ended.failure.endswith("processes; its limit is 20 (settings)")


def test_a_job_with_too_large_files_is_killed_and_links_to_data_do_not_count(stage):
    channel = stage.channel("training", x=os.urandom(8 * MIB))
    script = "import time; open('/opt/ml/output/data/x', 'wb').write(bytes([1]) * ({} << 20)); time.sleep({})"
    limits = InstanceLimits(disk_bytes=6 * MIB, source="settings")
    _, ended = stage.run(script.format(4, 0), limits=limits, channels=(channel,))
    assert ended.outcome is InstanceOutcome.COMPLETED, ended.failure
    _, ended = stage.run(script.format(9, 60), limits=limits)
    assert TOO_LARGE.match(ended.failure), ended.failure


TOO_LARGE = re.compile(
    r"ClientError: no space left on device: the files of the instance take \d+ MiB; their limit is 6 MiB \(settings\)"
)
ENDINGS = {
    "just before its end": "open('/opt/ml/output/data/x', 'wb').write(bytes(9 << 20))",
    "to a deleted file": (
        "import os, time\nfile = open('/tmp/x', 'wb', buffering=0); os.unlink('/tmp/x')\n"
        "file.write(bytes(9 << 20)); time.sleep(60)"
    ),
    "to a deleted file of a channel": (
        "import os, time\nplace = '/opt/ml/input/data/training/x'\n"
        "file = open(place, 'ab', buffering=0); os.unlink(place)\n"
        "file.write(bytes(9 << 20)); time.sleep(60)"
    ),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_job_that_writes_too_much_is_killed(stage, how):
    channel = stage.channel("training", x=b"x")
    limits = InstanceLimits(disk_bytes=6 * MIB, source="settings")
    _, ended = stage.run(ENDINGS[how], limits=limits, channels=(channel,))
    assert TOO_LARGE.match(ended.failure), ended.failure


def test_a_job_with_too_many_empty_files_is_killed(stage):
    if not os.statvfs(stage.state_dir).f_files:
        pytest.skip("this file system has no limit of inodes")
    script = (
        "import os, time\nos.chdir('/opt/ml/model')\nfor n in range(12000): open(str(n), 'w').close()\ntime.sleep(60)"
    )
    limits = InstanceLimits(disk_bytes=6 * MIB, source="settings")
    _, ended = stage.run(script, limits=limits)
    assert ended.failure.startswith("ClientError: no space left on device: the instance has 1"), ended.failure
    assert "files and directories; its share of the file system is 10,000 (settings)" in ended.failure


def test_a_job_that_installs_packages_first_is_limited_too(stage):
    script = "import time; held = bytearray(b'1') * (300 << 20); time.sleep(60)"
    config = {"hyperparameters": {"script": script, "requirements": "one==1"}}
    _, ended = stage.run(config=config, limits=InstanceLimits(memory_bytes=150 * MIB))
    assert "OutOfMemory" in ended.failure


def test_instances_of_a_job_run_on_different_processors():
    processors = sorted(os.sched_getaffinity(0))
    spec = InstanceSpec(
        ref=InstanceRef("ff", 0),
        kind="training",
        job_name="job",
        hosts=("algo-1", "algo-2"),
        framework_version="2.21",
        log=StreamName("jobs", "job"),
        limits=InstanceLimits(cpus=1),
    )
    chosen = [chosen_cpus(replace(spec, ref=InstanceRef("ff", index))) for index in range(len(processors))]
    if len(processors) == 1:
        assert chosen == [None]
    else:
        assert sorted(each for one in chosen for each in one) == processors


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor cannot be limited")
def test_a_job_runs_on_as_many_processors_as_it_may(stage):
    ref, _ = stage.run("import os; print('CPUS', len(os.sched_getaffinity(0)))", limits=InstanceLimits(cpus=1))
    assert "CPUS 1" in stage.lines(ref)
    ref, _ = stage.run("import os; print('CPUS', len(os.sched_getaffinity(0)))", limits=InstanceLimits(cpus=999))
    assert f"CPUS {len(os.sched_getaffinity(0))}" in stage.lines(ref)
