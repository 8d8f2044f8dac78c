"""A script and a parameter server: which process waits for which, and which end is reported."""

import json
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager

import pytest

from polling import poll
from tidemill_runtime import failure
from tidemill_runtime.launchers import parameter_server
from tidemill_runtime.launchers.parameter_server import ClusterMember, Master
from tidemill_runtime.process import ColdChild

ENDLESS = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr(parameter_server, "POLL_S", 0.01)
    monkeypatch.setattr(parameter_server, "GRACE_S", 0.2)


@pytest.fixture
def child(tmp_path):
    children = []

    def start(source):
        with (tmp_path / "stderr").open("ab") as stderr:
            command = (sys.executable, "-c", source)
            children.append(
                ColdChild(command, directory=tmp_path, variables=dict(os.environ), stderr_fd=stderr.fileno())
            )
        return children[-1]

    yield start
    for each in children:
        each.signal_group(signal.SIGKILL)
        await_end(each)


@pytest.fixture
def member(tmp_path, child):
    def make(script, *, server=ENDLESS, address=None, shared=True):
        variables = {"TIDEMILL_JOB_DIRECTORY": str(tmp_path)} if shared else {}
        made = ClusterMember(
            child(script),
            child(server),
            name="algo-2 (ps/1)",
            master=Master(address, variables) if address else None,
            ended_file=tmp_path / "master-ended" if shared else None,
            reports=tmp_path,
        )
        made.server = made._server
        return made

    return make


@contextmanager
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, f"127.0.0.1:{listening.getsockname()[1]}"


def await_end(member):
    poll(lambda: member.exit_code() is not None)
    return member.exit_code()


def look_for(member, seconds=0.3):
    """Poll the member repeatedly, as the supervisor does, while nothing happens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert member.exit_code() is None
        time.sleep(0.01)


@pytest.mark.parametrize("code", [0, 3])
def test_the_master_ends_with_its_script_and_records_its_success(member, tmp_path, code):
    assert await_end(member(f"import sys; sys.exit({code})")) == code
    assert (tmp_path / "master-ended").exists() == (code == 0)


def test_a_worker_that_is_done_serves_until_the_server_of_the_master_closes(member):
    with listener() as (listening, address):
        worker = member("pass", address=address, shared=False)
        look_for(worker)
        listening.close()
        assert await_end(worker) == 0


def test_a_worker_that_never_saw_the_master_reads_its_end_from_a_file(member, tmp_path):
    with listener() as (listening, address):
        listening.close()
        worker = member("pass", address=address)
        look_for(worker)  # the master may start later
        (tmp_path / "master-ended").touch()
        assert await_end(worker) == 0


@pytest.mark.parametrize("setting", ["pass", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_script_that_only_serves_is_ended_after_the_master_and_has_succeeded(member, tmp_path, setting, capfd):
    with listener() as (_, address):
        worker = member(f"{setting}\n{ENDLESS}", address=address)
        look_for(worker)
        (tmp_path / "master-ended").touch()
        assert await_end(worker) == 0
    assert "tidemill: script.left exit_code=-" in capfd.readouterr().err


def test_a_worker_that_fails_before_the_master_ends_has_failed(member):
    with listener() as (_, address):
        assert await_end(member("raise SystemExit(4)", address=address)) == 4


def test_a_worker_that_fails_because_the_master_ended_is_not_the_reason(member, tmp_path):
    with listener() as (listening, address):
        fails = "import os, time\nwhile not os.path.exists('fail'): time.sleep(0.01)\nraise SystemExit(4)"
        worker = member(fails, address=address)
        assert worker.exit_code() is None  # the master has been reached
        listening.close()
        (tmp_path / "fail").touch()
        assert await_end(worker) == 0


def test_a_stopped_worker_does_not_wait_for_the_master(member):
    with listener() as (_, address):
        worker = member(ENDLESS, address=address)
        worker.signal_group(signal.SIGTERM)
        assert await_end(worker) == -signal.SIGTERM


@pytest.mark.parametrize("script", [ENDLESS, "pass"])
def test_a_server_that_dies_ends_the_instance_and_is_the_reason(member, tmp_path, script):
    with listener() as (_, address):
        worker = member(script, address=address)
        look_for(worker, 0.1)
        worker.server.signal_group(signal.SIGKILL)
        assert await_end(worker) == 1
    report = failure.read_report(tmp_path, pid=worker.pid)
    text = failure.compose(
        problem=failure.describe_end(exit_code=1, report=report, stderr_tail=""), exit_code=1, command=["train.py"]
    )
    assert "ParameterServerEnded: the parameter server of algo-2 (ps/1) ended by signal 9" in text


def test_the_exception_of_the_server_is_named(member, tmp_path):
    master = member(ENDLESS, server="import time; time.sleep(0.3); raise SystemExit(1)")
    report = {"type": "UnknownError", "module": "", "message": "Could not start gRPC server", "frames": []}
    (tmp_path / f"{master.server.pid}.json").write_text(json.dumps(report))
    assert await_end(master) == 1
    message = json.loads((tmp_path / f"{master.pid}.json").read_text())["message"]
    assert "exit code 1" in message
    assert message.endswith(": UnknownError: Could not start gRPC server")


def test_the_runtime_starts_servers_and_scripts_of_a_cluster_and_reports_a_server_that_cannot_start(job):
    (job.base / "site").mkdir(parents=True)
    (job.base / "site/tensorflow.py").write_text("raise ImportError('no TensorFlow here')")
    job.variables["PYTHONPATH"] = str(job.base / "site")
    job.config("resourceconfig", {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})
    job.hyperparameters(sagemaker_parameter_server_enabled="true")
    job.script(ENDLESS)
    ended = job.run()
    assert ended.returncode == 1
    assert b'parameter_server.started task="ps/0" address="algo-1:2223"' in ended.stderr
    assert "the parameter server of algo-1 (ps/0) ended with exit code 1 before the script did" in job.failure
    assert "ImportError: no TensorFlow here" in job.failure
