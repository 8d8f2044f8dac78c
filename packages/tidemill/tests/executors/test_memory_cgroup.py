"""The memory limit of an instance, enforced by the kernel: the machine's own control groups, of either layout."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.core.limits import InstanceLimits
from tidemill.instance.status import InstanceOutcome
from tidemill.sandbox import Launch
from tidemill.shim import cgroup
from tidemill.shim.cgroup import CgroupUnavailable
from tidemill.shim.supervision import _spawn

from .conftest import Stage

MIB = 1 << 20
NAMED = "print(next(n for n in open('/proc/self/cgroup').read().split() if '/tidemill-instance-' in n), flush=True)\n"
"""Prints the line of the script's own control group, because tests that run at the same time have theirs beside it."""
BURST = "held = bytearray(b'1') * (700 << 20); print('SURVIVED')"
WAITING = "print('HELD', flush=True); import time; time.sleep(60)"
# A child has most of the memory, and the script would end well without it.
LOSES_CHILD = (
    "import os\npid = os.fork()\nif not pid: held = bytearray(b'1') * (700 << 20); os._exit(0)\nos.waitpid(pid, 0)\n"
)


@pytest.fixture(scope="module")
def group_in() -> Callable[[list[str]], Path]:
    """Return a function that finds the control group that a script has printed; skip if there are none."""
    cgroup.delegate()  # with layout v2 this process moves into a leaf, as the service does
    try:
        _, parent = cgroup._parent()
    except CgroupUnavailable as reason:
        pytest.skip(f"no control groups: {reason}")
    return lambda lines: parent / next(line.rpartition("/")[2] for line in lines if "/tidemill-instance-" in line)


@pytest.mark.parametrize("script", [BURST, LOSES_CHILD], ids=["the-script", "a-child"])
def test_the_kernel_stops_a_burst_at_the_limit(
    any_stage: Stage, group_in: Callable[[list[str]], Path], script: str
) -> None:
    ref, ended = any_stage.run(NAMED + script, limits=InstanceLimits(memory_bytes=150 * MIB, source="ml.tiny.test"))
    lines = any_stage.lines(ref)
    assert ended.outcome is InstanceOutcome.FAILED, lines
    assert ended.failure == (
        "AlgorithmError: OutOfMemory: Process killed by SIGKILL (signal 9): the instance has a memory limit of 150 MiB"
        " (ml.tiny.test), and its peak was 150 MiB. Use less memory, or choose a larger limit or instance type"
    )
    assert "SURVIVED" not in lines
    assert any("the kernel limits the memory of this instance (control group v" in line for line in lines), lines
    assert not group_in(lines).exists()


def test_a_group_left_by_a_killed_shim_is_removed_with_the_next_instance(
    stage: Stage, group_in: Callable[[list[str]], Path]
) -> None:
    limits = InstanceLimits(memory_bytes=150 * MIB)
    ref = stage.start(NAMED + WAITING, limits=limits)
    stage.wait_for_line(ref, "HELD")
    left = group_in(stage.lines(ref))
    assert (left / "cgroup.procs").read_text().split(), "the script is not in its group"
    os.kill(int(left.name.split("-")[2]), signal.SIGKILL)
    stage.wait(ref, lambda: not stage.executor.observe(ref).running)
    _, ended = stage.run("pass", limits=limits)
    assert ended.outcome is InstanceOutcome.COMPLETED, ended.failure
    assert not left.exists()


@pytest.mark.usefixtures("group_in")
def test_a_process_that_cannot_enter_its_group_is_an_error() -> None:
    group = cgroup.Cgroup(memory_bytes=150 * MIB)
    group.remove()
    launch = Launch(argv=(sys.executable, "-c", "pass"), variables={})
    with pytest.raises(OSError, match="could not enter its control group"):
        _spawn(launch, inherit=-1, dies_with_shim=True, cpus=None, cgroup=group)


@pytest.mark.usefixtures("group_in")
def test_the_service_moves_into_a_leaf_of_its_group(tmp_path: Path) -> None:
    layout, parent = cgroup._parent()
    if layout == 1:
        pytest.skip("groups of layout v1 need no leaf")
    own = parent / f"service-of-test-{os.getpid()}"
    own.mkdir()
    service = subprocess.Popen(
        [sys.executable, "-m", "tidemill.cli", "up", "--foreground", "--state-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: _enter(own),
    )
    try:
        assert service.stdout is not None
        assert any("service.started" in line for line in service.stdout)
        assert Path(f"/proc/{service.pid}/cgroup").read_text().endswith(f"/{own.name}/tidemill-service\n")
        assert "memory" in (own / "cgroup.subtree_control").read_text().split()
    finally:
        service.terminate()
        service.communicate()
        (own / "tidemill-service").rmdir()
        own.rmdir()


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


MEASURED = """
import contextlib, subprocess, sys, time
from pathlib import Path
from tidemill.core.limits import InstanceLimits
from tidemill.instance.directory import InstanceDirectory
from tidemill.shim import limits
from tidemill.shim.cgroup import CgroupUnavailable

def unavailable(**_):
    raise CgroupUnavailable("the test has none")

limits.Cgroup = unavailable
for limit_mib, script in ((190, sys.argv[2]), (100, sys.argv[3])):
    directory = InstanceDirectory(Path(sys.argv[1]))
    watch = limits.LimitWatch(InstanceLimits(memory_bytes=limit_mib << 20, source="settings"), directory, print)
    with watch.watching():
        subprocess.run([sys.executable, "-c", script])
    print(limit_mib, watch.failure)
"""
# Two processes that have 90 MiB each, of which 60 MiB are shared: 120 MiB in all. Measurements find both within 1.25 s.
SHARING = (
    "import mmap, os, time\n"
    "shared = mmap.mmap(-1, 60 << 20); shared[:] = bytes([1]) * (60 << 20)\n"
    "pid = os.fork()\n"
    "sum(shared[::4096]); own = bytearray(b'1') * (30 << 20)\n"
    "time.sleep({seconds})\n"
    "if pid: os.waitpid(pid, 0)\n"
)


def test_memory_is_measured_without_control_groups(tmp_path: Path) -> None:
    scripts = [SHARING.format(seconds=seconds) for seconds in (2, 60)]
    argv = [sys.executable, "-c", MEASURED, str(tmp_path), *scripts]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    note = "tidemill: the memory of this instance is measured four times a second: the test has none"
    assert lines[:3] == [note, "190 None", note], lines
    assert "the instance has a memory limit of 100 MiB (settings), and its peak was 1" in lines[3]
