"""Instances from launch to exit, with real shims."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidemill._shared.trees import remove_tree
from tidemill.control.training.gang import Gang
from tidemill.core.instances import InstanceRef
from tidemill.core.limits import InstanceLimits
from tidemill.core.process import ProcessId
from tidemill.errors import LaunchError
from tidemill.executors import remains
from tidemill.executors.shim_process import spawn_shim
from tidemill.instance.spec import ChannelSpec
from tidemill.instance.status import InstanceOutcome, StopReason
from tidemill.sandbox import Overlay, View, overlay_fault, sandbox_named

BASE = "import os; from pathlib import Path; base = Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
SLEEP = "import signal, time; print('ready', flush=True); signal.pause()\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


def test_a_script_runs_and_its_model_is_packed(any_stage):
    ref, ended = any_stage.run(
        BASE + "(base / 'model/weights').write_text('42'); (base / 'output/data/plot').write_text('p'); print('hello')"
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, any_stage.lines(ref))
    assert ended.failure == ""
    assert "hello" in any_stage.lines(ref)
    for name, content in (("model", ["weights"]), ("output", ["plot"])):
        artifact = ended.artifacts[name]
        file = any_stage.artifact(ref, name)
        data = file.read_bytes()
        assert (artifact.size_bytes, artifact.sha256, artifact.md5) == (
            len(data),
            hashlib.sha256(data).hexdigest(),
            hashlib.md5(data).hexdigest(),
        )
        with tarfile.open(file) as archive:
            assert archive.getnames() == content
    assert [phase.status for phase in any_stage.executor.observe(ref).phases] == [
        "Starting",
        "DownloadingTrainingImage",
        "Downloading",
        "Training",
        "Uploading",
    ]
    assert ended.training_started_ms <= ended.training_ended_ms <= ended.ended_ms
    assert ended.peak_rss_bytes > 1 << 20


def test_a_model_that_is_not_published_is_noted_in_the_log_of_its_instance(stage):
    noted = {}
    for index in (0, 1):
        spec = stage.spec(BASE + "(base / 'model/weights').write_text('42')")
        spec = replace(spec, ref=replace(spec.ref, instance_index=index))
        stage.executor.launch([spec])
        assert stage.ended(spec.ref).outcome is InstanceOutcome.COMPLETED
        noted[index] = [line for line in stage.lines(spec.ref) if "only the model of algo-1 is published" in line]
    assert noted[0] == []
    (note,) = noted[1]
    assert note.startswith("tidemill: algo-2 has written to /opt/ml/model: ")


def test_the_first_lines_of_the_log_are_the_notices_and_the_isolation_and_environment(any_stage):
    ref, ended = any_stage.run("", notices=("tidemill: a notice",))
    isolation = any_stage.executor.isolation
    backend = "" if isolation == "plain" else f" ({any_stage.executor._detection.sandbox.name})"
    first, *others = any_stage.lines(ref)
    assert first == "tidemill: a notice"
    assert any(line.startswith(f"tidemill: isolation={isolation}{backend}, environment=tf-2.21 (") for line in others)
    assert ended.record["environment"] == "tf-2.21"
    assert ended.record["isolation"] == isolation


def test_the_record_has_everything_to_repeat_the_run(stage):
    code = stage.stored(b"code", name="sourcedir.tar.gz")
    _, ended = stage.run("", code=code)
    assert ended.record["code_sha256"] == code.sha256
    assert ended.record["command"][1:] == ["-m", "tidemill_runtime", "train"]
    assert len(ended.record["lock_sha256"]) == 64


def test_configuration_code_and_channels_are_at_the_documented_paths(any_stage):
    script = BASE + (
        "import json\n"
        "print(json.loads((base / 'input/config/resourceconfig.json').read_text())['current_host'])\n"
        "print((base / '.tidemill/sourcedir.tar.gz').read_text())\n"
        "data = base / 'input/data'\n"
        "print(sorted(str(p.relative_to(data)) for p in data.rglob('*') if p.is_file()))\n"
        "print((data / 'training/deep/er/x').read_text())\n"
    )
    ref, ended = any_stage.run(
        script,
        config={
            "hyperparameters": {"script": script},
            "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"]},
        },
        code=any_stage.stored(b"the code", name="sourcedir.tar.gz"),
        channels=(
            any_stage.channel("training", **{"a.txt": b"a", "deep/er/x": b"deep", "folder/": b""}),
            any_stage.channel("empty"),
        ),
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, ended
    how = "copied (isolation=plain)" if any_stage.executor.isolation == "plain" else "not copied (overlay; "
    # The lines before it: the isolation, and that two instances share the network.
    assert any_stage.lines(ref)[2].startswith(f"tidemill: channel training {how}")
    assert any_stage.lines(ref)[3:] == ["algo-1", "the code", "['training/a.txt', 'training/deep/er/x']", "deep"]


def test_an_entrypoint_is_handed_to_the_runtime(stage):
    ref, ended = stage.run(entrypoint=("/bin/echo", "a b", "$HOME"))
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert stage.lines(ref)[-1] == "a b $HOME"


def test_the_environment_of_a_job_is_built_from_nothing(any_stage, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the service's own")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@index")
    any_stage.executor.close()
    any_stage.reopen()
    ref, ended = any_stage.run(
        "import os; print(sorted(os.environ)); print(os.environ['PATH']); print(os.environ['MINE'])",
        variables={"MINE": "a\nb"},
    )
    names, path, *mine = any_stage.lines(ref)[2:]
    plain = {"SAGEMAKER_BASE_DIR"} if any_stage.executor.isolation == "plain" else set()
    python_own = {"LC_CTYPE"}
    assert set(eval(names)) - python_own == plain | {
        *("HOME", "LANG", "MINE", "PATH", "PYTHONUNBUFFERED", "TIDEMILL_CONTROL_FD", "TIDEMILL_INSTANCE", "TMPDIR"),
        "TIDEMILL_JOB_DIRECTORY",  # the job has two instances
    } | ({"PWD"} & set(eval(names)))
    assert path.endswith("/bin:/usr/local/bin:/usr/bin:/bin")
    assert mine == ["a", "b"]
    assert b"secret" not in any_stage.directory(ref).shim_log.read_bytes()
    assert ended.outcome is InstanceOutcome.COMPLETED


def test_every_line_of_both_streams_is_logged_without_escape_sequences(stage):
    stage.run(
        "import sys\n"
        "for i in range(20000): print(i)\n"
        "sys.stdout.buffer.write(b'\\x1b[1mbold\\x1b[0m \\xff\\r\\n'); sys.stdout.flush()\n"
        "sys.stderr.write('last without newline')\n"
    )
    data = b"".join(path.read_bytes() for path in sorted((stage.state_dir / "logs").glob("*/*/*.log")))
    lines = [line.split(b" ", 1) for line in data.split(b"\n")[:-1]]
    messages = [message for _, message in lines]
    assert [m for m in messages if m.isdigit()] == [b"%d" % i for i in range(20000)]
    assert b"bold \xff" in messages
    assert b"last without newline" in messages
    stamps = [int(stamp) for stamp, _ in lines]
    assert stamps == sorted(stamps)


def test_a_failed_script_publishes_its_report_and_output_but_no_model(any_stage):
    _, ended = any_stage.run(BASE + "(base / 'model/m').touch(); (base / 'output/data/d').touch(); raise SystemExit(3)")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.splitlines()[:2] == ["AlgorithmError: ExecuteUserScriptError:", "ExitCode 3"]
    assert list(ended.artifacts) == ["output"]


def test_a_failure_written_by_the_script_is_shortened_to_1024_characters(stage):
    _, ended = stage.run(BASE + "(base / 'output/failure').write_text('é' * 5000); raise SystemExit(1)")
    assert len(ended.failure) == 1024
    assert ended.failure.startswith("AlgorithmError: éé")


def test_a_runtime_that_was_killed_is_reported_with_its_peak_and_not_as_out_of_memory(stage):
    _, ended = stage.run("import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()")
    assert ended.outcome is InstanceOutcome.FAILED
    assert "ExitCode 137" in ended.failure or "ExitCode -9" in ended.failure
    assert 'ErrorMessage "Process killed by SIGKILL (signal 9); its peak memory was' in ended.failure


def test_a_script_that_kills_itself_is_not_reported_as_out_of_memory(stage):
    _, ended = stage.run("import os; os.kill(os.getpid(), 9)", limits=InstanceLimits(memory_bytes=1 << 30))
    assert "ExitCode -9" in ended.failure
    assert "OutOfMemory" not in ended.failure


def test_the_last_words_of_a_shim_that_cannot_start_are_known(stage, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/sh")  # runs `sh -I -m tidemill.shim DIRECTORY`
    ref = stage.start("", hosts=("algo-1",))
    stage.wait(ref, lambda: not stage.executor.observe(ref).running)
    status = stage.executor.observe(ref)
    assert status.exit is None
    assert status.loss.startswith("InternalServerError: instance agent lost; its log ends with: /bin/sh: ")
    assert len(status.loss) < 1024
    assert Gang(("algo-1",), (status,)).loss == status.loss


def test_what_cannot_be_removed_is_reported_and_removed_later(stage, monkeypatch):
    ref, _ = stage.run(BASE + "(base / 'model/m').touch(); (base / 'output/data/o').touch()")
    directory = stage.directory(ref)
    kept = directory.home

    def remove(path):
        if path == kept:
            raise PermissionError(1, "Operation not permitted", "file")
        remove_tree(path)

    with monkeypatch.context() as patch, capture_logs() as logged:
        patch.setattr(remains, "remove_tree", remove)
        assert not stage.executor.reap(ref.job_id)
        stage.executor.remove_leftovers()
    assert [(each["event"], each["job_id"]) for each in logged] == [("clean_up.delayed", ref.job_id)]
    assert str(kept) in logged[0]["reason"]
    assert kept.exists()
    assert not directory.ml.exists()
    stage.executor.remove_leftovers()
    assert not kept.exists()
    assert stage.executor.reap(ref.job_id)


def test_nothing_of_a_job_outlives_it(any_stage):
    ref, _ = any_stage.run(
        "import subprocess, sys\n"
        "for _ in range(3): subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'],"
        " start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    )
    assert set(marked(ref)) <= {any_stage.directory(ref).read_run().pid}  # the shim itself takes a moment to exit


def test_a_stopped_script_has_time_to_save(any_stage):
    ref = any_stage.start(
        BASE + "import signal, sys\n"
        "def save(*_):\n (base / 'model/saved').write_text('yes'); print('saving'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n" + SLEEP
    )
    any_stage.wait_for_line(ref, "ready")
    any_stage.executor.stop(ref, reason=StopReason.STOPPED)
    ended = any_stage.ended(ref)
    assert ended.outcome is InstanceOutcome.STOPPED
    assert ended.failure == ""
    assert "saving" in any_stage.lines(ref)
    assert list(ended.artifacts) == ["model"]


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace_time(any_stage):
    ref = any_stage.start(STUBBORN, grace_s=1.0)
    any_stage.wait_for_line(ref, "ready")
    any_stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert any_stage.ended(ref).outcome is InstanceOutcome.STOPPED
    assert set(marked(ref)) <= {any_stage.directory(ref).read_run().pid}


def test_the_shim_itself_ends_a_job_at_its_longest_runtime(any_stage):
    # Long enough for the script to start on a busy machine.
    ref, ended = any_stage.run(BASE + "(base / 'model/m').touch()\n" + SLEEP, max_runtime_s=3.0)
    assert ended.outcome is InstanceOutcome.MAX_RUNTIME
    assert list(ended.artifacts) == ["model"]
    assert any("MaxRuntimeInSeconds is reached" in line for line in any_stage.lines(ref))


@pytest.mark.parametrize("point", ["shim.started", "shim.environment", "shim.downloaded"])
def test_a_stop_before_the_script_runs_ends_the_instance_at_once(stage, monkeypatch, point, tmp_path):
    hits, gate = tmp_path / "hits", tmp_path / "gate"
    monkeypatch.setenv("TIDEMILL_FAULTS", f"{point}:wait={gate}")
    monkeypatch.setenv("TIDEMILL_FAULTS_LOG", str(hits))
    ref = stage.start("print('ran')")
    stage.wait(ref, hits.exists)
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    gate.touch()
    ended = stage.ended(ref)
    assert (ended.outcome, ended.artifacts, ended.training_started_ms) == (InstanceOutcome.STOPPED, {}, None)
    assert "ran" not in stage.lines(ref)


def test_a_stop_before_the_shim_reported_is_found_by_it(stage):
    spec = stage.spec("print('ran')")
    directory = stage.directory(spec.ref)
    stage.executor._specs.write(directory, spec)
    stage.executor.stop(spec.ref, reason=StopReason.STOPPED)
    stage.executor.relaunch(spec.ref)
    assert stage.ended(spec.ref).outcome is InstanceOutcome.STOPPED
    assert "ran" not in stage.lines(spec.ref)


def test_a_stop_while_uploading_does_not_change_how_the_script_ended(stage, monkeypatch, tmp_path):
    hits, gate = tmp_path / "hits", tmp_path / "gate"
    monkeypatch.setenv("TIDEMILL_FAULTS", f"shim.packed:wait={gate}")
    monkeypatch.setenv("TIDEMILL_FAULTS_LOG", str(hits))
    ref = stage.start(BASE + "(base / 'model/m').touch()")
    stage.wait(ref, hits.exists)
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    gate.touch()
    ended = stage.ended(ref)
    assert (ended.outcome, list(ended.artifacts)) == (InstanceOutcome.COMPLETED, ["model"])


def test_a_killed_shim_is_seen_as_lost_and_leaves_no_process(any_stage):
    ref = any_stage.start(STUBBORN)
    any_stage.wait_for_line(ref, "ready")
    os.kill(any_stage.directory(ref).read_run().pid, signal.SIGKILL)
    any_stage.wait(ref, lambda: not any_stage.executor.observe(ref).running)
    status = any_stage.executor.observe(ref)
    assert (status.launched, status.running, status.exit) == (True, False, None)
    any_stage.wait(ref, lambda: marked(ref) == [])


def test_a_lost_instance_is_not_started_again(stage):
    ref = stage.start(SLEEP)
    stage.wait_for_line(ref, "ready")
    stage.executor.kill(ref)
    stage.executor.relaunch(ref)
    assert not stage.executor.observe(ref).running
    assert stage.lines(ref).count("ready") == 1


def test_a_shim_of_another_boot_is_lost_though_its_pid_lives(stage):
    spec = stage.spec()
    directory = stage.directory(spec.ref)
    stage.executor._specs.write(directory, spec)
    own = ProcessId.own()
    directory.write_run(ProcessId("another-boot", own.pid, own.start_ticks))
    assert not stage.executor.observe(spec.ref).running
    directory.write_run(ProcessId(own.boot_id, own.pid, own.start_ticks + 1))
    assert not stage.executor.observe(spec.ref).running
    stage.executor.stop(spec.ref, reason=StopReason.STOPPED)
    stage.executor.kill(spec.ref)  # must not kill the current process with that pid, which is this one


def test_launching_again_does_nothing_twice(stage):
    spec = stage.spec(BASE + "print('once')\n" + SLEEP)
    for _ in range(3):
        stage.executor.launch([spec])
    stage.wait_for_line(spec.ref, "ready")
    stage.executor.launch([spec])
    stage.executor.stop(spec.ref, reason=StopReason.STOPPED)
    stage.ended(spec.ref)
    stage.executor.launch([spec])
    assert stage.lines(spec.ref).count("once") == 1


def test_a_launch_that_fails_leaves_neither_processes_nor_files(stage):
    running, broken = stage.spec(STUBBORN), stage.spec(channels=(ChannelSpec(name="a/b", objects=()),))
    broken = replace(broken, ref=InstanceRef(running.ref.job_id, 1))
    stage.executor.launch([running])
    stage.wait_for_line(running.ref, "ready")
    with pytest.raises(LaunchError, match="'a/b' cannot name a file"):
        stage.executor.launch([running, broken])
    assert marked(running.ref) == []
    assert not stage.directory(running.ref).path.parent.exists()


def test_files_of_a_failed_launch_of_a_killed_service_are_removed_with_the_job(stage):
    ref, _ = stage.run("")
    left = stage.directory(ref).path.parent / ".00ff.withdrawn"
    (left / "ml").mkdir(parents=True)
    recovered = stage.executor.recover(finished=lambda job_id: False)
    assert [each.ref for each in recovered] == [ref]
    stage.executor.reap(ref.job_id)
    assert not left.exists()


def test_a_new_attempt_has_its_own_directory_and_mark(stage):
    first = stage.start(STUBBORN)
    stage.wait_for_line(first, "ready")
    second = InstanceRef(first.job_id, 0, attempt=2)
    stage.executor.launch([stage.spec("import os; print(os.environ['TIDEMILL_INSTANCE'])", ref=second)])
    assert marked(first) == []
    assert stage.ended(second).outcome is InstanceOutcome.COMPLETED
    assert stage.directory(second).path.name == "algo-1.2"
    assert json.loads(stage.directory(second).exit_file.read_text())["attempt"] == 2
    assert stage.directory(first).spec_file.exists(), "the small records of the older attempt stay"
    assert not stage.directory(first).ml.exists()


def test_of_two_shims_on_one_instance_the_second_leaves(stage):
    ref = stage.start("print('ran', flush=True)\n" + SLEEP)
    stage.wait_for_line(ref, "ready")
    first = stage.directory(ref).read_run()
    second = spawn_shim(stage.directory(ref))
    assert os.waitpid(second, 0)[1] == 0
    assert stage.directory(ref).read_run() == first
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert stage.ended(ref).outcome is InstanceOutcome.STOPPED
    third = spawn_shim(stage.directory(ref))
    assert os.waitpid(third, 0)[1] == 0
    assert stage.lines(ref).count("ran") == 1


def test_two_shims_started_at_once_run_the_job_once(stage):
    spec = stage.spec("print('ran')")
    directory = stage.directory(spec.ref)
    stage.executor._specs.write(directory, spec)
    shims = [spawn_shim(directory) for _ in range(2)]
    assert [os.waitpid(shim, 0)[1] for shim in shims] == [0, 0]
    assert stage.ended(spec.ref).outcome is InstanceOutcome.COMPLETED
    assert stage.lines(spec.ref).count("ran") == 1


def test_a_new_executor_finds_what_runs_and_what_has_ended(stage):
    running = stage.start(SLEEP)
    done, _ = stage.run("print('done')")
    stage.wait_for_line(running, "ready")
    stage.reopen()
    recovered = stage.executor.recover(finished=lambda job_id: False)
    assert sorted(each.ref for each in recovered) == sorted([running, done])
    assert stage.executor.observe(running).running
    assert stage.executor.observe(done).exit.outcome is InstanceOutcome.COMPLETED
    stage.executor.stop(running, reason=StopReason.STOPPED)
    assert stage.ended(running).outcome is InstanceOutcome.STOPPED


def test_reports_that_a_job_has_damaged_count_as_missing_and_keep_no_service_from_starting(make_stage):
    stage = make_stage("plain")  # a job finds its instance's directory
    damage = "for n in ('exit', 'status', 'stop'): (base.parent / f'{n}.json').write_text('[' * 100_000)\n"
    ref = stage.start(BASE + damage + "print('DAMAGED', flush=True)\n" + SLEEP, hosts=("algo-1",))
    stage.wait_for_line(ref, "DAMAGED")
    stage.reopen()
    assert [known.ref for known in stage.executor.recover(finished=lambda _: False)] == [ref]
    status = stage.executor.observe(ref)
    assert (status.running, status.exit, status.phases) == (True, None, ())
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert stage.ended(ref).outcome is InstanceOutcome.STOPPED


def test_reaping_keeps_the_small_records_and_removes_the_rest(stage):
    script = BASE + "closed = base / 'model/closed'; closed.mkdir(); (closed / 'f').touch(); closed.chmod(0)"
    ref, ended = stage.run(script)
    stage.executor.reap(ref.job_id)
    stage.executor.reap(ref.job_id)
    kept = {path.name for path in stage.directory(ref).path.iterdir()}
    assert kept == {"channels", "exit.json", "hosts", "lock", "run.json", "shim.log", "spec.json", "status.json"}
    assert stage.executor.observe(ref).exit == ended


def test_reaping_kills_a_job_that_still_runs(any_stage):
    ref = any_stage.start(STUBBORN)
    any_stage.wait_for_line(ref, "ready")
    any_stage.executor.reap(ref.job_id)
    assert marked(ref) == []
    assert not any_stage.directory(ref).ml.exists()


def test_changed_is_woken_by_a_report_and_is_empty_on_timeout(stage):
    async def follow():
        ref = stage.start("")
        seen = set()
        async with asyncio.timeout(60):
            while stage.executor.observe(ref).exit is None or not seen:
                seen |= await stage.executor.changed(timeout_s=60)
        assert seen == {ref}
        while await stage.executor.changed(timeout_s=0.5):
            pass
        assert await stage.executor.changed(timeout_s=0) == set()

    asyncio.run(follow())


def test_a_job_id_that_is_not_hexadecimal_is_refused(stage):
    with pytest.raises(ValueError, match="cannot name a directory"):
        stage.executor.observe(InstanceRef("../../etc", 0))


def test_a_channel_name_with_a_slash_is_refused(stage):
    with pytest.raises(LaunchError, match="'a/b' cannot name a file"):
        stage.start(channels=(ChannelSpec(name="a/b", objects=()),))


@pytest.mark.parametrize("name", ["..", "."])
def test_a_channel_named_like_a_directory_link_fails_the_job(stage, name):
    _, ended = stage.run(channels=(ChannelSpec(name=name, objects=()),))
    assert ended.failure == f"ClientError: channel name {name!r} cannot name a directory"


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("../x", "names another directory"),
        ("a/../../x", "names another directory"),
        ("./x", "names another directory"),
        ("/etc/passwd", "is empty"),
        ("a//b", "is empty"),
        ("", "is empty"),
        ("a\0b", "holds a NUL"),
        ("x" * 256, "is 256 bytes long"),
        ("\ud800", "is not valid Unicode"),
    ],
)
def test_a_hostile_key_fails_the_job_and_names_the_object(stage, key, fault):
    evil = stage.stored(b"evil", name=key, uri="s3://bucket/evil")
    ref, ended = stage.run(channels=(ChannelSpec(name="training", objects=[evil]),))
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("ClientError: object key leaves the channel")
    assert "s3://bucket/evil" in ended.failure
    assert fault in ended.failure
    assert not [path for path in stage.directory(ref).ml.rglob("*") if path.is_file() and path.read_bytes() == b"evil"]


@pytest.mark.parametrize("keys", [("a", "a/b"), ("a/b", "a"), ("a", "a"), ("a", "a/b/c")])
def test_a_key_that_is_both_file_and_directory_fails_the_job(stage, keys):
    objects = [stage.stored(b"x", name=key) for key in keys]
    _, ended = stage.run(channels=(ChannelSpec(name="training", objects=objects),))
    assert ended.failure.startswith("ClientError: s3://bucket/data/a"), ended.failure
    assert "clashes with another object" in ended.failure


def test_a_damaged_object_is_never_copied_to_a_job(make_stage):
    stage = make_stage("plain")
    good = stage.stored(b"good", name="x")
    bad = replace(good, sha256="0" * 64)
    _, ended = stage.run(channels=(ChannelSpec(name="training", objects=[bad]),))
    assert ended.failure == (
        "InternalServerError: s3://bucket/data/x is damaged in the object store:"
        " its content does not match its checksum"
    )


def test_an_object_of_another_size_is_never_shown_to_a_job(stage):
    good = stage.stored(b"good", name="x")
    _, ended = stage.run(channels=(ChannelSpec(name="training", objects=[replace(good, size_bytes=5)]),))
    assert ended.failure == (
        "InternalServerError: s3://bucket/data/x is damaged in the object store: it has 4 bytes of 5"
    )


def test_a_job_cannot_change_the_objects_of_the_store(any_stage):
    channel = any_stage.channel("training", x=b"original")
    _, ended = any_stage.run(
        BASE + "p = base / 'input/data/training/x'; p.chmod(0o600); p.write_text('changed')", channels=(channel,)
    )
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert any_stage.content(channel.objects[0]).read_bytes() == b"original"


@pytest.mark.parametrize("backend", ["bubblewrap", "unshare"])
def test_a_channel_is_not_copied_and_what_a_script_writes_there_stays_with_the_job(make_stage, backend):
    stage = make_stage(backend)
    first = stage.channel("first", appended=b"original", replaced=b"original", gone=b"original", same=b"original")
    second = replace(stage.channel("second", x=b"2"), input_mode="FastFile")
    ref, ended = stage.run(
        "from pathlib import Path\n"
        "first = Path('/opt/ml/input/data/first')\n"
        "with (first / 'appended').open('a') as file: file.write(' and more')\n"
        "(first / 'new').write_text('new'); (first / 'new').rename(first / 'replaced')\n"
        "(first / 'gone').unlink()\n"
        "(first / 'cache').mkdir(); (first / 'cache/x').touch()\n"
        "print(sorted(each.name for each in first.iterdir()), (first / 'replaced').read_text())\n"
        "print((first / 'appended').read_text())\n"
        "print(Path('/opt/ml/input/data/second/x').read_text())\n",
        channels=(first, second),
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    # The lines before it: the isolation, and that two instances share the network.
    assert stage.lines(ref)[2:] == [
        "tidemill: channels first, second not copied (overlay; what the script writes stays with the job)",
        "['appended', 'cache', 'replaced', 'same'] new",
        "original and more",
        "2",
    ]
    for each in first.objects:
        assert stage.content(each).read_bytes() == b"original"
    links = stage.directory(ref).views
    (same,) = (each for each in first.objects if each.name == "same")
    assert (links / "0/files/same").samefile(stage.content(same))
    stage.executor.reap(ref.job_id)
    assert not links.exists()


@pytest.fixture
def cloning_disk(tmp_path, need):
    """The state directory of a stage on a file system whose files can share blocks."""
    need("btrfs")
    image, place = tmp_path / "disk", tmp_path / "state"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    for command in (["mkfs.btrfs", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no btrfs can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_in_plain_mode_files_share_their_blocks_with_the_store_where_the_file_system_can(cloning_disk, make_stage):
    stage = make_stage("plain")
    channel = stage.channel("training", a=os.urandom(20 << 20), b=b"")
    os.sync()
    before = os.statvfs(cloning_disk)
    script = (
        BASE + "data = base / 'input/data/training'; os.sync(); disk = os.statvfs(data)\n"
        "print('FREE', disk.f_bfree * disk.f_frsize, sorted(os.listdir(data)), flush=True)\n"
        "with (data / 'a').open('r+b') as file: file.write(b'changed')\n"
    )
    ref, ended = stage.run(script, channels=(channel,))
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    (line,) = (line for line in stage.lines(ref) if line.startswith("tidemill: channel"))
    assert line == "tidemill: channel training not copied (reflink; what the script writes stays with the job)"
    (free_line,) = (line for line in stage.lines(ref) if line.startswith("FREE"))
    assert free_line.endswith("['a', 'b']")
    assert before.f_bfree * before.f_frsize - int(free_line.split()[1]) < 10 << 20
    stored = stage.content(channel.objects[0]).read_bytes()
    assert hashlib.sha256(stored).hexdigest() == channel.objects[0].sha256


CHANGES = (
    "from pathlib import Path\n"
    "data = Path('/opt/ml/input/data/training')\n"
    "print(sorted(str(p.relative_to(data)) for p in data.rglob('*') if p.is_file()), (data / 'a').read_text())\n"
    "with (data / 'a').open('a') as file: file.write(' and more')\n"
    "(data / 'sub/b').unlink()\n"
    "(data / 'new').write_text('new')\n"
)


def test_jobs_with_the_same_files_share_one_directory_of_links_and_see_no_change_of_each_other(stage):
    files = {"a": b"original", "sub/b": b"b"}
    channel = replace(stage.channel("training", **files), digest="same")
    seen = []
    for _ in range(2):
        ref, ended = stage.run(CHANGES, channels=(channel,))
        assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
        assert stage.lines(ref)[-1] == "['a', 'sub/b'] original"
        seen.append((stage.directory(ref).views / "0/files").readlink())
        stage.executor.reap(ref.job_id)
    (links,) = set(seen)
    assert links.parent == stage.state_dir / "views"
    assert sorted(each.name for each in links.glob("*/**/*")) == ["a", "b", "sub"]
    assert all(any(part.iterdir()) for part in links.iterdir())  # two parts, which the job sees as one directory
    (linked,) = links.glob("*/a")
    assert linked.samefile(stage.content(channel.objects[0]))
    assert linked.read_bytes() == b"original"
    other, ended = stage.run(
        CHANGES, channels=(replace(stage.channel("training", a=b"2", **{"sub/b": b""}), digest="2"),)
    )
    assert stage.lines(other)[-1] == "['a', 'sub/b'] 2", ended
    # The service removes them some time after their last use, never while a job has them.
    assert stage.executor.remove_unused_links(idle_s=600) == 0
    held = stage.start("import time; print('ready', flush=True); time.sleep(60)", channels=(channel,))
    stage.wait_for_line(held, "ready")
    assert stage.executor.remove_unused_links(idle_s=0) == 1
    assert [each.name for each in (stage.state_dir / "views").iterdir() if each.is_dir()] == [links.name]
    stage.executor.kill(held)
    assert stage.executor.remove_unused_links(idle_s=0) == 1
    assert list((stage.state_dir / "views").iterdir()) == []
    assert all(stage.content(each).exists() for each in channel.objects)


def test_incomplete_links_of_a_killed_shim_are_created_again(stage, monkeypatch):
    channel = replace(stage.channel("training", a=b"original", **{"sub/b": b"b"}), digest="same")
    monkeypatch.setenv("TIDEMILL_FAULTS", "shim.linked:exit")
    killed = stage.start(channels=(channel,))
    stage.wait(killed, lambda: not stage.executor.observe(killed).running)
    assert stage.executor.observe(killed).exit is None
    (links,) = (each for each in (stage.state_dir / "views").iterdir() if each.is_dir())
    next(links.glob("*/sub/b")).unlink()  # as if it had been killed earlier
    monkeypatch.delenv("TIDEMILL_FAULTS")
    ref, ended = stage.run(CHANGES, channels=(channel,))
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "['a', 'sub/b'] original"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to any group")
def test_a_file_of_another_group_can_be_changed_too(stage):
    channel = stage.channel("training", x=b"original")
    os.chown(stage.content(channel.objects[0]), -1, 1)
    ref, ended = stage.run(
        "with open('/opt/ml/input/data/training/x', 'a') as file: file.write(' and more')\n", channels=(channel,)
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.content(channel.objects[0]).read_bytes() == b"original"


@pytest.mark.parametrize("backend", ["bubblewrap", "unshare"])
def test_without_overlays_a_channel_is_read_only(backend, tmp_path, need):
    need(backend)
    for name in ("ml/input/data/x", "home", "tmp/tmp", "tmp/var", "files"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hosts").touch()
    (tmp_path / "files/a").write_text("original")
    view = View(
        host_name="algo-1",
        hosts_file=tmp_path / "hosts",
        ml=tmp_path / "ml",
        home=tmp_path / "home",
        tmp=tmp_path / "tmp",
        covers=((tmp_path / "files", "input/data/x"),),
    )
    script = "cat /opt/ml/input/data/x/a; echo changed > /opt/ml/input/data/x/a; touch /opt/ml/input/data/x/b"
    launch = sandbox_named(backend).wrap(["/bin/sh", "-c", script], view=view, variables={"PATH": "/usr/bin:/bin"})
    done = subprocess.run(
        launch.argv, env=launch.variables, pass_fds=launch.descriptors, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "original"
    assert done.stderr.count("Read-only file system") == 2
    assert [each.name for each in (tmp_path / "files").iterdir()] == ["a"]


def test_features_that_overlays_lack_are_detected_by_trying(tmp_path):
    for name in ("files", "writes", "work", "target"):
        (tmp_path / name).mkdir()
    overlay = Overlay(directory=tmp_path, target=tmp_path / "target")
    assert overlay_fault(overlay) == ""
    (tmp_path / "writes").rmdir()
    assert overlay_fault(overlay) == f"[Errno 2] mount overlay on {overlay.target}: No such file or directory"


def test_a_model_directory_replaced_by_a_link_is_not_followed(stage):
    _, ended = stage.run(BASE + "(base / 'model').rmdir(); (base / 'model').symlink_to('/etc')")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("ClientError: /opt/ml/model is not a directory any more")
    assert ended.artifacts == {}


def test_a_failure_file_that_is_a_link_is_not_read(stage):
    script = BASE + "(base / 'output/failure').symlink_to('/etc/passwd'); raise SystemExit(9)"
    _, ended = stage.run(script)
    assert "root:" not in ended.failure
    assert ended.failure.startswith("AlgorithmError: ExecuteUserScriptError:")


def test_links_are_stored_as_links_and_pipes_are_left_out(stage):
    ref, _ = stage.run(
        BASE + "m = base / 'model'; (m / 'one').write_text('1'); os.link(m / 'one', m / 'two')\n"
        "(m / 'away').symlink_to('/etc/passwd'); os.mkfifo(m / 'pipe'); (m / 'd/e').mkdir(parents=True)\n"
    )
    with tarfile.open(stage.artifact(ref, "model")) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert sorted(members) == ["away", "d", "d/e", "one", "two"]
        assert members["away"].linkname == "/etc/passwd"
        assert members["one"].isreg()
        assert members["two"].isreg()
        assert archive.extractfile("two").read() == b"1"


def test_packages_are_installed_once_and_shared_by_jobs(any_stage):
    script = BASE + (
        "overlay = os.environ['TIDEMILL_OVERLAY']; print(open(overlay + '/installed').read().strip())\n"
        "print(os.environ['PATH'].startswith(f'{base}/.tidemill/environment/bin:{overlay}/bin:'))\n"
        "try: open(overlay + '/x', 'w'); print('written')\n"
        "except OSError: print('read-only')\n"
    )
    config = {"hyperparameters": {"script": script, "requirements": "one==1  # why\n"}}
    first, ended = any_stage.run(config=config)
    second, _ = any_stage.run(config=config)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, any_stage.lines(first))
    assert len(ended.record["overlay_sha256"]) == 64
    changed = any_stage.executor.isolation == "plain"
    for ref in (first, second):
        assert any_stage.lines(ref)[-3:] == ["one==1", "True", "written" if changed else "read-only"]
    lines = any_stage.lines(second)
    assert ("installing one==1" in lines) is changed
    assert any("a job has changed the shared packages" in line for line in lines) is changed


@pytest.mark.parametrize(
    ("requirements", "variables", "why"),
    [
        ("one==1\n--index-url file:///opt/ml/input/data/training\n", {}, "'--index-url file:///opt/ml/input"),
        ("-r other.txt\n", {}, "'-r other.txt' is not a package"),
        ("two==2\n", {"PIP_EXTRA_INDEX_URL": "file:///opt/ml/code/simple"}, "the job sets PIP_EXTRA_INDEX_URL"),
        ("two==2\n", {"UV_INDEX": "x", "HOME": "/opt/ml/code"}, "the job sets HOME, UV_INDEX"),
    ],
)
def test_what_a_job_brings_for_its_packages_stays_with_the_job(stage, requirements, variables, why):
    script = BASE + "print(os.environ['TIDEMILL_OVERLAY'])"
    config = {"hyperparameters": {"script": script, "requirements": requirements}}
    before = set((stage.environments_dir / "overlays").glob("*"))
    ref, ended = stage.run(config=config, variables=variables)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert any("for this job only: " in line and why in line for line in stage.lines(ref)), stage.lines(ref)
    assert stage.lines(ref)[-1] == "/opt/ml/.tidemill/environment"
    assert (ended.record["overlay_key"], ended.record["overlay_sha256"]) == ("", "")
    assert set((stage.environments_dir / "overlays").glob("*")) == before
    assert (stage.directory(ref).ml / ".tidemill/environment/installed").exists()


def test_neither_an_exit_status_nor_a_file_of_a_script_makes_packages_be_installed(any_stage):
    script = BASE + (
        "path = base / 'code/requirements.txt'; path.write_text('one==1')\n"
        "request = {'requirements': str(path), 'sha256': '0' * 64}\n"
        "(base / '.tidemill/needs-overlay.json').write_text(json.dumps(request))\n"
        "for number in range(3, 64):\n"
        "    try: os.write(number, json.dumps(request).encode())\n"
        "    except OSError: pass\n"
        "raise SystemExit(75)\n"
    )
    ref, ended = any_stage.run("import json\n" + script)
    assert ended.outcome is InstanceOutcome.FAILED
    assert "ExitCode 75" in ended.failure
    assert not any("installing" in line for line in any_stage.lines(ref))


def test_packages_that_cannot_be_installed_fail_the_job(stage):
    for requirements in ("broken==1", "broken==1\n-i x"):
        _, ended = stage.run(config={"hyperparameters": {"script": "print()", "requirements": requirements}})
        assert ended.outcome is InstanceOutcome.FAILED
        assert "no such package" in ended.failure
    overlays = stage.environments_dir / "overlays"
    assert not [path for path in overlays.iterdir() if path.is_dir() and not path.with_suffix(".json").exists()]


def test_a_spec_holds_every_variable_with_mode_0600(stage):
    ref, _ = stage.run(variables={"AWS_SECRET_ACCESS_KEY": "of the job"})
    spec = stage.directory(ref).spec_file
    assert spec.stat().st_mode & 0o777 == 0o600
    assert json.loads(spec.read_text())["version"] == 1


def marked(ref: InstanceRef) -> list[int]:
    """Return the live processes of an instance, found by their environment."""
    wanted = f"TIDEMILL_INSTANCE={ref.job_id}/{ref.instance_index}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
