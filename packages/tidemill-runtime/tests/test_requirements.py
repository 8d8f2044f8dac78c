"""requirements.txt: the exchange between runtime and shim, without a network."""

import json
import os
import subprocess
import tempfile
import zipfile

import pytest

from tidemill_runtime.code import EntryPoint
from tidemill_runtime.requirements import needed_by


def wheel(directory, *, version="1.0"):
    """Write a tiny package that is installed without a build."""
    info = f"tiny_tide-{version}.dist-info"
    path = directory / f"tiny_tide-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny_tide.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-tide\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path.name


def needs(job):
    """Run the job as the shim does. Return its end, and its first message about needed packages."""
    read_fd, write_fd = os.pipe()
    job.variables["TIDEMILL_NEEDS_FD"] = str(write_fd)
    try:
        done = subprocess.run(
            job.command, env=job.environment, cwd=job.base, pass_fds=(write_fd,), capture_output=True, timeout=120
        )
    finally:
        os.close(write_fd)
        del job.variables["TIDEMILL_NEEDS_FD"]
    with os.fdopen(read_fd, "rb") as pipe:
        message, _ = json.JSONDecoder().raw_decode(pipe.read().decode())
    return done, message.get("requirements")


def install(job):
    """Do what the shim does when packages are needed."""
    own = job.own_environment()
    done, requirements = needs(job)
    assert done.returncode == 75
    job.variables["TIDEMILL_OVERLAY"] = str(own)
    command = [job.python, "-m", "tidemill_runtime", "install", str(own), requirements]
    return subprocess.run(command, env=job.environment, cwd=job.base, capture_output=True, timeout=120, check=False)


@pytest.fixture
def offline(job):
    job.variables["PIP_NO_INDEX"] = "1"
    return job


def test_requirements_are_installed_into_an_overlay_and_the_script_sees_both(offline):
    job = offline
    job.script("import tiny_tide, pip, sys; print(tiny_tide.VERSION, pip.__file__, sys.prefix)")
    job.code("requirements.txt", f"./{wheel(job.base / 'code')}\npip  # the base has it\n")
    done = install(job)
    assert done.returncode == 0, done.stderr
    assert b"Requirement already satisfied: pip" in done.stdout

    result = job.run()
    assert result.returncode == 0, result.stderr
    version, pip_file, prefix = result.stdout.decode().split()
    assert version == "1.0"
    assert prefix == str(job.base / ".tidemill/environment")
    assert not pip_file.startswith(prefix)


def test_an_overlay_reports_exceptions_too(offline):
    job = offline
    job.script("raise KeyError('x')")
    job.code("requirements.txt", "pip\n")
    assert install(job).returncode == 0
    assert job.run().returncode == 1
    assert list((job.base / ".tidemill" / "reports").glob("*.json"))


def test_a_package_that_cannot_be_installed_is_the_failure(offline):
    job = offline
    job.script("pass")
    job.code("requirements.txt", "no-such-tide-package==9\n")
    assert install(job).returncode == 1
    head, code, *rest = job.failure.splitlines()
    assert (head, code) == ("InstallRequirementsError:", "ExitCode 1")
    assert "no-such-tide-package==9" in "\n".join(rest)
    assert "pip install" in rest[-1]


def test_a_package_with_setup_py_is_installed_and_run_as_module(offline):
    job = offline
    job.script("import pkg_of_mine, sys; print(__name__, pkg_of_mine.__file__, sys.argv[1:])")
    job.hyperparameters(epochs="3")
    job.code("setup.py", "from setuptools import setup; setup(name='pkg', version='1', py_modules=['pkg_of_mine'])")
    job.code("pkg_of_mine.py", "")
    done = install(job)
    assert done.returncode == 0, done.stderr
    assert next((job.base / ".tidemill/environment").rglob("site-packages/pkg_of_mine.py"))
    result = job.run()
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode().startswith("__main__ ")
    assert result.stdout.decode().endswith("['--epochs', '3']\n")


def test_a_broken_setup_py_is_an_install_module_error(offline):
    job = offline
    job.script("pass")
    job.code("setup.py", "raise RuntimeError('cannot be built')")
    assert install(job).returncode == 1
    assert job.failure.startswith("InstallModuleError:\nExitCode 1\n")


@pytest.mark.parametrize("command", [(), ("--", "sh", "run.sh")])
def test_shell_entry_points_and_container_commands_have_the_jobs_own_environment(job, command):
    own = job.own_environment()
    job.hyperparameters(sagemaker_program="run.sh")
    job.code("run.sh", "python -c 'import sys; print(sys.prefix)'\necho $TIDEMILL_ENVIRONMENT")
    done = job.run(*command)
    assert done.stdout.decode().split() == [str(own)], done.stderr


def test_a_shell_command_gets_no_requirements(job):
    job.hyperparameters(sagemaker_program="run.sh")
    job.code("run.sh", "#!/bin/sh\necho ran\n")
    job.code("requirements.txt", "no-such-tide-package\n")
    assert job.run().stdout == b"ran\n"


def test_the_only_message_is_written_before_user_code_runs_whatever_its_exit_status(job):
    job.script(
        "import os\nopen('ran', 'w').close()\nassert 'TIDEMILL_NEEDS_FD' not in os.environ\nraise SystemExit(75)\n"
    )
    done, requirements = needs(job)
    assert (job.base / "code/ran").exists()
    assert requirements is None
    assert done.returncode == 1


def test_variables_of_the_job_do_not_run_code_in_the_runtime(job):
    job.script("import marker; print('PATH OF', marker.__name__)")
    job.code("marker.py", "")
    other = job.base / "other"
    other.mkdir()
    mark = f"import os; os.close(os.open({str(other / 'ran')!r} + str(os.getpid()), os.O_CREAT))"
    (other / "sitecustomize.py").write_text(mark)
    variables = {**job.environment, "PYTHONPATH": str(other), "MINE": "m\u00fcnz \udcff"}
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(variables).encode())
        file.seek(0)
        with subprocess.Popen(
            [job.python, "-I", "-u", "-m", "tidemill_runtime", "train"],
            env={"TIDEMILL_VARIABLES_FD": str(file.fileno())},
            pass_fds=(file.fileno(),),
            cwd=job.base,
            stdout=subprocess.PIPE,
        ) as process:
            out = process.stdout.read()
            process.wait(60)
    assert out == b"PATH OF marker\n"
    ran = [int(path.name[3:]) for path in other.glob("ran*")]
    assert len(ran) == 1, "in the script, and not in the runtime"
    assert process.pid not in ran


@pytest.mark.parametrize("text", ["", "\n  \n# nothing\n"])
def test_an_empty_file_needs_nothing(tmp_path, text):
    (tmp_path / "requirements.txt").write_text(text)
    assert needed_by(EntryPoint("train.py", "script", tmp_path)) is None
