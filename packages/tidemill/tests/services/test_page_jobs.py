"""ListJobs, DescribeJob and the lines of logs, by botocore's client."""

import asyncio
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from sqlalchemy import update

from tidemill.control.slots import SlotHolder
from tidemill.core.training import FinalMetric, SecondaryStatus
from tidemill.store.database.schema import records
from tidemill.wire.signing.credentials import Credential

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
IMAGE = "tensorflow-training:2.21.0-cpu-py311"
GROUP = "/aws/sagemaker/TrainingJobs"


def train(sagemaker: Any, name: str, *, instances: int = 1, **members: Any) -> None:
    sagemaker.create_training_job(
        **{
            "TrainingJobName": name,
            "RoleArn": ROLE,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            },
            "HyperParameters": {"epochs": "3", "text": "x" * 300, "sagemaker_program": '"train.py"'},
            "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            **members,
        }
    )


@pytest.fixture
def every_kind(sagemaker: Any) -> None:
    """Create one job of each kind."""
    train(sagemaker, "trained", instances=2, Tags=[{"Key": "team", "Value": "north"}])
    sagemaker.create_processing_job(
        ProcessingJobName="prepared",
        RoleArn=ROLE,
        AppSpecification={"ImageUri": IMAGE, "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/prepare.py"]},
        ProcessingResources={"ClusterConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1}},
    )
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    sagemaker.create_model(ModelName="m", PrimaryContainer=container)
    sagemaker.create_transform_job(
        TransformJobName="predicted",
        ModelName="m",
        TransformInput={"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/in"}}},
        TransformOutput={"S3OutputPath": "s3://data/out"},
        TransformResources={"InstanceType": "ml.c5.large", "InstanceCount": 3},
    )
    sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="tuned",
        HyperParameterTuningJobConfig={
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2},
        },
        TrainingJobDefinition={
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            },
            "RoleArn": ROLE,
            "StaticHyperParameters": {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"s3://data/c"'},
            "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        },
    )


def test_jobs_of_each_kind_have_one_form(own: Any, stage: Any, every_kind: None) -> None:
    rows = {kind: own.list_jobs(Kind=kind)["Jobs"] for kind in ("training", "processing", "transform", "tuning")}
    assert [(kind, [row["Name"] for row in found]) for kind, found in rows.items()] == [
        ("training", ["trained"]),
        ("processing", ["prepared"]),
        ("transform", ["predicted"]),
        ("tuning", ["tuned"]),
    ]
    [trained] = rows["training"]
    assert trained["Instances"] == [{"InstanceType": "ml.m5.large", "InstanceCount": 2}]
    assert trained["HyperParameters"] == {"epochs": "3", "text": "x" * 256}, "without the SDK's own, and cut"
    assert (trained["Status"], trained["SecondaryStatus"], trained["Tags"]) == (
        "InProgress",
        "Starting",
        {"team": "north"},
    )
    assert [rows[kind][0]["Instances"] for kind in ("transform", "tuning")] == [
        [{"InstanceType": "ml.c5.large", "InstanceCount": 3}],
        [{"InstanceType": "ml.m5.xlarge", "InstanceCount": 1}],
    ]
    assert (rows["tuning"][0]["EndedTrainings"], rows["tuning"][0]["MaxTrainings"]) == (0, 4)


def test_a_description_has_the_request_as_it_was_sent(own: Any, stage: Any, every_kind: None) -> None:
    described = {
        kind: own.describe_job(Kind=kind, Name=name)
        for kind, name in (
            ("training", "trained"),
            ("processing", "prepared"),
            ("transform", "predicted"),
            ("tuning", "tuned"),
        )
    }
    assert json.loads(described["training"]["Request"])["HyperParameters"]["text"] == "x" * 300
    assert json.loads(described["tuning"]["Request"])["HyperParameterTuningJobName"] == "tuned"
    for kind, group in (("training", "TrainingJobs"), ("processing", "ProcessingJobs")):
        assert described[kind]["LogGroup"] == f"/aws/sagemaker/{group}"
        assert [phase["Status"] for phase in described[kind]["Phases"]] == ["Starting"]
    assert [stream.partition("/")[0] for stream in described["training"]["LogStreams"]] == ["trained", "trained"]
    assert described["transform"]["LogStreams"][-1] == "predicted/data-log"
    with pytest.raises(ClientError, match="no training job 'none'"):
        own.describe_job(Kind="training", Name="none")


def test_a_viewer_asks_for_what_has_changed_and_for_what_runs(own: Any, sagemaker: Any, stage: Any) -> None:
    for name in "abc":
        stage.clock.ms += 1000
        train(sagemaker, name)
    page = own.list_jobs(Kind="training", MaxResults=2)
    assert [row["Name"] for row in page["Jobs"]] == ["c", "b"], "the newest first"
    rest = own.list_jobs(Kind="training", MaxResults=2, NextToken=page["NextToken"])
    assert ([row["Name"] for row in rest["Jobs"]], "NextToken" in rest) == (["a"], False)
    with pytest.raises(ClientError, match="nextToken"):
        own.list_jobs(Kind="training", NextToken="none")

    since = datetime.fromtimestamp((stage.clock.ms + 1000) / 1000, tz=UTC)
    stage.clock.ms += 5000
    stage.change_job("a", lambda job: job.enter(SecondaryStatus.COMPLETED, at_ms=stage.clock.ms, message="done"))
    [changed] = own.list_jobs(Kind="training", ModifiedAfter=since)["Jobs"]
    assert (changed["Name"], changed["Status"]) == ("a", "Completed")
    assert changed["EndTime"] == changed["LastModifiedTime"]
    running = own.list_jobs(Kind="training", StatusEquals="InProgress")["Jobs"]
    assert [row["Name"] for row in running] == ["c", "b"]


def test_metrics_are_those_so_far_and_then_the_final_ones(own: Any, sagemaker: Any, stage: Any) -> None:
    train(sagemaker, "digits", instances=2)

    def metrics() -> dict[str, float]:
        [row] = own.list_jobs(Kind="training")["Jobs"]
        return row["Metrics"]

    for stream, loss in zip(stage.training.get("digits").log_streams, ("0.5", "0.25"), strict=True):
        stage.write_log(GROUP, stream, [(1000, "loss=9"), (1001, f"loss={loss}")])
    assert metrics() == {}, "the log of a job that has not begun is not read"
    stage.change_job("digits", lambda job: job.enter(SecondaryStatus.TRAINING, at_ms=stage.clock.ms, message="runs"))
    assert metrics() == {"loss": 0.5}
    final = (FinalMetric("loss", 0.125, stage.clock.ms),)
    stage.change_job(
        "digits",
        lambda job: replace(
            job.enter(SecondaryStatus.COMPLETED, at_ms=stage.clock.ms, message="done"), final_metrics=final
        ),
    )
    assert metrics() == {"loss": 0.125}


def test_the_queue_has_the_places_among_all_jobs(own: Any, sagemaker: Any, stage: Any) -> None:
    async def queue() -> None:
        assert stage.slots.try_take(SlotHolder("training-job", "runs"), 8)
        waiting = [
            asyncio.create_task(stage.slots.take(SlotHolder(kind, name), 1))
            for kind, name in (("training-job", "first"), ("processing-job", "second"), ("training-job", "third"))
        ]
        await asyncio.sleep(0)
        places = await asyncio.to_thread(own.list_jobs, Kind="training")
        assert places["Queue"] == [{"Name": "first", "Place": 1}, {"Name": "third", "Place": 3}]
        train(sagemaker, "third")
        described = await asyncio.to_thread(own.describe_job, Kind="training", Name="third")
        assert described["Queue"] == [{"Name": "third", "Place": 3}]
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    asyncio.run(queue())


def test_a_damaged_job_does_not_hide_the_others(own: Any, sagemaker: Any, stage: Any, database: Any) -> None:
    for name in "ab":
        train(sagemaker, name)
    damage = update(records).where(records.c.name == "a").values(created_ms=1)
    database.write_sync(lambda connection: connection.execute(damage) and None)
    assert [(row["Name"], row["Status"]) for row in own.list_jobs(Kind="training")["Jobs"]] == [
        ("b", "InProgress"),
        ("a", "Damaged"),
    ]


def test_a_viewer_sees_only_jobs_and_logs_that_its_policy_allows(
    own: Any, clients: Callable[..., Any], sagemaker: Any, stage: Any
) -> None:
    for name in ("mine", "theirs"):
        train(sagemaker, name, Tags=[{"Key": "team", "Value": "north"}])
        stage.write_log(GROUP, stage.training.get(name).log_streams[0], [(1000, f"log of {name}")])
    key = clients("iam").create_access_key(UserName="ann")["AccessKey"]
    jobs = "arn:aws:sagemaker:us-west-2:000000000000:training-job"
    statements = [
        {"Effect": "Allow", "Action": "sagemaker:ListTrainingJobs", "Resource": "*"},
        {"Effect": "Allow", "Action": "sagemaker:DescribeTrainingJob", "Resource": f"{jobs}/mine"},
        {
            "Effect": "Allow",
            "Action": "logs:GetLogEvents",
            "Resource": f"arn:aws:logs:*:*:log-group:{GROUP}:log-stream:mine/*",
        },
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    clients("iam").put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=policy)
    ann = clients("tidemill", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    [row] = ann.list_jobs(Kind="training")["Jobs"]
    assert (row["Name"], row["Tags"]) == ("mine", {}), "tags need sagemaker:ListTags"
    described = ann.describe_job(Kind="training", Name="mine")
    assert (described["Job"]["Name"], described["Job"]["Tags"]) == ("mine", {})
    assert "north" not in described["Request"]
    streams = {name: stage.training.get(name).log_streams[0] for name in ("mine", "theirs")}
    assert ann.get_log_lines(LogGroup=GROUP, LogStream=streams["mine"])["Lines"][0]["Message"] == "log of mine"
    for act in (
        lambda: ann.list_jobs(Kind="processing"),
        lambda: ann.describe_job(Kind="training", Name="theirs"),
        lambda: ann.get_log_lines(LogGroup=GROUP, LogStream=streams["theirs"]),
        lambda: ann.search_log_lines(LogGroup=GROUP, LogStream=streams["theirs"], Text="log"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            act()


def test_lines_are_read_and_found_by_number(own: Any, stage: Any) -> None:
    stream = "digits/algo-1-1"
    messages = [f"line {number}" for number in range(300)] + ["10%\r", "90%\r"]
    stage.write_log(GROUP, stream, [(1000 + number, message) for number, message in enumerate(messages)])
    named = {"LogGroup": GROUP, "LogStream": stream}
    end = own.get_log_lines(**named)
    assert (end["Count"], end["FirstKept"], len(end["Lines"])) == (301, 0, 200)
    assert [(line["Number"], line["Message"], line["IsState"]) for line in end["Lines"][-2:]] == [
        (299, "line 299", False),
        (300, "90%", True),
    ]
    [line] = own.get_log_lines(**named, FirstLine=42, MaxLines=1, MaxBytes=4)["Lines"]
    assert (line["Number"], line["Message"], line["Bytes"]) == (42, "line", 7)
    assert line["Time"].timestamp() == 1.042

    found = own.search_log_lines(**named, Text="LINE 29", IgnoreCase=True, FirstLine=100)
    assert (found["Lines"], found["IsComplete"], found["TookTooLong"]) == (list(range(290, 300)), True, False)
    part = own.search_log_lines(**named, Text="^line .5$", IsRegex=True, MaxLines=2)
    assert (part["Lines"], part["NextLine"], part["IsComplete"]) == ([15, 25], 35, False)
    with pytest.raises(ClientError, match="is not a regular expression"):
        own.search_log_lines(**named, Text="(", IsRegex=True)
    unwritten = {"LogGroup": GROUP, "LogStream": "none/algo-1-1"}
    assert own.get_log_lines(**unwritten)["Count"] == 0
    assert own.search_log_lines(**unwritten, Text="line")["Lines"] == []


def test_the_expressions_of_metrics_are_compiled_beside_the_requests(
    sagemaker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compile one of 500 characters can take seconds, in which the service would answer nobody."""
    compiled, threads = re.compile, []

    def compile_expression(text: str, *flags: Any) -> Any:
        threads.append((text, threading.current_thread().name))
        return compiled(text, *flags)

    monkeypatch.setattr(re, "compile", compile_expression)
    train(sagemaker, "digits")
    [name] = [name for text, name in threads if text == "loss=([0-9.]+)"]
    assert name.startswith("asyncio_"), "a thread of the pool"
