"""Files that a script writes for TensorBoard and to output/intermediate are in S3 while it runs."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = """
    import os, pathlib, signal, threading

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    board = pathlib.Path("/opt/ml/output/tensorboard")
    parts = pathlib.Path(os.environ["SM_OUTPUT_INTERMEDIATE_DIR"])
    (parts / "deep").mkdir()
    (parts / "deep/part").write_bytes(b"p" * 20_000_000)
    (board / "train").mkdir()
    (board / "link").symlink_to("/etc/hostname")
    os.mkfifo(board / "fifo")
    (board / os.fsdecode(b"\\xff")).write_text("no key of S3")
    with open(board / "train/events", "ab", buffering=0) as events:
        number = 0
        while not stopped.wait(0.1):
            events.write(b"%d\\n" % number)
            number += 1
        events.write(b"end\\n")
    (parts / "last").write_text("last")
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"stop_grace_s": 30}) as service:
        yield service


@pytest.fixture(scope="module")
def jobs(service: Service, jobs_of: Any) -> Any:
    return jobs_of(service)


def test_files_are_in_s3_while_the_script_writes_them(service: Service, jobs: Any) -> None:
    board = {"S3OutputPath": f"s3://{BUCKET}/boards/"}
    intermediate = {"sagemaker_s3_output": f'"s3://{BUCKET}/parts"'}
    name = jobs.create(SCRIPT, TensorBoardOutputConfig=board, HyperParameters=intermediate)
    assert jobs.describe(name)["TensorBoardOutputConfig"] == board
    events, part = f"boards/{name}/tensorboard-output/train/events", f"parts/{name}/output/intermediate/deep/part"

    def stored(key: str) -> bytes:
        try:
            return jobs.object(f"s3://{BUCKET}/{key}")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
            return b""

    jobs.wait_until(lambda: stored(events).count(b"\n") > 1, lambda: "\n".join(jobs.log(name)))
    assert stored(events).startswith(b"0\n1\n")
    jobs.wait_until(lambda: stored(part) == b"p" * 20_000_000, lambda: "\n".join(jobs.log(name)))
    service.kill()
    service.start()
    before = stored(events)
    jobs.wait_until(lambda: len(stored(events)) > len(before), lambda: "\n".join(jobs.log(name)))
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    *numbers, end = stored(events).split()
    assert (numbers, end) == ([b"%d" % number for number in range(len(numbers))], b"end")
    assert stored(part.replace("deep/part", "last")) == b"last"
    keys = [each["Key"] for each in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"boards/{name}")["Contents"]]
    assert keys == [events]
    complaints = [line for line in jobs.log(name) if "is not uploaded" in line]
    assert len(complaints) == 1
    assert "surrogates not allowed" in complaints[0]


def test_a_write_that_the_role_may_not_do_is_logged_and_the_job_continues(jobs_of: Any) -> None:
    nothing = {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
    with Service(settings={"roles": {"SageMakerRole": nothing}}) as service:
        jobs = jobs_of(service)
        script = "open('/opt/ml/output/tensorboard/events', 'w').write('1')"
        job = jobs.run(script, TensorBoardOutputConfig={"S3OutputPath": f"s3://{BUCKET}/boards"})
        assert job["TrainingJobStatus"] == "Completed"
        (text,) = [line for line in jobs.log(job["TrainingJobName"]) if "is not uploaded" in line]
        assert "AccessDenied" in text and "s3:PutObject" in text


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"TensorBoardOutputConfig": {"S3OutputPath": "s3://absent/x"}}, "tensorBoardOutputConfig.s3OutputPath"),
        ({"TensorBoardOutputConfig": {"S3OutputPath": f"https://{BUCKET}/x"}}, "is not an S3 URI"),
        ({"HyperParameters": {"sagemaker_s3_output": "s3://absent/x"}}, "hyperParameters.sagemaker_s3_output"),
        ({"HyperParameters": {"sagemaker_s3_output": "http://x/y"}}, "is not an S3 URI"),
        *(
            ({"TensorBoardOutputConfig": {"S3OutputPath": f"s3://{BUCKET}/x", "LocalPath": path}}, "below /opt/ml")
            for path in ("/opt/ml", "/opt/ml/../etc", "/var/logs", "/opt/ml/input/data", "opt/ml/x", "/opt/ml//")
        ),
    ],
)
def test_places_that_cannot_be_synced_are_refused(jobs: Any, members: dict[str, Any], text: str) -> None:
    with pytest.raises(ClientError) as caught:
        jobs.create("", **members)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert text in caught.value.response["Error"]["Message"]
