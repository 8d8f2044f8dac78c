"""Jobs started by the library's launcher, and the same script by mpirun and without a launcher."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mpi
import smdistributed.modelparallel.tensorflow as smp
from polling import poll
from ports import reserved_port

pytestmark = pytest.mark.smp_saved

LAUNCH = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run"]
SCRIPTS = Path(__file__).parent / "jobs"
DEADLINE_S = 300


def launch(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=DEADLINE_S, check=False)


def started(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # a process that ends between open and read is ESRCH, not ENOENT
        return False


def wait_for_exit(processes: list[int]) -> None:
    poll(lambda: not any(map(is_alive, processes)), lambda: f"orphans: {[one for one in processes if is_alive(one)]}")


def places(text: str) -> set[str]:
    # mpirun may join simultaneous output of two ranks on one line.
    return set(re.findall(r"place \d/\d mp \d dp \d gathered \[[\d, ]+\]", text))


TWO = {"place 0/2 mp 0 dp 0 gathered [0, 1]", "place 1/2 mp 1 dp 0 gathered [0, 1]"}
FOUR = {
    "place 0/4 mp 0 dp 0 gathered [0, 1, 2, 3]",
    "place 1/4 mp 1 dp 0 gathered [0, 1, 2, 3]",
    "place 2/4 mp 0 dp 1 gathered [0, 1, 2, 3]",
    "place 3/4 mp 1 dp 1 gathered [0, 1, 2, 3]",
}


@pytest.mark.parametrize(("count", "expected"), [pytest.param("2", TWO, marks=pytest.mark.matrix), ("4", FOUR)])
def test_the_launcher_runs_a_script(count, expected):
    done = launch(*LAUNCH, "-n", count, str(SCRIPTS / "place.py"), "--partitions", "2")
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == expected


def mpi_jobs():
    """Return the jobs: each MPI, runner and number of ranks once in every run, and all combinations in the matrix."""
    often = (("openmpi", "2", ("-m", "mpi4py")), ("mpich", "2", ()))
    for count, expected in (("2", TWO), ("4", FOUR)):
        for kind in mpi.KINDS:
            for runner in ((), ("-m", "mpi4py")):
                marks = [pytest.mark.smp_first] if (kind, count, runner) in often else [pytest.mark.matrix]
                yield pytest.param(count, expected, runner, kind, marks=marks, id=" ".join([kind, count, *runner[1:]]))


@pytest.mark.parametrize(("count", "expected", "runner", "kind"), list(mpi_jobs()))
def test_mpirun_runs_the_same_script(count, expected, runner, kind):
    job = [*mpi.launch(kind, count), sys.executable, *runner, str(SCRIPTS / "place.py"), "--partitions", "2"]
    done = launch(*job)
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == expected


@pytest.mark.parametrize("kind", ["openmpi", pytest.param("mpich", marks=pytest.mark.matrix)])
def test_mpirun_needs_no_mpi4py(tmp_path, kind):
    """The test simulates a missing mpi4py by a module that cannot be imported."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('not for this test')")
    job = [*mpi.launch(kind, 2), sys.executable, str(SCRIPTS / "place.py"), "--partitions", "2"]
    done = launch(*job, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == TWO


MISMATCHES = [
    ("openmpi", "mpich", ("-m", "mpi4py"), r"the mpirun of Open MPI started this process, but mpi4py loads MPICH"),
    ("mpich", "openmpi", (), r"the mpirun of MPICH started this process, but mpi4py loads Open MPI v\d"),
]


@pytest.mark.parametrize(("kind", "loaded", "runner", "words"), MISMATCHES)
def test_ranks_connect_without_an_mpi4py_that_loads_another_mpi(kind, loaded, runner, words):
    job = [*mpi.launch(kind, 2), sys.executable, *runner, str(SCRIPTS / "place.py"), "--partitions", "2"]
    done = launch(*job, **mpi.loading(loaded))
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == TWO
    assert len(re.findall("smp: ranks meet without mpi4py: " + words, done.stderr)) == 1, done.stderr
    assert "have mpi4py load" in done.stderr


def test_a_failing_rank_ends_the_job_where_mpi4py_loads_another_mpi():
    job = [*mpi.launch("openmpi", 2), sys.executable, "-m", "mpi4py", str(SCRIPTS / "die.py"), "raise"]
    done = launch(*job, **mpi.loading("mpich"))
    assert done.returncode not in (0, 16), done.stderr  # 16: MPICH aborts because it was initialized
    assert "ValueError: raise" in done.stderr, done.stderr


def test_a_script_runs_alone():
    done = launch(sys.executable, str(SCRIPTS / "place.py"), "--partitions", "1")
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == {"place 0/1 mp 0 dp 0 gathered [0]"}


def test_one_process_with_two_partitions_gets_an_error_with_the_number_of_ranks():
    done = launch(sys.executable, str(SCRIPTS / "place.py"), "--partitions", "2")
    assert done.returncode == 1
    assert "there are 1 ranks and 'partitions' is 2" in done.stderr


@pytest.mark.smp_first
def test_the_job_ends_with_the_code_of_the_rank_that_was_killed():
    done = launch(*LAUNCH, "-n", "3", "--prefix", str(SCRIPTS / "die.py"), "kill")
    assert done.returncode == 128 + signal.SIGKILL
    assert re.search(r"smp.run: rank 1 was killed by signal 9 \(SIGKILL\), so the job was ended", done.stderr)
    for rank in (0, 2):
        assert re.search(rf"\[{rank}\] .*SMPPeerLostError: rank 1 \(partition 1\) died", done.stderr)


@pytest.mark.parametrize(("how", "code"), [("exit", 3), pytest.param("raise", 1, marks=pytest.mark.matrix)])
def test_the_job_ends_with_the_code_of_the_rank_that_failed_by_itself(how, code):
    done = launch(*LAUNCH, "-n", "2", str(SCRIPTS / "die.py"), how)
    assert done.returncode == code
    assert f"smp.run: rank 1 ended with exit code {code}" in done.stderr


def test_a_rank_that_does_not_notice_is_ended():
    with started(*LAUNCH, "-n", "2", str(SCRIPTS / "die.py"), "deaf") as job:
        assert job.stdout is not None
        processes = [int(job.stdout.readline().split()[1]) for _ in range(2)]
        os.kill(processes[0], signal.SIGKILL)
        assert job.wait(DEADLINE_S) == 128 + signal.SIGKILL
        wait_for_exit(processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all_ranks(number):
    with started(*LAUNCH, "-n", "2", str(SCRIPTS / "die.py"), "wait") as job:
        assert job.stdout is not None
        processes = [int(job.stdout.readline().split()[1]) for _ in range(2)]
        job.send_signal(number)
        assert job.wait(DEADLINE_S) == 128 + number
        wait_for_exit(processes)


@pytest.mark.smp_first
def test_ranks_die_with_a_launcher_that_is_killed():
    with started(*LAUNCH, "-n", "2", str(SCRIPTS / "die.py"), "wait") as job:
        assert job.stdout is not None
        processes = [int(job.stdout.readline().split()[1]) for _ in range(2)]
        job.kill()
        wait_for_exit(processes)


def test_lines_of_ranks_are_not_mixed():
    done = launch(*LAUNCH, "-n", "4", "-c", "import sys; [print('x' * 5000, i) for i in range(200)]")
    if done.returncode == 2:
        pytest.fail(done.stderr)
    lines = done.stdout.splitlines()
    assert len(lines) == 800
    assert all(re.fullmatch(r"x{5000} \d+", line) for line in lines)


def test_launchers_on_several_machines_start_one_job():
    with reserved_port() as free:
        port = str(free.getsockname()[1])
        job = ["--hosts", "127.0.0.1,127.0.0.2", "--port", port, "--encrypt", "--prefix", str(SCRIPTS / "place.py")]
        variables = {**os.environ, "SMP_SECRET": "5e" * 32, "SMP_SOCKETS": "tcp", "TF_CPP_MIN_LOG_LEVEL": "3"}
        launchers = [
            subprocess.Popen(
                [*LAUNCH, "-n", "2", "--host-index", index, *job, "--partitions", "2"],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in ("0", "1")
        ]
        outputs = [launcher.communicate(timeout=DEADLINE_S) for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
    first, second = (places(out) for out, _ in outputs)
    assert first | second == FOUR
    assert {place.split()[1] for place in first} == {"0/4", "1/4"}
    assert "[3] " in outputs[1][0]


@pytest.mark.parametrize(
    ("words", "variables", "text"),
    [
        (["--hosts", "127.0.0.1,127.0.0.2"], {}, "SMP_SECRET has 0 characters"),
        (["--hosts", "127.0.0.1,"], {}, "allowed are different addresses, separated by commas"),
        (["--hosts", "127.0.0.1,127.0.0.1"], {}, "allowed are different addresses, separated by commas"),
        (
            ["--hosts", "192.0.2.1"],
            {"SMP_SECRET": "ab" * 32},
            "none of --hosts 192.0.2.1 is an address of",
        ),
        (["--hosts", "127.0.0.1", "--host-index", "1"], {}, "--host-index is 1; allowed is an int from 0 to 0"),
        (["--hosts", "127.0.0.1", "--port", "0"], {}, "--port is 0; allowed is an int from 1 to 65535"),
        (["--encrypt"], {}, "name them by --hosts"),
    ],
)
def test_options_for_several_machines_that_do_not_fit_are_refused(words, variables, text):
    done = launch(*LAUNCH, "-n", "1", *words, "nothing.py", **{"SMP_SECRET": "", **variables})
    assert done.returncode == 2
    assert text in done.stderr


def test_the_launcher_refuses_encryption_without_its_package():
    code = (
        "import sys; sys.modules['cryptography'] = None; "
        "from smdistributed.modelparallel.tensorflow.run import main; "
        "main(['-n', '1', '--hosts', '127.0.0.1', '--encrypt', 'nothing.py'])"
    )
    done = launch(sys.executable, "-c", code, SMP_SECRET="5e" * 32)
    assert done.returncode == 2
    assert "--encrypt cannot be used: encryption needs the package cryptography" in done.stderr


def test_the_launcher_explains_its_arguments():
    assert "there is no script to run" in launch(*LAUNCH, "-n", "2").stderr
    assert "-n is 0; allowed is an int >= 1" in launch(*LAUNCH, "-n", "0", "script.py").stderr


def test_the_launcher_does_not_wait_for_tensorflow():
    code = (
        "import sys; import smdistributed.modelparallel.tensorflow.run; "
        "import smdistributed.modelparallel.tensorflow; print('tensorflow' in sys.modules)"
    )
    done = launch(sys.executable, "-c", code)
    assert done.stdout == "False\n", done.stderr
    assert smp.step.__name__ == "step" and smp.utils.__name__ == f"{smp.__name__}.utils", "they come when they are used"
    assert "step" in dir(smp) and not hasattr(smp, "nothing")
