"""Programs that AWS's SDKs send beside the user's code: ModelTrainer's drivers, and remote functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill_runtime.layout import Layout
from tidemill_runtime.sdk_drivers import is_remote_function, needed_sdk, replace_driver

TESTED = Path(sys.prefix)
AWS_DRIVER = "from distributed_drivers.mpi_utils import start_sshd_daemon\nraise SystemExit('no sshd here')\n"
RANKS = """
    import os, sys
    from mpi4py import MPI
    rank = MPI.COMM_WORLD.rank
    print(MPI.COMM_WORLD.allreduce(1), sys.argv, os.environ["COLOR"], os.getcwd() == os.environ["WHERE"])
    if os.environ["SM_HP_RATE"] == "0.5" and rank == 1:
        raise ValueError("rank one is broken")
    MPI.COMM_WORLD.barrier()
"""


def trainer(base: Path, *, driver: str = "mpi_driver.py", **variables: object) -> list[str]:
    """Write a channel as ModelTrainer sends it, and return the container entry point."""
    channel = base / "input" / "data" / "sm_drivers"
    main = channel / "sm_train.sh"
    (channel / "distributed_drivers").mkdir(parents=True)
    (channel / "distributed_drivers" / "mpi_driver.py").write_text(AWS_DRIVER)
    exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
    call = f"$(command -v python3) {channel}/distributed_drivers/{driver}"
    main.write_text(f"#!/bin/bash\nset -e\n{exports}cd {base}/code\n{call}\necho THE END\n")
    return ["/bin/bash", "-c", f"chmod +x {main} && {main}"]


@pytest.fixture
def mpi_trainer(job):
    """Return a function that runs a job of ModelTrainer with MPI, of two processes."""
    job.variables["PATH"] = f"{TESTED / 'bin'}:{os.environ['PATH']}"
    job.code("ranks.py", RANKS)
    job.own_environment()

    def run(rate: str):
        job.hyperparameters(rate=rate, name="a b")
        entrypoint = trainer(
            job.base,
            SM_ENTRY_SCRIPT="ranks.py",
            SM_HPS=json.dumps({"rate": float(rate), "name": "a b", "sizes": [1, 2], "on": True}),
            SM_DISTRIBUTED_CONFIG=json.dumps(
                {"process_count_per_node": 2, "mpi_additional_options": ["-x", "COLOR=--red --dark"]}
            ),
            WHERE=f"{job.base}/code",
        )
        return job.run("--", *entrypoint)

    return run


def test_the_mpi_driver_of_model_trainer_starts_ranks_without_ssh(mpi_trainer, job):
    result = mpi_trainer("0.25")
    text = result.stdout.decode()
    assert result.returncode == 0, text + result.stderr.decode()
    arguments = ["ranks.py", "--rate", "0.25", "--name", "a b", "--sizes", "[1, 2]", "--on", "true"]
    for rank in (0, 1):
        assert f"[1,mpirank:{rank},algo-1]<stdout>:2 {arguments} --red --dark True" in text
    assert text.endswith("THE END\n")
    assert result.stderr.count(b"model.warning") == 1
    assert not (job.base / "output" / "failure").exists()


def test_a_rank_that_fails_under_model_trainer_is_the_reason_of_the_failure(mpi_trainer, job):
    result = mpi_trainer("0.5")
    assert result.returncode == 1
    assert b"THE END" not in result.stdout
    assert "rank 1 on algo-1: ValueError: rank one is broken" in job.failure
    assert 'raise ValueError("rank one is broken")' in job.failure


def test_the_script_and_not_the_basic_driver_of_model_trainer_is_the_reason_of_a_failure(job):
    job.hyperparameters()
    job.code("train.py", "raise ValueError('a wrong value')")
    entrypoint = trainer(job.base, driver="basic_script_driver.py")
    driver = job.base / "input/data/sm_drivers/distributed_drivers/basic_script_driver.py"
    driver.write_text(
        "import pathlib, subprocess, sys\n"
        "code = subprocess.call([sys.executable, 'train.py'])\n"
        f"text = 'File \"/opt/ml/input/data/sm_drivers/common/utils.py\": CalledProcessError'\n"
        f"pathlib.Path({str(job.base / 'output/failure')!r}).write_text(text)\n"
        "sys.exit(code)\n"
    )
    job.variables["PATH"] = f"{Path(job.python).parent}:{os.environ['PATH']}"
    assert job.run("--", *entrypoint).returncode == 1
    assert "ValueError: a wrong value" in job.failure


def test_only_awss_own_driver_of_a_job_that_runs_it_is_replaced(tmp_path):
    layout = Layout(tmp_path)
    entrypoint = trainer(tmp_path, driver="basic_script_driver.py")
    driver = tmp_path / "input/data/sm_drivers/distributed_drivers/mpi_driver.py"
    replace_driver(layout, entrypoint)
    assert driver.read_text() == AWS_DRIVER
    main = tmp_path / "input/data/sm_drivers/sm_train.sh"
    main.write_text(main.read_text().replace("basic_script_driver", "mpi_driver"))
    replace_driver(layout, ["python", "train.py"])
    assert driver.read_text() == AWS_DRIVER
    driver.write_text("print('a driver of my own')\n")
    replace_driver(layout, entrypoint)
    assert driver.read_text() == "print('a driver of my own')\n"
    stored = tmp_path / "stored"
    stored.write_text(AWS_DRIVER)
    driver.unlink()
    os.link(stored, driver)
    replace_driver(layout, entrypoint)
    assert "tidemill_runtime.mpi_driver" in driver.read_text()
    assert stored.read_text() == AWS_DRIVER


def remote_function(base: Path, *options: str) -> list[str]:
    main = base / "input/data/sagemaker_remote_function_bootstrap/job_driver.sh"
    return ["/bin/bash", str(main), "--region", "x", *options]


def test_a_remote_function_needs_the_sdk_of_its_client_and_runs_as_root_by_name(job):
    job.hyperparameters()
    job.variables["USER"] = "somebody"
    entrypoint = remote_function(job.base, "--client_sagemaker_pysdk_version", "2.257.7")
    read_fd, write_fd = os.pipe()
    job.variables["TIDEMILL_NEEDS_FD"] = str(write_fd)
    os.set_inheritable(write_fd, True)
    main = Path(entrypoint[1])
    main.parent.mkdir(parents=True)
    main.write_text("echo THE FUNCTION of $(python3 -c 'import getpass; print(getpass.getuser())')\n")
    asked = subprocess.run(
        [*job.command, "--", *entrypoint], env=job.environment, pass_fds=(write_fd,), capture_output=True, check=False
    )
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        needs = json.loads(pipe.read())
    assert asked.returncode == 75 and b"THE FUNCTION" not in asked.stdout
    assert Path(needs["requirements"]).read_text() == "sagemaker==2.257.7\n"

    del job.variables["TIDEMILL_NEEDS_FD"]
    job.variables["TIDEMILL_OVERLAY"] = str(job.base)
    # The name of any other user would make the SDK call sudo.
    result = job.run("--", *entrypoint)
    assert result.returncode == 0 and result.stdout == b"THE FUNCTION of root\n", result.stderr
    assert b"model.warning" not in result.stderr


@pytest.mark.parametrize("version", ["", "2.1; os_name", "-r /etc/passwd", "2.1\nother"])
def test_a_remote_function_of_no_plain_version_needs_nothing(tmp_path, version):
    entrypoint = remote_function(tmp_path, "--client_sagemaker_pysdk_version", version)
    assert is_remote_function(Layout(tmp_path), entrypoint)
    assert needed_sdk(Layout(tmp_path), entrypoint) is None
    assert needed_sdk(Layout(tmp_path), ["python", "train.py"]) is None
