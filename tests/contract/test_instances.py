"""Training jobs of several instances, by boto3: the configuration of each, the published model, and their ends."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.files import read_json
from tidemill.instance.directory import InstanceDirectory
from tidemill.testing import Service

GROUP = "/aws/sagemaker/TrainingJobs"
BUCKET = "sagemaker-us-west-2-000000000000"
INTRODUCTION = """
    import json, os, pathlib, socket, time
    host, hosts = os.environ["SM_CURRENT_HOST"], json.loads(os.environ["SM_HOSTS"])
    resources = json.load(open("/opt/ml/input/config/resourceconfig.json"))
    shared = pathlib.Path(os.environ["TIDEMILL_JOB_DIRECTORY"])
    mode = oct(shared.stat().st_mode & 0o777)
    print("HOST", json.dumps([host, hosts, resources["current_host"], socket.gethostname(), mode]), flush=True)
    (shared / host).touch()
    while len(list(shared.iterdir())) < len(hosts):
        time.sleep(0.01)
    print("DATA", *sorted(os.listdir("/opt/ml/input/data/training")), flush=True)
    (pathlib.Path(os.environ["SM_MODEL_DIR"]) / "weights").write_text(host)
    (pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "notes").write_text(host)
"""
GROUPED = """
    import json, os
    print("TOLD", os.environ["SM_CURRENT_INSTANCE_GROUP"], os.environ["SM_CURRENT_INSTANCE_TYPE"], flush=True)
    print("HETERO", os.environ["SM_IS_HETERO"], os.environ["SM_INSTANCE_GROUPS"], os.environ["SM_HOSTS"], flush=True)
    for channel in json.loads(os.environ["SM_CHANNELS"]):
        print("CHANNEL", channel, *sorted(os.listdir("/opt/ml/input/data/" + channel)), flush=True)
"""
FAILING = """
    import os, pathlib, signal, time
    host = os.environ["SM_CURRENT_HOST"]
    shared = pathlib.Path(os.environ["TIDEMILL_JOB_DIRECTORY"])
    if host == "algo-3":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (shared / host).touch()
    while len(list(shared.iterdir())) < 3:
        time.sleep(0.01)
    if host == "algo-2":
        raise ValueError("no such layer")
    while True:
        time.sleep(1)
"""
ENDLESS = """
    import time
    print("READY", flush=True)
    while True:
        time.sleep(1)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"max_instances": 3, "stop_grace_s": 60, "instance_memory_mib": 600}) as service:
        yield service


@pytest.fixture(scope="module")
def gangs(service: Service, jobs_of: Any) -> Any:
    return jobs_of(service)


def resources(count: int) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}


def lines(jobs: Any, name: str) -> dict[str, list[str]]:
    """Return the log by instance, without the service's own lines."""
    found = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    by_host = {}
    for stream in found:
        page = jobs.logs_client.get_log_events(
            logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
        )
        host = stream["logStreamName"].removeprefix(f"{name}/").rpartition("-")[0]
        by_host[host] = [event["message"] for event in page["events"]]
    return by_host


def processes_marked(mark: str) -> list[str]:
    """Return the processes of this machine with the mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TIDEMILL_INSTANCE={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def directories(service: Service, name: str) -> list[InstanceDirectory]:
    every = InstanceDirectory.all_below(service.state_dir)
    return [each for each in every if read_json(each.spec_file)["job_name"] == name]  # type: ignore[index]


def test_every_instance_has_its_name_and_its_part_of_the_data_and_the_first_one_publishes_the_model(
    service: Service, gangs: Any
) -> None:
    for number in range(5):
        gangs.s3.put_object(Bucket=BUCKET, Key=f"parts/{number}", Body=b"x")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/parts/", "S3DataDistributionType": "ShardedByS3Key"}
    channel = {"ChannelName": "training", "DataSource": {"S3DataSource": source}}
    job = gangs.run(INTRODUCTION, ResourceConfig=resources(3), InputDataConfig=[channel])
    name = job["TrainingJobName"]
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert job["ResourceConfig"]["InstanceCount"] == 3
    hosts = ["algo-1", "algo-2", "algo-3"]
    log = lines(gangs, name)
    assert list(log) == hosts
    told = {host: [line for line in log[host] if line.startswith(("HOST", "DATA"))] for host in hosts}
    assert told == {
        host: [f"HOST {json.dumps([host, hosts, host, host, '0o700'])}", f"DATA {parts}"]
        for host, parts in zip(hosts, ("0 3", "1 4", "2"), strict=True)
    }
    assert any("isolation=full" in line or "no network of their own" in line for line in log["algo-2"])
    assert gangs.model_files(job) == {"weights": b"algo-1"}
    made = directories(service, name)
    assert len(made) == 3
    gangs.wait_until((made[0].path.parent / "published.json").exists, "the clean-up")
    assert not any(each.shared.exists() or each.ml.exists() for each in made)


def test_groups_of_instances_have_separate_channels(gangs: Any) -> None:
    for number in range(3):
        gangs.s3.put_object(Bucket=BUCKET, Key=f"grouped/{number}", Body=b"x")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/grouped/"}
    sharded = {**source, "S3DataDistributionType": "ShardedByS3Key", "InstanceGroupNames": ["readers"]}
    channels = [
        {"ChannelName": "all", "DataSource": {"S3DataSource": source}},
        {"ChannelName": "raw", "DataSource": {"S3DataSource": sharded}, "InputMode": "FastFile"},
    ]
    groups = [
        {"InstanceGroupName": "trainer", "InstanceType": "ml.p3.2xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "readers", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    ]
    job = gangs.run(GROUPED, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1}, InputDataConfig=channels)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert job["ResourceConfig"]["InstanceGroups"] == groups
    log = lines(gangs, job["TrainingJobName"])
    told = {host: [line for line in found if line.startswith(("TOLD", "CHANNEL"))] for host, found in log.items()}
    assert told == {
        "algo-1": ["TOLD trainer ml.p3.2xlarge", "CHANNEL all 0 1 2"],
        "algo-2": ["TOLD readers ml.c5.xlarge", "CHANNEL all 0 1 2", "CHANNEL raw 0 2"],
        "algo-3": ["TOLD readers ml.c5.xlarge", "CHANNEL all 0 1 2", "CHANNEL raw 1"],
    }
    assert 'HETERO true ["trainer","readers"] ["algo-1","algo-2","algo-3"]' in log["algo-1"]


def test_an_instance_that_fails_ends_the_job_although_another_one_ignores_the_stop(gangs: Any) -> None:
    job = gangs.run(FAILING, ResourceConfig=resources(3))
    assert job["TrainingJobStatus"] == "Failed"
    reason = job["FailureReason"]
    assert reason.startswith("AlgorithmError: ExecuteUserScriptError")
    assert "ValueError: no such layer" in reason
    assert reason.endswith(", instance: algo-2")
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == ""
    assert "tidemill: another instance of the job has failed; the script has 5 s to end" in gangs.log(
        job["TrainingJobName"]
    )


def test_all_instances_start_again_when_one_is_killed_from_outside_and_none_is_left_over(
    service: Service, gangs: Any
) -> None:
    name = gangs.create(ENDLESS, ResourceConfig=resources(2))
    gangs.wait_for_line(name, "READY", 2)
    second = directories(service, name)[1]
    shim = second.read_run()
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    gangs.wait_for_line(name, "READY", 4)
    assert [list_.count("READY") for list_ in lines(gangs, name).values()] == [2, 2]
    gangs.sagemaker.stop_training_job(TrainingJobName=name)
    job = gangs.wait(name)
    assert job["TrainingJobStatus"] == "Stopped"
    statuses = [(each["Status"], each["StatusMessage"]) for each in job["SecondaryStatusTransitions"]]
    restarting = statuses.index(("Restarting", "Attempt 1 has ended: algo-2 was lost"))
    assert statuses[restarting + 1] == ("Starting", "Starting attempt 2 of 3")
    gangs.wait_until((second.path.parent / "published.json").exists, "the clean-up")
    for process in (each.read_run() for each in directories(service, name)):
        assert process is not None
        assert not process.alive


def test_a_service_of_tests_leaves_no_network_behind(jobs_of: Any) -> None:
    with Service(settings={"max_instances": 2}) as service:
        jobs = jobs_of(service)
        name = jobs.create(ENDLESS, ResourceConfig=resources(2))
        jobs.wait_for_line(name, "READY", 2)
        job_id = directories(service, name)[0].path.parent.name
        assert processes_marked(f"{job_id}/network/1")
    assert not processes_marked(f"{job_id}/network/1")


def test_an_instance_that_passes_a_limit_of_the_settings_fails_its_job(gangs: Any) -> None:
    script = 'import time\nheld = bytearray(b"1") * (700 << 20)\ntime.sleep(60)\n'
    job = gangs.run(script, ResourceConfig=resources(1))
    assert job["TrainingJobStatus"] == "Failed"
    cause = (
        "AlgorithmError: OutOfMemory: Process killed by SIGKILL (signal 9): the instance has a memory limit of 600 MiB"
    )
    assert job["FailureReason"].startswith(f"{cause} (settings), and its peak was ")
    assert "tidemill: limits of this instance (settings): 600 MiB of memory" in gangs.log(job["TrainingJobName"])


def test_a_stop_reaches_all_instances(gangs: Any) -> None:
    name = gangs.create(ENDLESS, ResourceConfig=resources(2))
    gangs.wait_for_line(name, "READY", 2)
    gangs.sagemaker.stop_training_job(TrainingJobName=name)
    job = gangs.wait(name)
    assert job["TrainingJobStatus"] == "Stopped"
    assert sum("stop requested" in line for line in gangs.log(name)) == 2


def test_a_job_of_more_instances_than_there_can_ever_be_room_for_is_refused(gangs: Any) -> None:
    with pytest.raises(ClientError, match=r"Value 4 at 'resourceConfig\.instanceCount'.*max_instances") as refused:
        gangs.create(ENDLESS, ResourceConfig=resources(4))
    assert refused.value.response["Error"]["Code"] == "ResourceLimitExceeded"
