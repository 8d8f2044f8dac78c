"""Metrics of training jobs by boto3: statistics, data in pages, lists, and refusals."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

NAMESPACE = "/aws/sagemaker/TrainingJobs"
START = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)


@pytest.fixture
def job(sagemaker: Any, stage: Any) -> Any:
    """Return a function that creates a job with metrics, and logs lines at given seconds after START."""

    def create(name: str = "digits") -> Any:
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
                "TrainingInputMode": "File",
                "MetricDefinitions": [
                    {"Name": "loss", "Regex": "loss: ([0-9.]+)"},
                    {"Name": "val:acc", "Regex": "acc=([0-9.]+)"},
                ],
            },
            RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
            OutputDataConfig={"S3OutputPath": "s3://data/out"},
            ResourceConfig={"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
        stream = stage.training.get(name).log_streams[0]

        def log(*lines: tuple[float, str]) -> None:
            start_ms = int(START.timestamp() * 1000)
            stage.write_log(NAMESPACE, stream, [(start_ms + int(at_s * 1000), line) for at_s, line in lines])

        return log

    return create


def statistics(cloudwatch: Any, name: str = "digits", metric: str = "loss", **members: Any) -> list[dict[str, Any]]:
    """Return the data points ordered by time."""
    request = {
        "Namespace": NAMESPACE,
        "MetricName": metric,
        "Dimensions": [{"Name": "TrainingJobName", "Value": name}],
        "StartTime": START,
        "EndTime": START + timedelta(minutes=10),
        "Period": 60,
        "Statistics": ["Average"],
        **members,
    }
    return cloudwatch.get_metric_statistics(**request)["Datapoints"]


def test_points_are_summed_up_over_periods(cloudwatch: Any, job: Any) -> None:
    job()((0, "loss: 4"), (59.9, "loss: 2 acc=0.5"), (60, "loss: 1"), (200, "loss: 0.5"), (600, "loss: 9"))
    every = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]
    first, second, third = statistics(cloudwatch, Statistics=every, ExtendedStatistics=["p50", "p100"])
    assert first == {
        "Timestamp": START,
        "SampleCount": 2.0,
        "Average": 3.0,
        "Sum": 6.0,
        "Minimum": 2.0,
        "Maximum": 4.0,
        "Unit": "None",
        "ExtendedStatistics": {"p50": 3.0, "p100": 4.0},
    }
    assert [second["Timestamp"] - START, third["Timestamp"] - START] == [timedelta(minutes=1), timedelta(minutes=3)]
    assert [point["Average"] for point in statistics(cloudwatch, metric="val:acc")] == [0.5]


def test_a_start_is_rounded_down_to_the_minute_or_to_a_shorter_period(cloudwatch: Any, job: Any) -> None:
    job()((5, "loss: 1"), (13, "loss: 2"))
    late = START + timedelta(seconds=12)
    assert [point["Average"] for point in statistics(cloudwatch, StartTime=late)] == [1.5]
    assert statistics(cloudwatch, StartTime=late, Period=10) == [
        {"Timestamp": START + timedelta(seconds=10), "Average": 2.0, "Unit": "None"}
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"Namespace": "AWS/EC2"},
        {"MetricName": "other"},
        {"Dimensions": []},
        {"Dimensions": [{"Name": "TrainingJobName", "Value": "absent"}]},
        {"Dimensions": [{"Name": "Host", "Value": "digits/algo-1"}]},
        {"Unit": "Percent"},
        {"EndTime": START + timedelta(seconds=1)},
    ],
)
def test_an_unknown_metric_has_no_points(cloudwatch: Any, job: Any, members: dict[str, Any]) -> None:
    job()((5, "loss: 1"))
    assert statistics(cloudwatch, Unit="None") != []
    assert statistics(cloudwatch, **members) == []


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"Period": 7}, "InvalidParameterValue", "must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, not 7"),
        ({"EndTime": START}, "InvalidParameterCombination", "must be less than the parameter EndTime"),
        ({"Period": 1, "EndTime": START + timedelta(hours=1)}, "InvalidParameterCombination", "3,600 datapoints"),
        ({"ExtendedStatistics": ["tm90"]}, "InvalidParameterValue", "'tm90' at 'extendedStatistics'"),
        ({"Statistics": ["Median"]}, "ValidationError", "Median"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    cloudwatch: Any, job: Any, members: dict[str, Any], code: str, text: str, refusal: Any
) -> None:
    status, found, message = refusal(statistics, cloudwatch=cloudwatch, **members)
    assert (status, found) == (400, code)
    assert text in message


def test_statistics_need_a_statistic(cloudwatch: Any, refusal: Any) -> None:
    request = {"Namespace": NAMESPACE, "MetricName": "loss", "StartTime": START, "EndTime": START + timedelta(1)}
    _, code, message = refusal(cloudwatch.get_metric_statistics, Period=60, **request)
    assert code == "InvalidParameterCombination"
    assert "Statistics and ExtendedStatistics" in message


def query(number: int, metric: str, *, stat: str = "Average", **members: Any) -> dict[str, Any]:
    dimensions = [{"Name": "TrainingJobName", "Value": "digits"}]
    named = {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions}
    return {"Id": f"m{number}", "MetricStat": {"Metric": named, "Period": 60, "Stat": stat}, **members}


def data(cloudwatch: Any, *queries: dict[str, Any], **members: Any) -> dict[str, Any]:
    return cloudwatch.get_metric_data(
        MetricDataQueries=list(queries), StartTime=START, EndTime=START + timedelta(minutes=10), **members
    )


def test_data_of_several_metrics_come_in_one_reply_latest_first(cloudwatch: Any, job: Any) -> None:
    job()((0, "loss: 4"), (61, "loss: 2 acc=0.5"))
    loss, accuracy, none = data(
        cloudwatch,
        query(1, "loss"),
        query(2, "val:acc", stat="Maximum", Label="accuracy"),
        query(3, "other"),
        query(4, "loss", ReturnData=False),
    )["MetricDataResults"]
    assert (loss["Id"], loss["Label"], loss["Values"], loss["StatusCode"]) == ("m1", "loss", [2.0, 4.0], "Complete")
    assert loss["Timestamps"] == [START + timedelta(minutes=1), START]
    assert (accuracy["Label"], accuracy["Values"]) == ("accuracy", [0.5])
    assert (none["Values"], none["StatusCode"]) == ([], "Complete")
    upward = data(cloudwatch, query(1, "loss"), ScanBy="TimestampAscending")["MetricDataResults"][0]
    assert upward["Values"] == [4.0, 2.0]


def test_pages_of_data_hold_every_point_once(cloudwatch: Any, job: Any) -> None:
    job()(*((60 * minute, f"loss: {minute} acc={minute}") for minute in range(7)))
    pages = cloudwatch.get_paginator("get_metric_data").paginate(
        MetricDataQueries=[query(1, "loss"), query(2, "val:acc")],
        StartTime=START,
        EndTime=START + timedelta(minutes=10),
        ScanBy="TimestampAscending",
        MaxDatapoints=4,
    )
    found: dict[str, list[float]] = {"m1": [], "m2": []}
    sizes = []
    for page in pages:
        sizes.append(sum(len(result["Values"]) for result in page["MetricDataResults"]))
        for result in page["MetricDataResults"]:
            found[result["Id"]] += result["Values"]
    assert sizes == [4, 4, 4, 2]
    assert found == {"m1": [float(minute) for minute in range(7)], "m2": [float(minute) for minute in range(7)]}


@pytest.mark.parametrize(
    ("queries", "members", "code", "text"),
    [
        ([query(1, "loss"), query(1, "loss")], {}, "InvalidParameterValue", "another query has it"),
        ([{"Id": "m1"}], {}, "InvalidParameterCombination", "needs a MetricStat"),
        ([query(1, "loss", stat="IQM")], {}, "InvalidParameterValue", "'IQM' at 'metricDataQueries.1.member"),
        ([{"Id": "m1", "Expression": "m2 * 2"}], {}, "ValidationError", "there is no metric math"),
        ([query(1, "loss")], {"NextToken": "mine"}, "InvalidNextToken", "'mine'"),
        ([query(1, "loss")], {"MaxDatapoints": 0}, "InvalidParameterValue", "MaxDatapoints must be 1 to"),
    ],
)
def test_queries_that_cannot_be_answered_are_refused(
    cloudwatch: Any, queries: list[Any], members: dict[str, Any], code: str, text: str, refusal: Any
) -> None:
    _, found, message = refusal(lambda: data(cloudwatch, *queries, **members))
    assert found == code
    assert text in message


def test_metrics_that_have_points_are_listed(cloudwatch: Any, job: Any) -> None:
    job("one")((0, "loss: 4"))
    job("two")((0, "loss: 4 acc=1"))
    job("three")

    def listed(**members: Any) -> list[tuple[str, str]]:
        pages = cloudwatch.get_paginator("list_metrics").paginate(**members)
        found = [metric for page in pages for metric in page["Metrics"]]
        return sorted((each["Dimensions"][0]["Value"], each["MetricName"]) for each in found)

    every = [("one", "loss"), ("two", "loss"), ("two", "val:acc")]
    assert listed() == listed(Namespace=NAMESPACE) == listed(RecentlyActive="PT3H") == every
    assert listed(MetricName="val:acc") == [("two", "val:acc")]
    of_one = [{"Name": "TrainingJobName", "Value": "one"}]
    assert listed(Dimensions=of_one) == listed(Dimensions=of_one, RecentlyActive="PT3H") == [("one", "loss")]
    assert listed(Dimensions=[{"Name": "TrainingJobName"}]) == every
    assert listed(Namespace="AWS/EC2") == listed(Dimensions=[{"Name": "Host"}]) == []


def test_a_job_in_many_is_listed_page_by_page(cloudwatch: Any, job: Any) -> None:
    for number in range(30):
        job(f"job-{number}")
    job("job-7a")((0, "loss: 4"))
    pages = list(cloudwatch.get_paginator("list_metrics").paginate(MetricName="loss"))
    assert [each["Dimensions"][0]["Value"] for page in pages for each in page["Metrics"]] == ["job-7a"]


def test_a_token_of_another_list_is_refused(cloudwatch: Any, refusal: Any) -> None:
    _, code, message = refusal(cloudwatch.list_metrics, NextToken="mine")
    assert code == "InvalidParameterValue"
    assert "NextToken" in message


def test_keys_of_jobs_need_a_policy_for_metrics(restricted: Any, refusal: Any) -> None:
    status, code, message = refusal(restricted("cloudwatch").list_metrics)
    assert (status, code) == (403, "AccessDenied")
    assert "cloudwatch:ListMetrics" in message
