"""The server killed, the shim killed at each of its stages, the disk full."""

import asyncio
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from tidemill.core.instances import InstanceRef
from tidemill.executors.base import KnownInstance
from tidemill.instance.status import InstanceOutcome, StopReason

POINTS = ("started", "environment", "downloaded", "launched", "packed", "exit")
DRIVER = Path(__file__).with_name("server_driver.py")
REF = InstanceRef(secrets.token_hex(16), 0)


@pytest.fixture
def killed_server(make_stage):
    """Return a job whose server was killed by SIGKILL while its script waits, and a stage that takes over."""
    stage = make_stage("auto")
    stage.executor.close()
    script = (
        "open('/opt/ml/model/m', 'w').write('x')\nimport os, time\n"
        "while not os.path.exists('/opt/ml/go'): time.sleep(0.01)\n"
        "print('done')\n"
    )
    command = [sys.executable, str(DRIVER), str(stage.state_dir), str(stage.environments_dir), REF.job_id, script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "launched\n"
        server.send_signal(signal.SIGKILL)
    stage.refs.append(REF)
    return stage


def test_a_job_outlives_its_server_and_is_attached_again(killed_server):
    stage, ref = killed_server, REF
    stage.reopen()
    recovered = stage.executor.recover(finished=lambda job_id: False)
    assert recovered == [KnownInstance(ref=ref, kind="training", job_name="job")]
    stage.executor.relaunch(ref)
    stage.wait(ref, lambda: (stage.directory(ref).ml / "model/m").exists())
    assert stage.executor.observe(ref).running
    (stage.directory(ref).ml / "go").touch()
    ended = stage.ended(ref)
    assert (ended.outcome, list(ended.artifacts)) == (InstanceOutcome.COMPLETED, ["model"])
    assert stage.lines(ref)[1:] == ["done"]


def test_a_job_that_ended_while_no_server_ran_is_found_ended(killed_server):
    stage, ref = killed_server, REF
    directory = stage.directory(ref)
    asyncio.run(until((directory.ml / "model/m").exists))
    (directory.ml / "go").touch()
    asyncio.run(until(directory.exit_file.exists))
    stage.reopen()
    stage.executor.relaunch(ref)
    assert stage.executor.observe(ref).exit.outcome is InstanceOutcome.COMPLETED
    assert stage.lines(ref).count("done") == 1


def test_a_job_can_be_stopped_after_its_server_was_killed(killed_server):
    stage, ref = killed_server, REF
    stage.reopen()
    stage.executor.relaunch(ref)
    stage.wait(ref, lambda: (stage.directory(ref).ml / "model/m").exists())
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert stage.ended(ref).outcome is InstanceOutcome.STOPPED


@pytest.mark.parametrize("point", POINTS)
def test_a_shim_killed_at_any_stage_is_lost_and_leaves_nothing(stage, monkeypatch, tmp_path, point):
    hits = tmp_path / "hits"
    monkeypatch.setenv("TIDEMILL_FAULTS", f"shim.{point}:exit")
    monkeypatch.setenv("TIDEMILL_FAULTS_LOG", str(hits))
    ref = stage.start("print('ran')")
    stage.wait(ref, lambda: not stage.executor.observe(ref).running)
    status = stage.executor.observe(ref)
    assert (status.launched, status.running, status.exit) == (True, False, None)
    assert hits.read_text().startswith(f"shim.{point} exit ")
    monkeypatch.delenv("TIDEMILL_FAULTS")
    stage.executor.relaunch(ref)
    assert not stage.executor.observe(ref).running
    stage.executor.reap(ref.job_id)
    assert not stage.directory(ref).ml.exists()


def test_a_full_disk_fails_the_job_with_its_own_reason(stage, monkeypatch):
    monkeypatch.setenv("TIDEMILL_FAULTS", "shim.downloaded:enospc")
    _, ended = stage.run("print('ran')")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("ClientError: no space left on device")


def test_the_result_is_written_though_the_disk_was_full_for_a_while(stage, monkeypatch):
    monkeypatch.setenv("TIDEMILL_FAULTS", "files.fsync.exit.json:enospc:1:3")
    ref, ended = stage.run("print('ran')")
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert "ran" in stage.lines(ref)


def test_no_line_is_lost_though_the_log_could_not_be_written_for_a_while(stage, monkeypatch):
    monkeypatch.setenv("TIDEMILL_FAULTS", "segments.write:enospc:1:2")
    ref, _ = stage.run("print('one', flush=True); print('two', flush=True)")
    assert [line for line in stage.lines(ref) if line in ("one", "two")] == ["one", "two"]


def test_a_spec_that_cannot_be_read_is_an_end_not_a_mystery(stage):
    spec = stage.spec()
    directory = stage.directory(spec.ref)
    stage.executor._specs.write(directory, spec)
    directory.spec_file.write_text("{}")
    stage.executor.relaunch(spec.ref)
    ended = stage.ended(spec.ref)
    assert ended.failure.startswith("InternalServerError: the spec of the instance cannot be read")


def test_changed_works_on_uvloop(stage):
    async def follow():
        ref = stage.start("")
        async with asyncio.timeout(30):
            while stage.executor.observe(ref).exit is None:
                await stage.executor.changed(timeout_s=30)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(follow())


async def until(condition) -> None:
    """Poll a condition that has no notification, because there is no server."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)
