"""Signals, the control pipe, and processes left behind."""

import contextlib
import os
import select
import signal
import subprocess

import pytest

CHILD = r"""
    import os, signal, time
    def leave(number, frame):
        os.write(1, b"child got it\n")
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    os.write(1, b"child %d\n" % os.getpid())
    while True:
        time.sleep(1)
"""

FAMILY = r"""
    import os, signal, subprocess, sys, time
    def stop(number, frame):
        child.wait()
        os.write(1, b"script got it\n")
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    os.write(1, b"script %d\n" % os.getpid())
    child = subprocess.Popen([sys.executable, "child.py"])
    while True:
        time.sleep(1)
"""


def read_lines(process, number):
    return [process.stdout.readline() for _ in range(number)]


def has_ended(pid_fd):
    """Wait for the end of a process that is not a child of this one."""
    ready, _, _ = select.select([pid_fd], [], [], 60)
    return bool(ready)


@pytest.fixture
def family(job):
    """Yield a running job whose script has a child, its control pipe, and descriptors of both processes."""
    job.script(FAMILY)
    job.code("child.py", CHILD)
    read_fd, write_fd = os.pipe()
    os.set_inheritable(read_fd, True)
    job.variables["TIDEMILL_CONTROL_FD"] = str(read_fd)
    process = job.start(pass_fds=[read_fd])
    os.close(read_fd)
    lines = dict(line.split() for line in read_lines(process, 2))
    pids = [int(lines[b"script"]), int(lines[b"child"])]
    control = [write_fd]
    pid_fds = [os.pidfd_open(pid) for pid in pids]
    yield process, control, pid_fds
    process.kill()
    for fd in pid_fds:  # without a pid namespace, a grandchild may outlive a killed runtime
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    for fd in (*control, *pid_fds):
        os.close(fd)
    process.communicate()


def test_a_stop_request_reaches_the_script_and_its_children(family):
    process, control, _ = family
    os.write(control[0], b"T")
    assert read_lines(process, 2) == [b"child got it\n", b"script got it\n"]
    assert process.wait(timeout=60) == 0


def test_sigterm_to_the_runtime_is_passed_on(family):
    process, _, _ = family
    process.send_signal(signal.SIGTERM)
    assert read_lines(process, 2) == [b"child got it\n", b"script got it\n"]
    assert process.wait(timeout=60) == 0


def test_all_processes_end_with_the_shim(family):
    process, control, pid_fds = family
    os.close(control.pop())
    assert process.wait(timeout=60) == 1
    assert all(has_ended(fd) for fd in pid_fds)


def test_the_script_dies_with_the_runtime(family):
    process, _, pid_fds = family
    process.kill()
    process.wait()
    assert has_ended(pid_fds[0])


def test_background_processes_of_a_script_end_with_it(job):
    job.code("sleeper.py", r"import os, time; os.write(1, b'%d\n' % os.getpid()); time.sleep(600)")
    job.script("""
        import os, subprocess, sys
        sleeper = [sys.executable, "sleeper.py"]
        subprocess.Popen(sleeper)
        subprocess.Popen(sleeper, start_new_session=True)
        open(os.environ["TEST_GO"]).read()
    """)
    go = job.base / "go"
    os.mkfifo(go)
    job.variables["TEST_GO"] = str(go)
    process = job.start()
    pid_fds = [os.pidfd_open(int(line)) for line in read_lines(process, 2)]
    go.write_text("go")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(has_ended(fd) for fd in pid_fds)
    for fd in pid_fds:
        os.close(fd)


def test_a_stop_before_the_start_starts_nothing(job):
    job.script("print('ran')")
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"T")
    job.variables["TIDEMILL_CONTROL_FD"] = str(read_fd)
    with contextlib.closing(os.fdopen(write_fd, "wb")):
        result = subprocess.run(
            job.command, env=job.environment, cwd=job.base, pass_fds=[read_fd], capture_output=True, check=False
        )
    os.close(read_fd)
    assert (result.returncode, result.stdout) == (1, b"")
    assert "stopped before its script was started" in job.failure


def test_the_script_has_its_own_session_and_no_descriptor_of_the_runtime(job):
    job.script("import os; print(os.getsid(0) == os.getpgid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd')))")
    read_fd, write_fd = os.pipe()
    job.variables["TIDEMILL_CONTROL_FD"] = str(read_fd)
    result = subprocess.run(
        job.command, env=job.environment, cwd=job.base, pass_fds=[read_fd], capture_output=True, check=False
    )
    os.close(read_fd)
    os.close(write_fd)
    assert result.stdout == b"True ['0', '1', '2', '3']\n"  # 3 is the directory being listed


def test_orphans_are_reaped_while_the_script_runs(job):
    job.script("""
        import os, sys
        runtime = os.getppid()
        read_fd, write_fd = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.read(read_fd, 1)  # until our parent is gone
                os._exit(0)
            os._exit(0)
        os.wait()
        with open(f"/proc/{runtime}/task/{runtime}/children") as file:
            orphan = next(int(pid) for pid in file.read().split() if int(pid) != os.getpid())
        pid_fd = os.pidfd_open(orphan)
        os.write(write_fd, b"x")
        import select
        select.select([pid_fd], [], [])
        while os.path.exists(f"/proc/{orphan}"):
            os.sched_yield()
        print("reaped")
    """)
    assert job.run().stdout == b"reaped\n"
