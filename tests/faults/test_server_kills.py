"""kill -9 of the server at every stage of a job: the job finishes, the restarted server reports the right state, and
nothing is done twice.

The kill comes from inside, at a named fault point, so that each stage is really hit; the fault log proves it. A job is
hit by several kills, one per start of the server, so that a few jobs cover all stages; in the matrix each has its own.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from victim import Victim

from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK

SCRIPT = """
    import os, pathlib, time
    print("RUN", os.getpid(), flush=True)
    model = pathlib.Path(os.environ["SM_MODEL_DIR"])
    (model / "weights").write_text("w" * 1000)
    time.sleep(0.5)
    print("END", flush=True)
"""
WAITING = SCRIPT.replace("time.sleep(0.5)", "while not (model.parent / 'go').exists(): time.sleep(0.02)")

# Stage of a job -> the fault point that the server passes at that stage.
STAGES = {
    "created": "control.created",
    "before the launch": "control.launch.before",
    "after the launch": "control.launch.after",
    "environment": "control.phase.DownloadingTrainingImage",
    "download": "control.phase.Downloading",
    "run": "control.phase.Training",
    "upload": "control.phase.Uploading",
    "before publishing": "control.publish.before",
    "published object renamed": "store.object.rename",
    "after publishing": "control.publish.after",
    "before the end is committed": "control.finalize.before",
    "after the end is committed": "control.finalize.after",
    "record half written": "files.rename.record.json",
    "cleaned": "control.cleaned",
}
STOPPING = {"stopping": "control.stopping", "stop sent": "control.stop_told"}
CHAINS = [
    # Stages before and after the script of one job may end. What an instance reports while no server runs is committed
    # at once, so of its phases each job is hit at one in each list.
    (("created", "before the launch", "environment"), ("upload", "before publishing", "after the end is committed")),
    (("after the launch", "download"), ("published object renamed", "before the end is committed", "cleaned")),
    (("run",), ("after publishing", "record half written")),
]


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any) -> Iterator[Victim]:
    made = Victim(tmp_path, jobs_of)
    try:
        yield made
    finally:
        made.service._clean_up()


@contextlib.contextmanager
def dying() -> Iterator[None]:
    """Ignore errors of requests inside the block, because the server may die during any of them."""
    with contextlib.suppress(BotoCoreError, ClientError):
        yield


def processes_of(name: str) -> list[str]:
    """Return the command lines of live processes that contain the job's name."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if name in command:
                    found.append(command)
    return found


def wait_for_no_process(victim: Victim, name: str) -> None:
    """Wait until no process of the job is left: a shim may still be exiting when the service reads its result."""
    victim.jobs.wait_until(lambda: not processes_of(name), lambda: f"the end of {processes_of(name)}")


def model_servers(victim: Victim) -> list[int]:
    """Return the processes of the only endpoint's model server; other tests on this machine may have others."""
    [directory] = InstanceDirectory.all_below(victim.service.state_dir)
    mark = f"{MARK}={directory.ref.mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_server = b"tidemill_serving" in (entry / "cmdline").read_bytes()
            if is_server and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return sorted(found)


def check_finished(victim: Victim, name: str, status: str = "Completed") -> None:
    """Check the invariants of a job that has ended."""
    job = victim.jobs.wait(name)
    assert job["TrainingJobStatus"] == status, job.get("FailureReason")
    log = victim.jobs.log(name)
    assert sum(line.startswith("RUN ") for line in log) == 1, "the script ran once, no more and no less"
    assert len(log) == len(set(log)), "every line once"
    if status == "Completed":
        assert "END" in log
        assert victim.jobs.model_files(job)["weights"] == b"w" * 1000
    ends = [t["Status"] for t in job["SecondaryStatusTransitions"] if t["Status"] in ("Completed", "Failed", "Stopped")]
    assert len(ends) == 1
    directory = victim.state_dir / "jobs" / job_directory(victim, name)
    wait_for_no_process(victim, directory.name)
    victim.jobs.wait_until((directory / "published.json").exists, "the clean-up")
    assert not list(directory.rglob("*.tmp")), "nothing half written is left"


def job_directory(victim: Victim, name: str) -> str:
    """Return the only directory below jobs."""
    (found,) = (victim.state_dir / "jobs").iterdir()
    return found.name


def kill_at(victim: Victim, point: str) -> None:
    # The upload of the code passes the point of the object store once before the artifact does.
    victim.start(point, skipping=1 if point.startswith("store.object") else 0)
    request = victim.jobs.request(SCRIPT)
    victim.die_creating(request, point)
    revive_and_check(victim, request)


def revive_and_check(victim: Victim, request: dict[str, Any]) -> None:
    victim.revive()
    assert victim.jobs.describe(request["TrainingJobName"])["TrainingJobStatus"] in ("InProgress", "Completed")
    check_finished(victim, request["TrainingJobName"])


def release(victim: Victim) -> None:
    """Let the script of the only job end, although no server runs."""

    def instance() -> InstanceDirectory | None:
        return next((each for each in InstanceDirectory.all_below(victim.state_dir) if each.ml.exists()), None)

    (victim.jobs.wait_until(instance, "the instance").ml / "go").touch()


def kill_while_stopping(victim: Victim, point: str) -> None:
    victim.start(point)
    request = victim.jobs.request("import time\nprint('RUN', flush=True)\ntime.sleep(600)")
    name = request["TrainingJobName"]
    victim.jobs.sagemaker.create_training_job(**request)
    victim.jobs.wait(name, until=("Training",))
    victim.jobs.wait_for_line(name, "RUN")
    with dying():
        victim.jobs.sagemaker.stop_training_job(TrainingJobName=name)
    victim.await_death(point)
    victim.revive()
    job = victim.jobs.wait(name)
    assert job["TrainingJobStatus"] == "Stopped"
    wait_for_no_process(victim, job_directory(victim, name))


def test_the_chains_have_every_stage_once() -> None:
    assert sorted(stage for chain in CHAINS for stages in chain for stage in stages) == sorted(STAGES)


@pytest.mark.parametrize(("before", "after"), CHAINS, ids=lambda stages: " - ".join(stages))
def test_a_job_survives_deaths_of_the_server_when_it_is_at(
    before: tuple[str, ...], after: tuple[str, ...], victim: Victim
) -> None:
    first, *others = (STAGES[stage] for stage in before)
    victim.start(first)
    request = victim.jobs.request(WAITING)
    victim.die_creating(request, first)
    for point in others:
        victim.die_again(point)
    release(victim)
    for stage in after:
        victim.die_again(STAGES[stage])
    revive_and_check(victim, request)


@pytest.mark.parametrize("stage", list(STOPPING))
def test_a_stop_survives_the_death_of_the_server_when_it_is_at(stage: str, victim: Victim) -> None:
    kill_while_stopping(victim, STOPPING[stage])


def test_a_queued_job_survives_the_death_of_the_server(tmp_path: Path, jobs_of: Any) -> None:
    victim = Victim(tmp_path, jobs_of, max_instances=1)
    try:
        victim.start("control.queued")
        first = victim.jobs.request("import time\nprint('RUN first', flush=True)\ntime.sleep(3)")
        second = victim.jobs.request(SCRIPT)
        with dying():
            victim.jobs.sagemaker.create_training_job(**first)
            victim.jobs.sagemaker.create_training_job(**second)
        victim.await_death("control.queued")
        victim.revive()
        for request in (first, second):
            job = victim.jobs.wait(request["TrainingJobName"])
            assert job["TrainingJobStatus"] == "Completed"
            log = victim.jobs.log(request["TrainingJobName"])
            assert sum(line.startswith("RUN ") for line in log) == 1
    finally:
        victim.service._clean_up()


def test_an_endpoint_serves_on_while_the_server_is_dead_and_after(victim: Victim, archives: dict[int, bytes]) -> None:
    victim.start()
    sagemaker = victim.jobs.sagemaker
    bucket = "sagemaker-us-west-2-000000000000"
    victim.jobs.s3.put_object(Bucket=bucket, Key="one/model.tar.gz", Body=archives[1])
    role = "arn:aws:iam::000000000000:role/SageMakerRole"
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{bucket}/one/model.tar.gz"}
    sagemaker.create_model(ModelName="one", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "one", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="one", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="one", EndpointConfigName="one")
    victim.jobs.wait_until(
        lambda: sagemaker.describe_endpoint(EndpointName="one")["EndpointStatus"] != "Creating", "the endpoint"
    )
    servers = model_servers(victim)
    assert servers
    victim.service.kill()
    assert model_servers(victim) == servers, "the endpoint's processes outlive the server"
    victim.revive()
    runtime = victim.service.client("sagemaker-runtime")
    reply = runtime.invoke_endpoint(EndpointName="one", ContentType="application/json", Body=b'{"instances": [2.0]}')
    assert reply["Body"].read().split() == b'{ "predictions": [1.0 ] }'.split()
    assert model_servers(victim) == servers, "they were taken up, not started again"


@pytest.mark.matrix
@pytest.mark.parametrize("round_number", range(2, 5))
@pytest.mark.parametrize("stage", [*STAGES, *STOPPING])
def test_the_matrix_of_kills(stage: str, round_number: int, victim: Victim) -> None:
    if stage in STAGES:
        kill_at(victim, STAGES[stage])
    else:
        kill_while_stopping(victim, STOPPING[stage])


@pytest.mark.matrix
@pytest.mark.parametrize("round_number", range(2, 5))
def test_the_matrix_of_kills_in_the_queue(round_number: int, tmp_path: Path, jobs_of: Any) -> None:
    test_a_queued_job_survives_the_death_of_the_server(tmp_path, jobs_of)


BUCKET = "sagemaker-us-west-2-000000000000"
RESUMING = """
    import pathlib, time
    seen = pathlib.Path("/opt/ml/checkpoints/seen")
    if not seen.exists():
        seen.write_text("x" * 1000)
        print("FIRST", flush=True)
        time.sleep(600)
    print("SECOND", len(seen.read_text()), flush=True)
"""
RESTARTS = {
    "before the attempt is committed": ("control.restart.before", 0),
    "after the attempt is committed": ("control.restart.after", 0),
    "before its launch": ("control.launch.before", 1),
    "checkpoints are restored": ("control.phase.Downloading", 1),
}


@pytest.mark.parametrize(
    "stage", [pytest.param(each, marks=pytest.mark.matrix if "its launch" in each else ()) for each in RESTARTS]
)
def test_a_job_that_starts_again_survives_the_servers_death(stage: str, victim: Victim) -> None:
    point, skipping = RESTARTS[stage]
    victim.start(point, skipping=skipping)
    name = victim.jobs.create(RESUMING, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/resume"})
    victim.jobs.wait_for_line(name, "FIRST")
    victim.jobs.wait_until(
        lambda: victim.jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="resume/seen").get("Contents"), "a checkpoint"
    )
    (first,) = InstanceDirectory.all_below(victim.state_dir)
    shim = first.read_run()
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    victim.await_death(point)
    victim.revive()
    job = victim.jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    messages = [each["StatusMessage"] for each in job["SecondaryStatusTransitions"] if each["Status"] == "Restarting"]
    assert messages == ["Attempt 1 has ended: algo-1 was lost"]
    own = [line for line in victim.jobs.log(name) if not line.startswith("tidemill: ")]
    assert own == ["FIRST", "SECOND 1000"]
    assert sorted(each.ref.attempt for each in InstanceDirectory.all_below(victim.state_dir)) == [1, 2]
