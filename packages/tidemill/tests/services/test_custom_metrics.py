"""Metrics and alarms that clients put into CloudWatch, by boto3."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
START = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
WINDOW = {"StartTime": START, "EndTime": START + timedelta(minutes=10), "Period": 60}
LOSS = {"Namespace": "Team/Training", "MetricName": "loss"}
DIMENSIONS = [{"Name": "Run", "Value": "first"}, {"Name": "Host", "Value": "algo-1"}]


def put(cloudwatch: Any, *data: dict[str, Any], namespace: str = "Team/Training") -> None:
    data = tuple({"MetricName": "loss", "Dimensions": DIMENSIONS, "Timestamp": START, **each} for each in data)
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=list(data))


def statistics(cloudwatch: Any, **members: Any) -> list[dict[str, Any]]:
    request = {**LOSS, **WINDOW, "Dimensions": DIMENSIONS, "Statistics": ["Sum", "SampleCount"], **members}
    points = cloudwatch.get_metric_statistics(**request)["Datapoints"]
    return sorted(points, key=lambda point: (point["Timestamp"], point["Unit"]))


@pytest.fixture
def now(stage: Any) -> None:
    stage.clock.ms = int(NOW.timestamp() * 1000)


@pytest.mark.usefixtures("now")
def test_points_are_read_as_they_were_put(cloudwatch: Any) -> None:
    put(
        cloudwatch,
        {"Value": 2.0, "Dimensions": DIMENSIONS[::-1]},
        {"Values": [1.0, 3.0], "Counts": [2, 1], "Timestamp": START + timedelta(seconds=59)},
        {"Value": 5.0, "Timestamp": START + timedelta(seconds=60)},
        {"Value": 7.0, "Unit": "Seconds", "Timestamp": START + timedelta(seconds=60)},
        {"Value": 9.0, "Dimensions": DIMENSIONS[:1]},
    )
    cloudwatch.put_metric_data(Namespace="Team/Training", MetricData=[{"MetricName": "loss", "Value": 4.0}])
    shown = [(each["Timestamp"], each["Sum"], each["SampleCount"], each["Unit"]) for each in statistics(cloudwatch)]
    later = START + timedelta(minutes=1)
    assert shown == [(START, 7.0, 4.0, "None"), (later, 5.0, 1.0, "None"), (later, 7.0, 1.0, "Seconds")]
    assert [each["Sum"] for each in statistics(cloudwatch, Unit="Seconds")] == [7.0]
    assert [each["Sum"] for each in statistics(cloudwatch, Dimensions=DIMENSIONS[:1])] == [9.0]
    assert [each["Sum"] for each in statistics(cloudwatch, Dimensions=[], EndTime=NOW + timedelta(hours=1))] == [4.0]
    assert statistics(cloudwatch, MetricName="other") == []
    metric = {"Metric": {**LOSS, "Dimensions": DIMENSIONS}, "Period": 60, "Stat": "Maximum"}
    queries = [{"Id": "q", "MetricStat": metric}]
    (result,) = cloudwatch.get_metric_data(
        MetricDataQueries=queries, **{k: WINDOW[k] for k in ("StartTime", "EndTime")}
    )["MetricDataResults"]
    assert result["Values"] == [7.0, 3.0]


@pytest.mark.usefixtures("now")
def test_thousands_of_points_come_compressed_and_are_kept_in_chunks(cloudwatch: Any, stage: Any) -> None:
    for begin in (0, 900, 1800):
        put(cloudwatch, *({"Value": 1.0, "Timestamp": START + timedelta(seconds=(begin + n) / 10)} for n in range(900)))
    assert [each["SampleCount"] for each in statistics(cloudwatch)] == [600.0] * 4 + [300.0]
    # A put after 15 months removes the chunks whose points are older.
    stage.clock.ms += 456 * 24 * 3600 * 1000
    put(cloudwatch, {"Value": 1.0, "Timestamp": NOW + timedelta(days=456)})
    assert statistics(cloudwatch) == []


@pytest.mark.usefixtures("now")
def test_lists_have_the_metrics_of_clients_too(cloudwatch: Any) -> None:
    put(cloudwatch, {"Value": 1.0}, {"Value": 1.0, "MetricName": "accuracy", "Dimensions": []})
    put(cloudwatch, {"Value": 1.0}, namespace="Other")

    def listed(**members: Any) -> set[tuple[str, str, int]]:
        metrics = cloudwatch.list_metrics(**members)["Metrics"]
        return {(each["Namespace"], each["MetricName"], len(each["Dimensions"])) for each in metrics}

    assert listed() == {("Team/Training", "loss", 2), ("Team/Training", "accuracy", 0), ("Other", "loss", 2)}
    assert listed(Namespace="Team/Training", MetricName="loss") == {("Team/Training", "loss", 2)}
    assert listed(Dimensions=[{"Name": "Run"}]) == {("Team/Training", "loss", 2), ("Other", "loss", 2)}
    assert listed(Dimensions=[{"Name": "Run", "Value": "second"}]) == set()
    assert len(listed(RecentlyActive="PT3H")) == 3


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"namespace": "AWS/EC2", "Value": 1.0}, "InvalidParameterValue", "AWS/"),
        ({}, "InvalidParameterCombination", "Value and Values"),
        ({"Values": [1.0], "Counts": [1.0, 2.0]}, "InvalidParameterCombination", "same length"),
        ({"Values": [1.0], "Counts": [0.5]}, "InvalidParameterValue", "whole numbers"),
        ({"Value": 1.0, "Timestamp": START - timedelta(days=15)}, "InvalidParameterValue", "two weeks"),
        ({"Value": 1.0, "Timestamp": NOW + timedelta(hours=3)}, "InvalidParameterValue", "two hours"),
        (
            {"StatisticValues": {"SampleCount": 1.0, "Sum": 1.0, "Minimum": 1.0, "Maximum": 1.0}},
            "ValidationError",
            "put Value",
        ),
    ],
)
def test_points_that_cannot_be_kept_are_refused_together(
    cloudwatch: Any, refusal: Any, members: dict[str, Any], code: str, text: str
) -> None:
    datum = {"MetricName": "loss", "Timestamp": START, **members}
    namespace = datum.pop("namespace", "Team/Training")
    good = {"MetricName": "loss", "Value": 1.0}
    status, refused, message = refusal(cloudwatch.put_metric_data, Namespace=namespace, MetricData=[good, datum])
    assert (status, refused) == (400, code)
    assert text in message
    assert cloudwatch.list_metrics()["Metrics"] == []


def test_alarms_are_kept_and_shown(cloudwatch: Any, refusal: Any) -> None:
    alarm = {"AlarmName": "high", **LOSS, "Threshold": 1.0, "ComparisonOperator": "GreaterThanThreshold"}
    alarm |= {"EvaluationPeriods": 2, "Period": 60, "Statistic": "Average"}
    for name in ("high", "higher", "low"):
        cloudwatch.put_metric_alarm(**{**alarm, "AlarmName": name})
    cloudwatch.put_metric_alarm(**{**alarm, "Threshold": 3.0})
    shown = cloudwatch.describe_alarms(AlarmNamePrefix="hig")["MetricAlarms"]
    assert [(each["AlarmName"], each["Threshold"], each["StateValue"]) for each in shown] == [
        ("high", 3.0, "INSUFFICIENT_DATA"),
        ("higher", 1.0, "INSUFFICIENT_DATA"),
    ]
    assert cloudwatch.describe_alarms(AlarmNames=["low"])["MetricAlarms"][0]["AlarmArn"].endswith(":alarm:low")
    assert cloudwatch.describe_alarms(StateValue="ALARM")["MetricAlarms"] == []
    assert refusal(cloudwatch.delete_alarms, AlarmNames=["low", "none"])[1] == "ResourceNotFound"
    cloudwatch.delete_alarms(AlarmNames=["low", "high"])
    assert [each["AlarmName"] for each in cloudwatch.describe_alarms()["MetricAlarms"]] == ["higher"]
