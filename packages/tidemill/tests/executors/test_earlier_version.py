"""Files of versions before attempts had numbers: their instances are taken over, and their reports are read."""

import json
import secrets

import pytest

from tidemill.core.instances import InstanceRef
from tidemill.core.process import ProcessId
from tidemill.executors.base import KnownInstance
from tidemill.instance.status import Artifact, InstanceOutcome

REF = InstanceRef(secrets.token_hex(16), 0)
SCRIPT = "import os, pathlib; base = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'])\n" + (
    "print((base / '.tidemill/sourcedir.tar.gz').read_text(), (base / 'input/data/train/a').read_text())\n"
    "(base / 'model/m').write_text('x')"
)


@pytest.fixture
def stage(make_stage):
    """Return a stage with a state directory in which the earlier version has launched a job."""
    stage = make_stage("plain")
    stage.refs.append(REF)
    directory = stage.directory(REF)
    code, data = (stage.stored(content, name=name) for name, content in (("c", b"code"), ("a", b"data")))
    directory.channels.mkdir(parents=True)
    entry = {"uri": data.uri, "name": "a", "file": str(stage.content(data)), "size_bytes": 4, "sha256": data.sha256}
    directory.channel_file("train").write_text(json.dumps(entry) + "\n")
    spec = {
        "version": 1,
        "job_id": REF.job_id,
        "instance_index": 0,
        "kind": "training",
        "job_name": "digits",
        "hosts": ["algo-1"],
        "framework_version": "2.21",
        "log_directory": str(stage.state_dir / "logs/group/stream"),
        "notices": [],
        "variables": {},
        "config": {"hyperparameters": {"script": SCRIPT}},
        "code": {**entry, "name": "sourcedir.tar.gz", "file": str(stage.content(code)), "sha256": code.sha256},
        "model": None,
        "channels": ["train"],
        "pipes": [],
        "remotes": {},
        "entrypoint": [],
        "max_runtime_s": 0,
        "grace_s": 120,
        "warm": False,
        "site": {
            "state_dir": str(stage.state_dir),
            "environments_dir": str(stage.environments_dir),
            "backend": "plain",
        },
    }
    directory.spec_file.write_text(json.dumps(spec))
    return stage


def test_a_job_that_it_could_not_start_any_more_is_started_and_runs_to_its_end(stage):
    recovered = stage.executor.recover(finished=lambda job_id: False)
    assert recovered == [KnownInstance(ref=REF, kind="training", job_name="digits")]
    stage.executor.relaunch(REF)
    ended = stage.ended(REF)
    assert (ended.outcome, list(ended.artifacts)) == (InstanceOutcome.COMPLETED, ["model"]), ended
    log = (stage.state_dir / "logs/group/stream/00000001.log").read_text()
    assert log.splitlines()[-1].endswith(" code data")


def test_an_instance_that_it_started_is_seen_running_as_attempt_1(stage):
    own = ProcessId.own()
    run = {"version": 1, "boot_id": own.boot_id, "pid": own.pid, "start_ticks": own.start_ticks}
    (stage.directory(REF).path / "run.json").write_text(json.dumps(run))
    phases = [{"status": "Training", "started_ms": 5, "message": "The script runs"}]
    stage.directory(REF).status_file.write_text(json.dumps({"version": 1, "phases": phases}))
    status = stage.executor.observe(REF)
    assert (status.launched, status.running, status.attempt) == (True, True, 1)
    assert [phase.status for phase in status.phases] == ["Training"]
    (stage.directory(REF).path / "run.json").unlink()  # nothing may kill this very process


def test_a_result_that_it_left_is_read_and_its_artifact_taken_over(stage):
    directory = stage.directory(REF)
    directory.artifacts.mkdir()
    file = directory.artifacts / "model.tar.gz"
    file.write_bytes(b"packed")
    artifact = {"file": str(file), "size_bytes": 6, "sha256": "aa", "md5": "bb"}
    ended = {"version": 1, "outcome": "completed", "failure": "", "ended_ms": 7, "artifacts": {"model": artifact}}
    directory.exit_file.write_text(json.dumps(ended))
    found = stage.executor.observe(REF).exit
    assert (found.outcome, found.artifacts) == (
        InstanceOutcome.COMPLETED,
        {"model": Artifact(size_bytes=6, sha256="aa", md5="bb")},
    )
    assert stage.executor.publication(REF, "model") == file


def test_a_report_of_another_attempt_reads_as_absent(stage):
    directory = stage.directory(REF)
    ended = {"version": 1, "attempt": 2, "outcome": "completed", "failure": "", "ended_ms": 7}
    directory.exit_file.write_text(json.dumps(ended))
    assert stage.executor.observe(REF).exit is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]"])
def test_a_damaged_spec_is_left_out_and_keeps_nothing_else_from_being_found(stage, text):
    damaged = stage.directory(InstanceRef("0d", 0))
    damaged.path.mkdir(parents=True)
    damaged.spec_file.write_text(text)
    assert [each.ref for each in stage.executor.recover(finished=lambda job_id: False)] == [REF]


def test_jobs_that_are_finished_are_not_looked_into(stage):
    stage.directory(REF).spec_file.write_text("not even read")
    asked = []
    assert stage.executor.recover(finished=lambda job_id: bool(asked.append(job_id)) or True) == []
    assert asked == [REF.job_id]
