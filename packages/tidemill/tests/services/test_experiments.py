"""Experiments, trials, trial components and their metrics by boto3."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import pstdev
from typing import Any

import pytest

from tidemill.control.experiments.points import MetricPoints
from tidemill.control.resources import TRIAL_COMPONENT
from tidemill.core.experiments import MetricPoint
from tidemill.core.training import FinalMetric, SecondaryStatus

ARN = "arn:aws:sagemaker:us-west-2:000000000000"
IMAGE = "tensorflow-training:2.21.0-cpu-py312"
CREATED = datetime.fromtimestamp(1_700_000_000, tz=UTC)
CREATOR = {"IamIdentity": {"Arn": "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user", "PrincipalId": "user"}}


@pytest.fixture
def trial(sagemaker: Any) -> str:
    sagemaker.create_experiment(ExperimentName="tides")
    sagemaker.create_trial(TrialName="deep", ExperimentName="tides")
    return "deep"


def shown(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "ResponseMetadata"}


def component(sagemaker: Any, name: str, *trials: str, **members: Any) -> str:
    arn = sagemaker.create_trial_component(TrialComponentName=name, **members)["TrialComponentArn"]
    for each in trials:
        sagemaker.associate_trial_component(TrialComponentName=name, TrialName=each)
    return arn


def listed(sagemaker: Any, **members: Any) -> list[str]:
    reply = sagemaker.list_trial_components(**members)
    return [each["TrialComponentName"] for each in reply["TrialComponentSummaries"]]


def test_experiments_and_trials_are_described_updated_and_listed(sagemaker, stage, trial):
    assert shown(sagemaker.describe_experiment(ExperimentName="tides")) == {
        "ExperimentName": "tides",
        "DisplayName": "tides",
        "ExperimentArn": f"{ARN}:experiment/tides",
        "CreationTime": CREATED,
        "CreatedBy": CREATOR,
        "LastModifiedTime": CREATED + timedelta(milliseconds=1),  # it got a trial
    }
    assert shown(sagemaker.describe_trial(TrialName="deep")) == {
        "TrialName": "deep",
        "DisplayName": "deep",
        "ExperimentName": "tides",
        "TrialArn": f"{ARN}:experiment-trial/deep",
        "CreationTime": CREATED,
        "CreatedBy": CREATOR,
        "LastModifiedTime": CREATED,
    }
    stage.clock.ms += 1000
    sagemaker.create_experiment(ExperimentName="winds", DisplayName="Winds", Description="of the north")
    sagemaker.create_trial(TrialName="calm", ExperimentName="winds")
    sagemaker.update_experiment(ExperimentName="winds", Description="of the south")
    sagemaker.update_trial(TrialName="deep", DisplayName="Deep")
    winds = sagemaker.describe_experiment(ExperimentName="winds")
    assert (winds["DisplayName"], winds["Description"], winds["LastModifiedBy"]) == (
        "Winds",
        "of the south",
        CREATOR,
    )
    assert sagemaker.describe_trial(TrialName="deep")["DisplayName"] == "Deep"
    found = sagemaker.list_experiments(SortBy="Name", SortOrder="Ascending")["ExperimentSummaries"]
    assert [each["ExperimentName"] for each in found] == ["tides", "winds"]
    assert [each["TrialName"] for each in sagemaker.list_trials()["TrialSummaries"]] == ["calm", "deep"]
    (of_winds,) = sagemaker.list_trials(ExperimentName="winds")["TrialSummaries"]
    assert of_winds["TrialArn"] == f"{ARN}:experiment-trial/calm"
    before = sagemaker.list_trials(CreatedBefore=CREATED)["TrialSummaries"]
    assert [each["TrialName"] for each in before] == ["deep"]


def test_names_are_unique_and_missing_ones_are_named(sagemaker, trial, refusal):
    for call, members in (
        (sagemaker.create_experiment, {"ExperimentName": "tides"}),
        (sagemaker.create_trial, {"TrialName": "deep", "ExperimentName": "tides"}),
    ):
        status, code, message = refusal(call, **members)
        assert (status, code) == (400, "ValidationException") and "already exists" in message
    for call, members, named in (
        (sagemaker.describe_experiment, {"ExperimentName": "x"}, "Experiment 'x'"),
        (sagemaker.create_trial, {"TrialName": "t", "ExperimentName": "x"}, "Experiment 'x'"),
        (sagemaker.update_trial, {"TrialName": "x"}, "Trial 'x'"),
        (sagemaker.list_trials, {"ExperimentName": "x"}, "Experiment 'x'"),
        (sagemaker.list_trial_components, {"TrialName": "x"}, "Trial 'x'"),
        (sagemaker.describe_trial_component, {"TrialComponentName": "x"}, "TrialComponent 'x'"),
        (sagemaker.associate_trial_component, {"TrialComponentName": "x", "TrialName": "deep"}, "TrialComponent 'x'"),
    ):
        status, code, message = refusal(call, **members)
        assert (status, code, message) == (400, "ResourceNotFound", f"{named} does not exist.")
    assert [each["TrialName"] for each in sagemaker.list_trials()["TrialSummaries"]] == ["deep"]


def test_a_component_is_updated_member_by_member(sagemaker, stage):
    arn = component(
        sagemaker,
        "run",
        Parameters={"rate": {"NumberValue": 0.1}, "kind": {"StringValue": "lstm"}},
        InputArtifacts={"data": {"Value": "s3://data/in", "MediaType": "text/csv"}},
        StartTime=CREATED,
    )
    sagemaker.update_trial_component(
        TrialComponentName="run",
        DisplayName="Run",
        Status={"PrimaryStatus": "Completed", "Message": "done"},
        EndTime=CREATED + timedelta(minutes=1),
        Parameters={"rate": {"NumberValue": 0.2}, "depth": {"NumberValue": 3}},
        ParametersToRemove=["kind"],
        OutputArtifacts={"model": {"Value": "s3://data/model"}},
    )
    described = shown(sagemaker.describe_trial_component(TrialComponentName="run"))
    modified = described.pop("LastModifiedTime")
    assert modified > CREATED
    assert described == {
        "TrialComponentName": "run",
        "TrialComponentArn": arn,
        "DisplayName": "Run",
        "Status": {"PrimaryStatus": "Completed", "Message": "done"},
        "StartTime": CREATED,
        "EndTime": CREATED + timedelta(minutes=1),
        "Parameters": {"rate": {"NumberValue": 0.2}, "depth": {"NumberValue": 3.0}},
        "InputArtifacts": {"data": {"Value": "s3://data/in", "MediaType": "text/csv"}},
        "OutputArtifacts": {"model": {"Value": "s3://data/model"}},
        "CreationTime": CREATED,
        "CreatedBy": CREATOR,
        "LastModifiedBy": CREATOR,
    }
    (summary,) = sagemaker.list_trial_components()["TrialComponentSummaries"]
    assert {**summary, "LastModifiedTime": modified} == {
        **{name: described[name] for name in ("TrialComponentName", "TrialComponentArn", "DisplayName", "Status")},
        **{name: described[name] for name in ("StartTime", "EndTime", "CreationTime", "CreatedBy", "LastModifiedBy")},
        "LastModifiedTime": modified,
    }


def test_components_are_listed_by_trial_and_experiment_page_by_page(sagemaker, stage, trial):
    sagemaker.create_experiment(ExperimentName="winds")
    sagemaker.create_trial(TrialName="calm", ExperimentName="winds")
    for number in range(5):
        stage.clock.ms += number % 2  # some have the same time
        component(sagemaker, f"run-{number}", "deep")
    component(sagemaker, "both", "deep", "calm")
    component(sagemaker, "none")
    assert listed(sagemaker, TrialName="calm") == listed(sagemaker, ExperimentName="winds") == ["both"]
    of_both = sagemaker.list_trials(TrialComponentName="both", SortBy="Name", SortOrder="Ascending")["TrialSummaries"]
    assert [each["TrialName"] for each in of_both] == ["calm", "deep"]
    for order in ({}, {"SortOrder": "Ascending"}, {"SortBy": "Name"}):
        pages = sagemaker.get_paginator("list_trial_components").paginate(
            ExperimentName="tides", **order, PaginationConfig={"PageSize": 2}
        )
        names = [[each["TrialComponentName"] for each in page["TrialComponentSummaries"]] for page in pages]
        assert [len(page) for page in names] == [2, 2, 2]
        joined = [name for page in names for name in page]
        assert joined == listed(sagemaker, ExperimentName="tides", MaxResults=100, **order)
        assert sorted(joined) == ["both", *(f"run-{number}" for number in range(5))]


def test_a_page_continues_after_its_last_component_when_others_come_and_go(sagemaker, stage, trial, refusal):
    for number in range(4):
        stage.clock.ms += 1
        component(sagemaker, f"run-{number}", "deep")
    first = sagemaker.list_trial_components(TrialName="deep", MaxResults=2)
    assert [each["TrialComponentName"] for each in first["TrialComponentSummaries"]] == ["run-3", "run-2"]
    stage.clock.ms += 1
    component(sagemaker, "run-4", "deep")
    sagemaker.disassociate_trial_component(TrialComponentName="run-2", TrialName="deep")
    assert listed(sagemaker, TrialName="deep", MaxResults=2, NextToken=first["NextToken"]) == ["run-1", "run-0"]
    for token in (first["NextToken"], "other"):
        status, code, message = refusal(sagemaker.list_trial_components, NextToken=token)
        assert (status, code) == (400, "ValidationException") and "not a token of this listing" in message


def test_what_has_children_is_kept_until_they_are_gone(sagemaker, trial, refusal):
    component(sagemaker, "run", "deep")
    sagemaker.associate_trial_component(TrialComponentName="run", TrialName="deep")  # a second time
    for call, members, named in (
        (sagemaker.delete_experiment, {"ExperimentName": "tides"}, "has 1 trials"),
        (sagemaker.delete_trial, {"TrialName": "deep"}, "has 1 trial components"),
        (sagemaker.delete_trial_component, {"TrialComponentName": "run"}, "the trial 'deep'"),
    ):
        _, code, message = refusal(call, **members)
        assert code == "ValidationException" and named in message
    arns = sagemaker.disassociate_trial_component(TrialComponentName="run", TrialName="deep")
    assert arns["TrialArn"] == f"{ARN}:experiment-trial/deep"
    _, code, _ = refusal(sagemaker.disassociate_trial_component, TrialComponentName="run", TrialName="deep")
    assert code == "ResourceNotFound"
    assert sagemaker.delete_trial_component(TrialComponentName="run")["TrialComponentArn"].endswith("/run")
    assert sagemaker.delete_trial(TrialName="deep")["TrialArn"] == f"{ARN}:experiment-trial/deep"
    assert sagemaker.delete_experiment(ExperimentName="tides")["ExperimentArn"] == f"{ARN}:experiment/tides"
    assert sagemaker.list_experiments()["ExperimentSummaries"] == []


def test_all_of_them_have_tags(sagemaker, trial):
    tags = [{"Key": "team", "Value": "a"}]
    component(sagemaker, "run", Tags=tags)
    for kind, name in (("experiment", "tides"), ("experiment-trial", "deep")):
        sagemaker.add_tags(ResourceArn=f"{ARN}:{kind}/{name}", Tags=tags)
    for kind, name in (("experiment", "tides"), ("experiment-trial", "deep"), (TRIAL_COMPONENT, "run")):
        assert sagemaker.list_tags(ResourceArn=f"{ARN}:{kind}/{name}")["Tags"] == tags


# Metrics


def put(metrics: Any, name: str, values: list[float], *, first_step: int = 0, every_s: int = 1) -> None:
    data = [
        {
            "MetricName": name,
            "Timestamp": CREATED + timedelta(seconds=(first_step + index) * every_s),
            "Step": first_step + index,
            "Value": value,
        }
        for index, value in enumerate(values)
    ]
    for begin in range(0, len(data), 10):
        assert (
            metrics.batch_put_metrics(TrialComponentName="run", MetricData=data[begin : begin + 10]).get("Errors", [])
            == []
        )


def test_the_statistics_of_metrics_are_described(sagemaker, metrics):
    arn = component(sagemaker, "run")
    put(metrics, "loss", [4.0, 1.0])
    put(metrics, "loss", [3.0, 2.0], first_step=2)
    put(metrics, "accuracy", [0.5])
    loss, accuracy = sagemaker.describe_trial_component(TrialComponentName="run")["Metrics"]
    deviation = loss.pop("StdDev")
    assert deviation == pytest.approx(1.25**0.5)
    assert loss == {
        "MetricName": "loss",
        "SourceArn": arn,
        "TimeStamp": CREATED + timedelta(seconds=3),
        "Max": 4.0,
        "Min": 1.0,
        "Last": 2.0,
        "Count": 4,
        "Avg": 2.5,
    }
    assert (accuracy["MetricName"], accuracy["Count"], accuracy["StdDev"]) == ("accuracy", 1, 0.0)


def query(arn: str, stat: str, period: str = "IterationNumber", **members: int) -> dict[str, Any]:
    axis = "IterationNumber" if period == "IterationNumber" else "Timestamp"
    return {
        "MetricName": "loss",
        "ResourceArn": arn,
        "MetricStat": stat,
        "Period": period,
        "XAxisType": axis,
        **members,
    }


def test_metrics_are_read_by_step_and_by_time(sagemaker, metrics):
    arn = component(sagemaker, "run")
    put(metrics, "loss", [4.0, 1.0, 3.0], every_s=40)
    put(metrics, "loss", [2.0], first_step=0)  # another value of the first step
    begin = 1_699_999_980  # the minute of CREATED
    queries = [
        query(arn, "Max"),
        query(arn, "Count", Start=1, End=2),
        query(arn, "Avg", "OneMinute"),
        query(arn, "Last", "OneHour"),
        query(arn, "StdDev", "FiveMinute", End=0),
        {**query(arn, "Min"), "Period": "OneHour"},
        query(f"{ARN}:experiment-trial-component/other", "Min"),
    ]
    results = metrics.batch_get_metrics(MetricQueries=queries)["MetricQueryResults"]
    assert [each["Status"] for each in results] == ["Complete"] * 5 + ["ValidationError"] * 2
    assert [(each["XAxisValues"], each["MetricValues"]) for each in results[:5]] == [
        ([0, 1, 2], [4.0, 1.0, 3.0]),
        ([1, 2], [1.0, 1.0]),
        ([begin, begin + 60], [3.0, 2.0]),
        ([1_699_999_200], [3.0]),
        ([], []),
    ]
    assert "does not fit" in results[5]["Message"] and "does not exist" in results[6]["Message"]


def test_many_values_are_kept_in_order_and_go_with_their_component(sagemaker, metrics, stage):
    arn = component(sagemaker, "run")
    points = [("loss", MetricPoint(1_700_000_000_000, float(step), step)) for step in range(2500)]
    stored = MetricPoints(stage.records, clock=stage.clock)  # a request of BatchPutMetrics has at most 10
    for begin in range(0, len(points), 700):
        asyncio.run(stored.add("run", points[begin : begin + 700]))
    (result,) = metrics.batch_get_metrics(MetricQueries=[query(arn, "Last")])["MetricQueryResults"]
    assert result["XAxisValues"] == list(range(2500)) and result["MetricValues"][-1] == 2499.0
    sagemaker.delete_trial_component(TrialComponentName="run")
    component(sagemaker, "run")
    put(metrics, "loss", [1.0])
    (result,) = metrics.batch_get_metrics(MetricQueries=[query(arn, "Count")])["MetricQueryResults"]
    assert result["MetricValues"] == [1.0]


def test_metrics_of_a_component_that_does_not_exist_are_refused(sagemaker, metrics, refusal):
    data = [{"MetricName": "loss", "Timestamp": CREATED, "Value": 1.0}]
    _, code, message = refusal(metrics.batch_put_metrics, TrialComponentName="other", MetricData=data)
    assert (code, message) == ("ResourceNotFound", "TrialComponent 'other' does not exist.")


# Jobs


def train(sagemaker: Any, name: str, **config: str) -> None:
    sagemaker.create_training_job(
        TrainingJobName=name,
        RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        HyperParameters={
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": "s3://data/code.tar.gz",
            "epochs": "3",
            "kind": '"lstm"',
            "limit": "nan",
        },
        InputDataConfig=[
            {
                "ChannelName": "train",
                "ContentType": "text/csv",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train"}},
            }
        ],
        OutputDataConfig={"S3OutputPath": "s3://data/out"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
        **({"ExperimentConfig": config} if config else {}),
    )


def test_a_job_with_an_experiment_has_a_component_that_its_end_completes(sagemaker, stage, trial):
    component(sagemaker, "run", "deep")
    train(
        sagemaker,
        "job",
        ExperimentName="tides",
        TrialName="deep",
        TrialComponentDisplayName="Training",
        RunName="run",
    )
    arn = f"{ARN}:training-job/job"
    described = sagemaker.describe_trial_component(TrialComponentName="job-aws-training-job")
    assert described["Source"] == {"SourceArn": arn, "SourceType": "SageMakerTrainingJob"}
    assert described["Status"] == {"PrimaryStatus": "InProgress"} and "EndTime" not in described
    assert sorted(listed(sagemaker, TrialName="deep")) == ["job-aws-training-job", "run"]
    assert listed(sagemaker, SourceArn=arn.lower()) == ["job-aws-training-job"]
    assert sagemaker.describe_trial_component(TrialComponentName="run")["Sources"] == [{"SourceArn": arn}]
    stage.clock.ms += 60_000
    statistics = {"count": 3, "mean": 0.5, "m2": 0.125, "min": 0.25, "max": 0.75, "last": 0.25, "at_ms": stage.clock.ms}
    found = (FinalMetric("loss", 0.25, stage.clock.ms, statistics), FinalMetric("rate", 0.1, stage.clock.ms))
    asyncio.run(
        stage.training.update(
            "job",
            lambda job: replace(
                job.enter(SecondaryStatus.COMPLETED, at_ms=stage.clock.ms, message="done"),
                final_metrics=found,
                model_artifacts="s3://data/out/job/output/model.tar.gz",
            ),
        )
    )
    described = sagemaker.describe_trial_component(TrialComponentName="job-aws-training-job")
    assert (described["DisplayName"], described["Status"]) == ("Training", {"PrimaryStatus": "Completed"})
    assert (described["StartTime"], described["EndTime"]) == (CREATED, CREATED + timedelta(minutes=1))
    parameters = described["Parameters"]
    assert parameters["epochs"] == {"NumberValue": 3.0} and parameters["kind"] == {"StringValue": '"lstm"'}
    assert parameters["limit"] == {"StringValue": "nan"}
    assert parameters["SageMaker.InstanceType"] == {"StringValue": "ml.m5.large"}
    assert parameters["SageMaker.VolumeSizeInGB"] == {"NumberValue": 10.0}
    assert described["InputArtifacts"] == {
        "train": {"Value": "s3://data/train", "MediaType": "text/csv"},
        "SageMaker.ImageUri": {"Value": IMAGE},
    }
    model = {"Value": "s3://data/out/job/output/model.tar.gz"}
    assert described["OutputArtifacts"] == {"SageMaker.ModelArtifact": model}
    loss, rate = described["Metrics"]
    assert rate == {"MetricName": "rate", "SourceArn": arn, "TimeStamp": CREATED + timedelta(minutes=1), "Last": 0.1}
    assert loss.pop("StdDev") == pytest.approx((0.125 / 3) ** 0.5)
    of_all = {"Max": 0.75, "Min": 0.25, "Count": 3, "Avg": 0.5, "Last": 0.25}
    assert loss == {**rate, "MetricName": "loss", **of_all}
    sagemaker.delete_training_job(TrainingJobName="job")
    assert listed(sagemaker, SourceArn=arn) == ["job-aws-training-job"]  # it outlives the job
    train(sagemaker, "job", TrialName="deep")
    described = sagemaker.describe_trial_component(TrialComponentName="job-aws-training-job")
    assert described["Status"] == {"PrimaryStatus": "InProgress"} and "Metrics" not in described


def end(stage: Any, name: str) -> None:
    change = asyncio.run(
        stage.training.update(
            name, lambda job: job.enter(SecondaryStatus.COMPLETED, at_ms=stage.clock.ms, message="done")
        )
    )
    assert change.status.terminal


def test_a_script_without_an_experiment_finds_the_component_of_its_job(sagemaker, stage):
    arn = f"{ARN}:training-job/alone"
    assert listed(sagemaker, SourceArn=arn) == []  # no such job
    train(sagemaker, "alone")
    assert listed(sagemaker) == []  # only for those who look
    assert listed(sagemaker, SourceArn=arn) == ["alone-aws-training-job"]
    name = {"TrialComponentName": "alone-aws-training-job"}
    sagemaker.update_trial_component(**name, Parameters={"rate": {"NumberValue": 0.1}})
    assert listed(sagemaker, SourceArn=arn) == ["alone-aws-training-job"]
    described = sagemaker.describe_trial_component(**name)
    assert described["Parameters"]["rate"] == {"NumberValue": 0.1}  # looking again changes nothing
    assert described["Parameters"]["epochs"] == {"NumberValue": 3.0}
    assert described["Status"] == {"PrimaryStatus": "InProgress"}
    stage.clock.ms += 1000
    end(stage, "alone")
    described = sagemaker.describe_trial_component(**name)
    assert described["Status"] == {"PrimaryStatus": "Completed"}
    assert described["Parameters"]["rate"] == {"NumberValue": 0.1}
    train(sagemaker, "short")
    end(stage, "short")
    assert listed(sagemaker, SourceArn=f"{ARN}:training-job/short") == []  # too late


def test_the_component_of_a_training_has_the_series_of_its_log_and_what_the_script_puts(
    sagemaker, metrics, stage, trial
):
    train(sagemaker, "job", TrialName="deep")
    name, start_ms = "job-aws-training-job", stage.clock.ms
    (stream,) = stage.training.get("job").log_streams
    arn = f"{ARN}:experiment-trial-component/{name}"

    def series(stat: str, period: str = "OneMinute") -> tuple[list[int], list[float]]:
        (result,) = metrics.batch_get_metrics(MetricQueries=[query(arn, stat, period)])["MetricQueryResults"]
        return result["XAxisValues"], result["MetricValues"]

    assert series("Count") == ([], [])
    lines = [(start_ms + number * 30_000, f"step {number} loss={number}") for number in range(4)]
    stage.write_log("/aws/sagemaker/TrainingJobs", stream, lines)
    minute = start_ms // 60_000 * 60
    assert series("Count") == ([minute, minute + 60], [2.0, 2.0])  # while the job runs
    assert series("Last") == ([minute, minute + 60], [1.0, 3.0])
    data = [{"MetricName": "loss", "Timestamp": CREATED + timedelta(seconds=1), "Step": 7, "Value": 9.0}]
    metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)
    assert series("Max") == ([minute, minute + 60], [9.0, 3.0])
    assert series("Max", "IterationNumber") == ([7], [9.0])
    statistics = {"count": 4, "mean": 1.5, "m2": 5.0, "min": 0.0, "max": 3.0, "last": 3.0, "at_ms": lines[-1][0]}
    asyncio.run(
        stage.training.update(
            "job",
            lambda job: replace(
                job.enter(SecondaryStatus.COMPLETED, at_ms=lines[-1][0], message="done"),
                final_metrics=(FinalMetric("loss", 3.0, lines[-1][0], statistics),),
            ),
        )
    )
    (loss,) = sagemaker.describe_trial_component(TrialComponentName=name)["Metrics"]
    values = [0.0, 1.0, 2.0, 3.0, 9.0]
    assert (loss["Count"], loss["Min"], loss["Max"], loss["Last"]) == (5, 0.0, 9.0, 3.0)
    assert loss["Avg"] == pytest.approx(3.0) and loss["StdDev"] == pytest.approx(pstdev(values))
    assert series("Count")[1] == [3.0, 2.0]
    # The component of a new job of that name begins anew.
    sagemaker.delete_training_job(TrainingJobName="job")
    assert series("Count")[1] == [1.0]  # what was put; the log is that of the deleted job
    train(sagemaker, "job", TrialName="deep")
    metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)
    assert series("Count", "IterationNumber") == ([7], [1.0])


def test_a_job_of_an_experiment_alone_gets_a_trial_and_unknown_names_are_refused(sagemaker, trial, refusal):
    train(sagemaker, "job", ExperimentName="tides")
    assert listed(sagemaker, ExperimentName="tides") == ["job-aws-training-job"]
    names = [each["TrialName"] for each in sagemaker.list_trials(ExperimentName="tides")["TrialSummaries"]]
    assert sorted(names) == ["deep", "job-aws-trial"]
    sagemaker.create_experiment(ExperimentName="winds")
    for config, named in (
        ({"ExperimentName": "x"}, "Experiment 'x' does not exist"),
        ({"TrialName": "x"}, "Trial 'x' does not exist"),
        ({"TrialName": "deep", "ExperimentName": "winds"}, "it belongs to 'tides'"),
        ({"TrialName": "deep", "RunName": "x"}, "TrialComponent 'x' does not exist"),
    ):
        _, code, message = refusal(train, sagemaker=sagemaker, name="other", **config)
        assert code == "ResourceNotFound" and named in message
    assert sagemaker.list_training_jobs(NameContains="other")["TrainingJobSummaries"] == []
    assert listed(sagemaker, TrialName="deep") == []


def test_processing_and_transform_jobs_have_components_too(sagemaker, trial):
    config = {"TrialName": "deep"}
    sagemaker.create_processing_job(
        ProcessingJobName="prepare",
        RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        AppSpecification={
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/prepare.py"],
            "ContainerArguments": ["--rows", "3"],
        },
        ProcessingResources={"ClusterConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1}},
        ProcessingInputs=[
            {
                "InputName": "code",
                "S3Input": {
                    "S3Uri": "s3://data/code",
                    "LocalPath": "/opt/ml/processing/input/code",
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                },
            }
        ],
        ExperimentConfig=config,
    )
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    sagemaker.create_model(ModelName="m", PrimaryContainer=container)
    sagemaker.create_transform_job(
        TransformJobName="predict",
        ModelName="m",
        TransformInput={"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/in"}}},
        TransformOutput={"S3OutputPath": "s3://data/out"},
        TransformResources={"InstanceType": "ml.c5.large", "InstanceCount": 1},
        ExperimentConfig=config,
    )
    names = listed(sagemaker, TrialName="deep", SortBy="Name", SortOrder="Ascending")
    assert names == ["predict-aws-transform-job", "prepare-aws-processing-job"]
    predict, prepare = (sagemaker.describe_trial_component(TrialComponentName=name) for name in names)
    assert prepare["Parameters"]["SageMaker.Arguments"] == {"StringValue": "--rows 3"}
    assert prepare["InputArtifacts"]["code"] == {"Value": "s3://data/code"}
    assert predict["InputArtifacts"]["SageMaker.ModelName"] == {"Value": "m"}
    assert predict["OutputArtifacts"] == {"SageMaker.TransformOutput": {"Value": "s3://data/out"}}


def artifact(sagemaker: Any, name: str, *, kind: str = "DataSet", **source: str) -> str:
    place: dict[str, Any] = {"SourceUri": f"s3://data/{name}"}
    if source:
        place["SourceTypes"] = [{"SourceIdType": key, "Value": value} for key, value in source.items()]
    return sagemaker.create_artifact(ArtifactName=name, Source=place, ArtifactType=kind)["ArtifactArn"]


def test_artifacts_are_found_by_their_source_updated_tagged_and_listed(sagemaker, stage):
    arn = artifact(sagemaker, "rows", S3ETag="e", Custom="c")
    assert arn.startswith(f"{ARN}:artifact/")
    turned = [{"SourceIdType": "Custom", "Value": "c"}, {"SourceIdType": "S3ETag", "Value": "e"}]
    source = {"SourceUri": "s3://data/rows", "SourceTypes": turned}
    with pytest.raises(sagemaker.exceptions.ClientError, match=f"s3://data/rows' already exists: {arn}"):
        sagemaker.create_artifact(ArtifactName="again", Source=source, ArtifactType="DataSet")
    stage.clock.ms += 1000
    sagemaker.update_artifact(ArtifactArn=arn, ArtifactName="lines", Properties={"a": "1", "b": "2"})
    sagemaker.update_artifact(ArtifactArn=arn, Properties={"c": "3"}, PropertiesToRemove=["a"])
    assert shown(sagemaker.describe_artifact(ArtifactArn=arn)) == {
        "ArtifactName": "lines",
        "ArtifactArn": arn,
        "Source": source | {"SourceTypes": turned[::-1]},
        "ArtifactType": "DataSet",
        "Properties": {"b": "2", "c": "3"},
        "CreationTime": CREATED,
        "CreatedBy": CREATOR,
        "LastModifiedTime": CREATED + timedelta(milliseconds=1001),
        "LastModifiedBy": CREATOR,
    }
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "tides"}])
    model = artifact(sagemaker, "model", kind="Model")

    def found(**members: Any) -> list[str]:
        return [each["ArtifactArn"] for each in sagemaker.list_artifacts(**members)["ArtifactSummaries"]]

    assert found(SortOrder="Ascending") == [arn, model]
    assert found(ArtifactType="Model") == found(SourceUri="s3://data/model") == [model]
    assert found(CreatedBefore=CREATED + timedelta(milliseconds=500)) == [arn]
    page = sagemaker.list_artifacts(MaxResults=1)
    assert page["ArtifactSummaries"][0]["ArtifactArn"] == model
    assert found(MaxResults=1, NextToken=page["NextToken"]) == [arn]

    assert sagemaker.delete_artifact(Source=source)["ArtifactArn"] == arn
    with pytest.raises(sagemaker.exceptions.ResourceNotFound, match="does not exist"):
        sagemaker.describe_artifact(ArtifactArn=arn)
    with pytest.raises(sagemaker.exceptions.ClientError, match="give ArtifactArn or Source"):
        sagemaker.delete_artifact()
    with pytest.raises(sagemaker.exceptions.ResourceNotFound):
        sagemaker.list_tags(ResourceArn=arn)


def test_associations_join_artifacts_with_runs_and_keep_their_artifacts(sagemaker, stage, trial):
    run = component(sagemaker, "run", trial)
    rows, chart = artifact(sagemaker, "rows"), artifact(sagemaker, "chart", kind="ROCCurve")
    for source, destination, kind in ((rows, run, "ContributedTo"), (run, chart, "Produced")):
        stage.clock.ms += 1
        sagemaker.add_association(SourceArn=source, DestinationArn=destination, AssociationType=kind)
    with pytest.raises(sagemaker.exceptions.ClientError, match="already exists"):
        sagemaker.add_association(SourceArn=run, DestinationArn=chart)
    elsewhere = rows.replace("us-west-2", "eu-west-1")
    for missing in (f"{ARN}:artifact/none", f"{ARN}:context/c", f"{ARN}:experiment-trial-component/none", elsewhere):
        with pytest.raises(sagemaker.exceptions.ResourceNotFound, match="does not exist"):
            sagemaker.add_association(SourceArn=missing, DestinationArn=run)

    def found(**members: Any) -> list[dict[str, Any]]:
        return sagemaker.list_associations(**members)["AssociationSummaries"]

    assert found(SourceArn=run) == [
        {
            "SourceArn": run,
            "SourceName": "run",
            "DestinationArn": chart,
            "DestinationName": "chart",
            "DestinationType": "ROCCurve",
            "AssociationType": "Produced",
            "CreationTime": CREATED + timedelta(milliseconds=2),
            "CreatedBy": CREATOR,
        }
    ]
    assert [each["SourceName"] for each in found()] == ["run", "rows"], "the newest come first"
    for order, first in (("SourceArn", "rows"), ("SourceType", "run"), ("DestinationArn", "run")):
        names = [each["SourceName"] for each in found(SortBy=order, SortOrder="Ascending")]
        assert names[0] == first and len(names) == 2, order
    assert [each["SourceName"] for each in found(AssociationType="ContributedTo", SourceType="DataSet")] == ["rows"]
    page = sagemaker.list_associations(MaxResults=1)
    assert [each["SourceName"] for each in found(MaxResults=1, NextToken=page["NextToken"])] == ["rows"]

    with pytest.raises(sagemaker.exceptions.ClientError, match="it has 1 associations; delete them first"):
        sagemaker.delete_artifact(ArtifactArn=rows)
    sagemaker.delete_association(SourceArn=rows, DestinationArn=run)
    sagemaker.delete_artifact(ArtifactArn=rows)
    with pytest.raises(sagemaker.exceptions.ResourceNotFound, match="does not exist"):
        sagemaker.delete_association(SourceArn=rows, DestinationArn=run)
    sagemaker.disassociate_trial_component(TrialComponentName="run", TrialName=trial)
    sagemaker.delete_trial_component(TrialComponentName="run")
    assert found() == [], "they go with the run"
    study = sagemaker.create_experiment(ExperimentName="study")["ExperimentArn"]
    sagemaker.add_association(SourceArn=study, DestinationArn=chart)
    sagemaker.delete_experiment(ExperimentName="study")
    assert found() == [], "and with the experiment"
    sagemaker.delete_artifact(ArtifactArn=chart)


def test_an_association_that_is_made_while_its_run_is_deleted_goes_with_it(sagemaker, stage, monkeypatch):
    run, rows = component(sagemaker, "run"), artifact(sagemaker, "rows")
    change = stage.records.change

    async def change_after_an_association(work: Any, **options: Any) -> Any:
        monkeypatch.setattr(stage.records, "change", change)
        await stage.lineage.associate(rows, run, kind=None, caller="someone")
        return await change(work, **options)

    monkeypatch.setattr(stage.records, "change", change_after_an_association)
    sagemaker.delete_trial_component(TrialComponentName="run")
    assert sagemaker.list_associations()["AssociationSummaries"] == []
    sagemaker.delete_artifact(ArtifactArn=rows)
