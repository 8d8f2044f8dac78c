"""tidemill's own operations about archives, the machine and endpoints, by a client of AWS's SDK."""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tidemill.server.client import own_client
from tidemill.testing import Service

ROOT = Path(__file__).parents[2]
BUCKET = "sagemaker-us-west-2-000000000000"


def put_tar(jobs: Any, key: str, files: dict[str, bytes]) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_700_000_000
            archive.addfile(info, io.BytesIO(content))
    jobs.s3.put_object(Bucket=BUCKET, Key=key, Body=target.getvalue())


def test_the_members_of_an_archive_are_listed_and_read(jobs: Any, tidemill: Any) -> None:
    key = "places/model.tar.gz"
    put_tar(jobs, key, {"1/saved_model.pb": b"\x00\xff" * 500, "../escape": b"", "notes.txt": b"hello"})
    first = tidemill.list_archive(Bucket=BUCKET, Key=key, MaxResults=2)
    assert [(each["Index"], each["Name"], each["SizeBytes"]) for each in first["Members"]] == [
        (0, "1/saved_model.pb", 1000),
        (1, "../escape", 0),
    ]
    assert first["Members"][0]["ModifiedTime"].timestamp() == 1_700_000_000
    second = tidemill.list_archive(Bucket=BUCKET, Key=key, NextToken=first["NextToken"])
    assert [each["Name"] for each in second["Members"]] == ["notes.txt"]
    assert "NextToken" not in second and second["Complete"]
    part = tidemill.read_archive_member(Bucket=BUCKET, Key=key, Index=0, Offset=999, MaxBytes=10)
    assert part["Data"] == b"\xff"
    assert part["Member"]["Name"] == "1/saved_model.pb"
    jobs.s3.put_object(Bucket=BUCKET, Key=key, Body=b"another")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        tidemill.read_archive_member(Bucket=BUCKET, Key=key, Index=0, IfMatch=first["ETag"])
    with pytest.raises(ClientError, match="cannot be looked into"):
        tidemill.list_archive(Bucket=BUCKET, Key=key)
    with pytest.raises(ClientError, match="NoSuchKey"):
        tidemill.list_archive(Bucket=BUCKET, Key="places/absent")


@pytest.fixture(scope="module")
def user(service: Service) -> Callable[[str, dict[str, Any]], Any]:
    """Return a function that makes a user with a policy, and returns a client of tidemill's operations with its key."""
    iam = service.boto3_session().client("iam")

    def make(name: str, statement: dict[str, Any]) -> Any:
        iam.create_user(UserName=name)
        iam.put_user_policy(
            UserName=name,
            PolicyName="tidemill",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statement}),
        )
        key = iam.create_access_key(UserName=name)["AccessKey"]
        session = boto3.Session(
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
            region_name="us-west-2",
        )
        return own_client(session, service.url)

    return make


def test_an_archive_is_seen_by_whom_policies_let_read_the_object(
    jobs: Any, tidemill: Any, user: Callable[..., Any]
) -> None:
    put_tar(jobs, "places/open/a.tar.gz", {"a": b"a"})
    put_tar(jobs, "places/closed/a.tar.gz", {"a": b"a"})
    reader = user(
        "archive-reader",
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/places/open/*"},
    )
    assert len(reader.list_archive(Bucket=BUCKET, Key="places/open/a.tar.gz")["Members"]) == 1
    for operation, members in ((reader.list_archive, {}), (reader.read_archive_member, {"Index": 0})):
        with pytest.raises(ClientError, match="AccessDenied"):
            operation(Bucket=BUCKET, Key="places/closed/a.tar.gz", **members)
    for operation in (reader.describe_machine, reader.list_environments, reader.run_doctor):
        with pytest.raises(ClientError, match="AccessDenied"):
            operation()
    # The policy of a bucket holds for its owner, too.
    bucket = "places-sealed"
    jobs.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    jobs.s3.copy_object(Bucket=bucket, Key="a.tar.gz", CopySource=f"{BUCKET}/places/open/a.tar.gz")
    denies = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    policy = {"Version": "2012-10-17", "Statement": [denies]}
    jobs.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    with pytest.raises(ClientError, match="AccessDenied"):
        tidemill.list_archive(Bucket=bucket, Key="a.tar.gz")


def test_the_machine_is_described_with_what_runs_and_what_waits(
    jobs: Any, tidemill: Any, user: Callable[..., Any], service: Service
) -> None:
    waits = "import time\nfrom pathlib import Path\nprint('begun', flush=True)\ntime.sleep(600)\n"
    whole = {"InstanceType": "ml.m5.large", "InstanceCount": 4, "VolumeSizeInGB": 1}
    first = jobs.create(waits, ResourceConfig=whole)
    jobs.wait_until(lambda: tidemill.describe_machine()["Running"], "a job runs")
    second = jobs.create(waits)
    jobs.wait_until(lambda: tidemill.describe_machine()["Waiting"], "a job waits")
    machine = tidemill.describe_machine()
    assert machine["Running"] == [{"Kind": "training", "Name": first, "Instances": 4, "Gpus": 0}]
    assert machine["Waiting"] == [{"Kind": "training", "Name": second, "Instances": 1, "Gpus": 0}]
    assert (machine["Capacity"]["Instances"], machine["Capacity"]["FreeInstances"]) == (4, 0)
    assert machine["Memory"]["TotalBytes"] > machine["Memory"]["AvailableBytes"] > 0
    assert {disk["Name"] for disk in machine["Disks"]} == {"state", "environments"}
    assert all(disk["TotalBytes"] >= disk["FreeBytes"] > 0 for disk in machine["Disks"])
    assert machine["Service"]["Url"] == service.url
    assert machine["Service"]["Pid"] == service.pid
    assert {"tidemill", "Python", "botocore"} <= {each["Name"] for each in machine["Versions"]}
    seer = user("machine-seer", {"Effect": "Allow", "Action": "tidemill:DescribeMachine", "Resource": "*"})
    seen = seer.describe_machine()
    assert seen["Running"] == [{"Kind": "training", "Instances": 4, "Gpus": 0}], "whose job it is, is not told"
    for name in (second, first):
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait_until(lambda: not tidemill.describe_machine()["Running"], "nothing runs")


def test_environments_and_the_doctor_say_what_the_commands_say(tidemill: Any, command: Callable[..., str]) -> None:
    built = tidemill.list_environments()["Environments"]
    shown = json.loads(command("environments", "list", "--json"))
    by_service, by_command = ({(e["Name"], e["Key"]): e["SizeBytes"] for e in each} for each in (built, shown))
    common = by_service.keys() & by_command.keys()  # other tests of this machine may have made one between the two
    assert "tf-2.21" in {name for name, _ in common}
    assert {each: by_service[each] for each in common} == {each: by_command[each] for each in common}
    assert all(each["SizeBytes"] > 0 and each["Python"] for each in built)
    answer = tidemill.run_doctor()
    assert answer["Complete"]
    found = {each["Name"]: each for each in answer["Findings"]}
    assert {"python", "isolation", "room on disk", "service", "keys"} <= found.keys()
    assert {each["Level"] for each in found.values()} <= {"ok", "warn", "fail"}
    assert "runs at" in found["service"]["Text"]
    told = json.loads(command("doctor", "--json"))
    assert [each["name"] for each in told if each["name"] != "shell"] == list(found)


def test_commands_ask_a_service_that_is_named_about_its_machine(service: Service, tmp_path: Path) -> None:
    elsewhere = {
        **service.environment,
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TIDEMILL_STATE_DIR": str(tmp_path / "state"),
        "TIDEMILL_ENVIRONMENTS_DIR": str(tmp_path / "environments"),
    }

    def run(*arguments: str) -> Any:
        command = [ROOT / ".venv/bin/tidemill", *arguments, "--json", "--endpoint-url", service.url]
        return json.loads(subprocess.run(command, env=elsewhere, capture_output=True, text=True, check=True).stdout)

    found = {each["name"]: each["text"] for each in run("doctor")}
    assert found["state directory"] == str(service.state_dir)
    assert f"runs at {service.url}" in found["service"]
    assert "shell" in found
    assert [each["Name"] for each in run("environments", "list")]
    status = run("status")
    assert (status["instances"], status["waiting"]) == ({"all": 4, "free": 4}, 0)
