"""ListScalars and GetScalars by a client: event files of running instances, in S3 and in archives."""

import asyncio
import io
import json
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.scalars import event_reader
from tidemill.control.scalars.reading import ScalarReaders
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.services.page import scalars
from tidemill.wire.signing.credentials import Credential

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


def events(*points: tuple[int, float], tag: str = "loss") -> bytes:
    """Return records with a scalar each, of up to 127 bytes."""
    data = b""
    for step, value in points:
        inner = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
        summary = b"\x0a" + bytes([len(inner)]) + inner
        content = b"\x09" + struct.pack("<d", 1000.0 + step) + b"\x10" + bytes([step])
        content += b"\x2a" + bytes([len(summary)]) + summary
        head = struct.pack("<Q", len(content))
        data += head + struct.pack("<I", event_reader._masked_crc(head)) + content + bytes(4)
    return data


@pytest.fixture
def job(sagemaker: Any) -> Callable[..., None]:
    """Return a function that creates a training job."""

    def create(name: str, output: str = "s3://data/out", **members: Any) -> None:
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
                "TrainingInputMode": "File",
            },
            RoleArn=ROLE,
            OutputDataConfig={"S3OutputPath": output},
            ResourceConfig={"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
            **members,
        )

    return create


@pytest.fixture
def bucket(clients: Callable[..., Any], stage: Any) -> Any:
    """Return a client of S3 and create the bucket of these tests."""
    s3 = clients("s3")
    s3.create_bucket(Bucket="scalars", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    yield s3
    for each in s3.list_objects_v2(Bucket="scalars").get("Contents", ()):
        s3.delete_object(Bucket="scalars", Key=each["Key"])
    s3.delete_bucket(Bucket="scalars")


def end(stage: Any, name: str) -> None:
    def ended(job: TrainingJob) -> TrainingJob:
        return replace(job.enter(SecondaryStatus.FAILED, at_ms=stage.clock.ms, message="ended"))

    stage.change_job(name, ended)


def write(stage: Any, name: str, data: bytes, *, appended: bool = False) -> None:
    file = stage.instances_files / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab" if appended else "wb") as opened:
        opened.write(data)


def archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{name}/events.out.tfevents.1")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def test_scalars_of_a_running_job_grow_with_its_files(own: Any, stage: Any, job: Any) -> None:
    job("digits")
    assert own.list_scalars(TrainingJobName="digits")["Scalars"] == []
    first = events((0, 4.0), (1, 2.0), (2, float("nan")))
    write(stage, "output/data/train/events.out.tfevents.1", first + events((3, 1.0))[:10])
    write(stage, "model/events.out.tfevents.1", events((0, 0.5), tag="acc"))
    listed = own.list_scalars(TrainingJobName="digits")
    acc, loss = listed["Scalars"]
    assert (acc["Run"], acc["Tag"], acc["Count"], acc["LastValue"]) == ("model", "acc", 1, 0.5)
    assert (loss["Run"], loss["Tag"], loss["Count"], loss["NotFinite"]) == ("output/data/train", "loss", 3, 1)
    assert (loss["LastStep"], loss["LastTimeMs"], loss["LastValue"]) == (1, 1_001_000, 2.0)
    assert (listed["Complete"], listed["Damage"]) == (True, [])
    write(stage, "output/data/train/events.out.tfevents.1", first + events((3, 1.0)))
    write(stage, "output/data/train/events.out.tfevents.2", events((4, 0.5)))
    asked = [{"Run": "output/data/train", "Tag": "loss"}]
    (found,) = own.get_scalars(TrainingJobName="digits", Scalars=asked)["Scalars"]
    assert (found["Steps"], found["Values"]) == ([0, 1, 3, 4], [4.0, 2.0, 1.0, 0.5])
    assert found["TimesMs"] == [1_000_000, 1_001_000, 1_003_000, 1_004_000]
    assert own.get_scalars(TrainingJobName="digits", Scalars=[{"Run": "x", "Tag": "loss"}])["Scalars"] == []


def test_points_are_reduced_to_a_limit_that_keeps_peaks_and_the_last_one(own: Any, stage: Any, job: Any) -> None:
    job("digits")
    points = [(step, 100.0 if step == 37 else step % 5) for step in range(120)]
    write(stage, "model/events.out.tfevents.1", events(*points))
    (found,) = own.get_scalars(TrainingJobName="digits", MaxPoints=11)["Scalars"]
    assert len(found["Steps"]) <= 11 and found["Count"] == 120
    assert 37 in found["Steps"] and found["Steps"][-1] == 119
    assert found["Steps"] == sorted(found["Steps"])


def test_a_damaged_or_replaced_file_changes_nothing_else(own: Any, stage: Any, job: Any) -> None:
    job("digits")
    write(stage, "model/a/events.out.tfevents.1", events((0, 1.0)) + b"x" * 50)
    write(stage, "model/b/events.out.tfevents.1", events((0, 2.0), (1, 3.0)))
    found = own.get_scalars(TrainingJobName="digits")
    assert [each["Values"] for each in found["Scalars"]] == [[1.0], [2.0, 3.0]]
    (damage,) = found["Damage"]
    assert damage.startswith("model/a/events.out.tfevents.1: the record at byte ")
    (stage.instances_files / "model/b/events.out.tfevents.1").unlink()
    write(stage, "model/b/events.out.tfevents.new", events((0, 9.0)))
    assert [each["Values"] for each in own.get_scalars(TrainingJobName="digits")["Scalars"]] == [[1.0], [9.0]]


def test_large_files_are_read_by_a_program_in_parts(own: Any, stage: Any, job: Any) -> None:
    job("digits")
    write(stage, "model/events.out.tfevents.1", events(*((step % 100, step) for step in range(9000))))
    (found,) = own.list_scalars(TrainingJobName="digits")["Scalars"]
    assert (found["Count"], found["LastValue"]) == (9000, 8999.0)
    write(stage, "model/events.out.tfevents.1", events((100, 1.0)), appended=True)
    assert own.list_scalars(TrainingJobName="digits")["Scalars"][0]["Count"] == 9001


def test_scalars_of_an_ended_job_are_in_its_archives_and_below_its_prefixes(
    own: Any, stage: Any, job: Any, bucket: Any
) -> None:
    job(
        "digits",
        "s3://scalars/out",
        TensorBoardOutputConfig={"S3OutputPath": "s3://scalars/boards"},
        CheckpointConfig={"S3Uri": "s3://scalars/checkpoints/digits"},
        HyperParameters={"model_dir": json.dumps("s3://scalars/models/digits")},
    )

    def put(key: str, data: bytes) -> None:
        bucket.put_object(Bucket="scalars", Key=key, Body=data)

    board = "boards/digits/tensorboard-output/train/events.out.tfevents.1"
    put(board, events((0, 1.0)))
    (found,) = own.get_scalars(TrainingJobName="digits")["Scalars"]
    assert (found["Run"], found["Values"]) == ("output/tensorboard/train", [1.0]), "while it runs elsewhere"
    put(board, events((0, 1.0), (1, 2.0)))
    put("checkpoints/digits/logs/events.out.tfevents.1", events((0, 3.0)))
    put("models/digits/events.out.tfevents.1", events((0, 4.0)))
    put("models/digits-2/events.out.tfevents.1", events((0, 99.0)))
    put("out/digits/output/model.tar.gz", archive(train=events((0, 5.0))))
    put("out/digits/output/output.tar.gz", archive(train=events((0, 6.0)), test=events((0, 7.0))))
    end(stage, "digits")
    found = own.get_scalars(TrainingJobName="digits")
    assert {each["Run"]: each["Values"] for each in found["Scalars"]} == {
        "output/tensorboard/train": [1.0, 2.0],
        "checkpoints/logs": [3.0],
        "model_dir": [4.0],
        "model/train": [5.0],
        "output/data/train": [6.0],
        "output/data/test": [7.0],
    }
    put("out/digits/output/output.tar.gz", b"no archive")
    assert "the archive is damaged" in own.get_scalars(TrainingJobName="digits")["Damage"][0]


def test_a_viewer_sees_only_objects_that_its_policy_and_the_bucket_let_it_read(
    own: Any, stage: Any, job: Any, bucket: Any, iam: Any, clients: Any, restricted: Any, refusal: Any
) -> None:
    job("digits", CheckpointConfig={"S3Uri": "s3://scalars/c"})
    bucket.put_object(Bucket="scalars", Key="c/open/events.out.tfevents.1", Body=events((0, 1.0)))
    bucket.put_object(Bucket="scalars", Key="c/secret/events.out.tfevents.1", Body=events((0, 2.0)))
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = clients("tidemill", Credential(key["AccessKeyId"], key["SecretAccessKey"]))

    def allow(*resources: str) -> None:
        statements = [
            {"Effect": "Allow", "Action": "sagemaker:DescribeTrainingJob", "Resource": "*"},
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": list(resources)},
        ]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=document)

    def runs(client: Any) -> list[str]:
        return [each["Run"] for each in client.list_scalars(TrainingJobName="digits")["Scalars"]]

    allow("arn:aws:s3:::scalars/c/open/*")
    assert runs(own) == ["checkpoints/open", "checkpoints/secret"]
    assert runs(ann) == ["checkpoints/open"]
    allow("arn:aws:s3:::scalars/*")
    assert runs(ann) == ["checkpoints/open", "checkpoints/secret"]
    deny = {
        "Effect": "Deny",
        "Principal": {"AWS": "arn:aws:iam::000000000000:user/ann"},
        "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::scalars/c/secret/*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    bucket.put_bucket_policy(Bucket="scalars", Policy=policy)
    assert runs(ann) == ["checkpoints/open"]
    bucket.delete_bucket_policy(Bucket="scalars")
    denied = refusal(restricted("tidemill").list_scalars, TrainingJobName="digits")
    assert denied[:2] == (400, "AccessDeniedException")
    assert refusal(own.list_scalars, TrainingJobName="absent")[1] == "ResourceNotFound"


def test_a_job_with_too_many_points_keeps_its_first_ones(own: Any, stage: Any, job: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stage.scalars, "_points_kept", 3)
    job("digits")
    for name in "abc":
        write(stage, f"model/{name}/events.out.tfevents.1", events((0, 1.0), (1, 2.0)))
    found = own.list_scalars(TrainingJobName="digits")
    assert [each["Run"] for each in found["Scalars"]] == ["model/a", "model/b"]
    assert found["Damage"] == [
        "model/c/events.out.tfevents.1: the job has more than 3 points: the further ones are left out"
    ]


def test_an_answer_has_a_limit_of_points_however_many_series_there_are(
    own: Any, stage: Any, job: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(scalars, "_POINTS_MAX", 20)
    job("digits")
    for name in "ab":
        points = [(step, float(step)) for step in range(100)]
        write(stage, f"model/{name}/events.out.tfevents.1", events(*points))
    found = own.get_scalars(TrainingJobName="digits", MaxPoints=100)["Scalars"]
    assert [len(each["Steps"]) <= 10 and each["Steps"][-1] == 99 for each in found] == [True, True]


def test_a_file_that_grows_while_it_is_read_in_the_service_ends(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(events((1, 2.0)) * 10_000)
    with path.open("rb") as file:
        found = asyncio.run(ScalarReaders().read_file(file, offset=0, size_bytes=100))
    assert 0 < found["offset"] <= 128 * 1024 < path.stat().st_size
    assert found["complete"] and not found["damage"], "the next call reads on"


def test_a_bucket_that_is_gone_hides_no_other_scalars(own: Any, stage: Any, job: Any, bucket: Any) -> None:
    job("digits", HyperParameters={"model_dir": '"s3://gone/m"'}, CheckpointConfig={"S3Uri": "s3://scalars/c"})
    bucket.put_object(Bucket="scalars", Key="c/events.out.tfevents.1", Body=events((0, 1.0)))
    end(stage, "digits")
    assert [each["Run"] for each in own.list_scalars(TrainingJobName="digits")["Scalars"]] == ["checkpoints"]
