"""Checkpoints: restored before the script starts, in S3 at every end, and seen by the next attempt of a lost job."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
WRITER = """
    import json, os, pathlib, signal, sys, time

    config = json.load(open("/opt/ml/input/config/checkpointconfig.json"))
    place = pathlib.Path(config.get("LocalPath", "/opt/ml/checkpoints"))
    print("RESTORED", *sorted(f"{each.relative_to(place)}={each.read_text()}" for each in place.rglob("*")
                              if each.is_file()), flush=True)
    end = os.environ["END"]
    def stop(*_):
        (place / "late").write_text("late")
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    (place / "ckpt-1").write_text("one")
    (place / "half").mkdir()
    (place / "half/part").write_text("part")
    (place / "half").rename(place / "whole")
    (place / "checkpoint").write_text("ckpt-1")
    print("WRITTEN", flush=True)
    if end == "fail":
        (place / "late").write_text("late")
        raise SystemExit(3)
    while end == "stop":
        time.sleep(0.05)
    (place / "ckpt-1").unlink()
    (place / "ckpt-2").write_text("two")
    (place / "checkpoint").write_text("ckpt-2")
    (place / "late").write_text("late")
"""
DEEP = """
    import os

    for top in ("/opt/ml/checkpoints", "/opt/ml/model", "/opt/ml/output/data"):
        os.chdir(top)
        for _ in range(1500):
            with open("file", "w") as file:
                file.write("content")
            os.mkdir("directory-" + "x" * 40)
            os.chdir("directory-" + "x" * 40)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"stop_grace_s": 30, "max_instances": 2}) as service:
        yield service


@pytest.fixture(scope="module")
def jobs(service: Service, jobs_of: Any) -> Any:
    return jobs_of(service)


def stored(jobs: Any, prefix: str) -> dict[str, str]:
    listed = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", ())
    return {
        each["Key"].removeprefix(f"{prefix}/"): jobs.object(f"s3://{BUCKET}/{each['Key']}").decode() for each in listed
    }


def restored(jobs: Any, name: str) -> list[str]:
    return [line for line in jobs.log(name) if line.startswith("RESTORED")]


@pytest.mark.parametrize("local_path", [None, "/opt/kept/here", "/tmp/kept", "/test/checkpoint/path", "/mnt/kept"])
def test_checkpoints_are_restored_and_complete_at_the_end(jobs: Any, local_path: str | None) -> None:
    prefix = f"kept{(local_path or '').replace('/', '-')}"
    jobs.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/deep/before", Body=b"before")
    config = {"S3Uri": f"s3://{BUCKET}/{prefix}/"} | ({"LocalPath": local_path} if local_path else {})
    job = jobs.run(WRITER, CheckpointConfig=config, Environment={"END": "complete"})
    assert job["TrainingJobStatus"] == "Completed", jobs.log(job["TrainingJobName"])
    assert job["CheckpointConfig"] == config
    assert restored(jobs, job["TrainingJobName"]) == ["RESTORED deep/before=before"]
    kept = {"ckpt-2": "two", "checkpoint": "ckpt-2", "whole/part": "part", "late": "late", "deep/before": "before"}
    assert stored(jobs, prefix).items() >= kept.items()


@pytest.mark.parametrize("end", ["fail", "stop"])
def test_checkpoints_are_complete_when_the_script_fails_or_is_stopped(jobs: Any, end: str) -> None:
    name = jobs.create(WRITER, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{end}"}, Environment={"END": end})
    if end == "stop":
        jobs.wait_for_line(name, "WRITTEN")
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == {"fail": "Failed", "stop": "Stopped"}[end]
    expected = {"checkpoint": "ckpt-1", "ckpt-1": "one", "whole/part": "part", "late": "late"}
    assert stored(jobs, end).items() >= expected.items()


def test_the_last_write_counts_where_a_file_became_a_directory(jobs: Any) -> None:
    for key, body in (("saved", b"file"), ("saved/part", b"new"), ("other/part", b"old"), ("other", b"file")):
        jobs.s3.put_object(Bucket=BUCKET, Key=f"clash/{key}", Body=body)
    job = jobs.run(WRITER, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/clash"}, Environment={"END": "complete"})
    assert restored(jobs, job["TrainingJobName"]) == ["RESTORED other=file saved/part=new"]


def test_a_bucket_that_does_not_exist_is_refused(jobs: Any) -> None:
    with pytest.raises(ClientError, match=r"checkpointConfig\.s3Uri"):
        jobs.create("pass", CheckpointConfig={"S3Uri": "s3://absent/x"})


COUNTER = """
    import os, pathlib, signal, sys, time

    host, place = os.environ["SM_CURRENT_HOST"], pathlib.Path("/opt/ml/checkpoints")
    leaks = [each for each in ("/opt/ml/model/left", "/tmp/left") if os.path.exists(each)]
    step = place / f"{host}.step"
    done = int(step.read_text()) if step.exists() else 0
    print("BEGIN", host, done, *leaks, flush=True)
    pathlib.Path("/opt/ml/model/left").touch()
    pathlib.Path("/tmp/left").touch()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while done < 100:
        time.sleep(0.1)
        if done == 7 and not (place / f"{host}.again").exists():
            (place / f"{host}.again").touch()
            print("HERE", flush=True)
            time.sleep(600)
        done += 1
        print("STEP", host, done, flush=True)
        (place / f"{host}.new").write_text(str(done))
        (place / f"{host}.new").rename(step)
        if done >= 12:
            break
"""


@pytest.mark.parametrize("instances", [pytest.param(1, marks=pytest.mark.matrix), 2])
def test_an_interrupted_job_goes_on_from_its_checkpoints(service: Service, jobs: Any, instances: int) -> None:
    name = jobs.create(
        COUNTER,
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/count-{instances}"},
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 900},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
    )
    jobs.wait_for_line(name, "HERE", instances)
    done = run_verb(service, "interrupt", name)
    assert done.returncode == 0, done.stderr
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    statuses = [(each["Status"], each["StatusMessage"]) for each in job["SecondaryStatusTransitions"]]
    assert ("Interrupted", "Attempt 1 has ended: the instances were interrupted") in statuses
    assert ("Starting", "Starting attempt 2") in statuses
    log = jobs.log(name)
    for host in [f"algo-{number + 1}" for number in range(instances)]:
        assert [line for line in log if line.startswith(f"BEGIN {host}")] == [f"BEGIN {host} 0", f"BEGIN {host} 7"]
        assert [line for line in log if line.startswith(f"STEP {host}")] == [f"STEP {host} {n + 1}" for n in range(12)]
    assert stored(jobs, f"count-{instances}")["algo-1.step"] == "12"


def test_a_job_whose_instances_cannot_be_taken_away_is_not_interrupted(service: Service, jobs: Any) -> None:
    name = jobs.create("import time; time.sleep(600)")
    refused = run_verb(service, "interrupt", name)
    assert refused.returncode != 0
    assert "EnableManagedSpotTraining" in refused.stderr
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def run_verb(service: Service, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill.cli", *arguments, "--state-dir", str(service.state_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_job_that_leaves_1500_nested_directories_completes_without_paths_that_s3_does_not_allow(
    service: Service, jobs: Any
) -> None:
    job = jobs.run(DEEP, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/nested"})
    log = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], log)
    levels = 1024 // 51  # of names with a slash
    model = jobs.model_files(job)
    assert sorted(name.count("/") for name in model) == list(range(levels + 1))
    assert set(model.values()) == {b"content"}
    in_bucket = [name.count("/") for name in stored(jobs, "nested")]
    assert sorted(in_bucket) == list(range(levels)), "the prefix of the keys leaves room for one level less"
    for place in ("/opt/ml/checkpoints", "/opt/ml/model", "/opt/ml/output/data"):
        line = f"tidemill: {place} has paths that are too long for keys of S3 (1,024 bytes): these files are left out,"
        assert len([each for each in log if each.startswith(f"{line} beginning with 'directory-xxx")]) == 1
    jobs.wait_until(lambda: not [*service.state_dir.glob("jobs/*/algo-1/ml")], lambda: service.log)
    service.restart()
    assert jobs.describe(job["TrainingJobName"])["TrainingJobStatus"] == "Completed"
