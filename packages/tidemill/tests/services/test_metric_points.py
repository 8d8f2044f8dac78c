"""GetMetricPoints by botocore's client: the curves of the page."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.control.training import metrics
from tidemill.services.page import metric_points

GROUP = "/aws/sagemaker/TrainingJobs"


@pytest.fixture
def tidemill(clients: Callable[..., Any], stage: Any) -> Any:
    return clients("tidemill")


@pytest.fixture
def job(sagemaker: Any, stage: Any) -> Callable[..., None]:
    """Return a function that creates a job of two instances and logs lines of one of them, a millisecond apart."""
    definitions = [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}, {"Name": "acc", "Regex": "acc=([0-9.]+)"}]
    sagemaker.create_training_job(
        TrainingJobName="digits",
        AlgorithmSpecification={
            "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
            "TrainingInputMode": "File",
            "MetricDefinitions": definitions,
        },
        RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        OutputDataConfig={"S3OutputPath": "s3://data/out"},
        ResourceConfig={"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )

    def log(instance: int, *lines: str) -> None:
        stream = stage.training.get("digits").log_streams[instance - 1]
        stage.write_log(GROUP, stream, [(1_000_000_000_000 + number, line) for number, line in enumerate(lines)])

    return log


def test_each_value_is_a_point_also_within_a_second(tidemill: Any, job: Callable[..., None]) -> None:
    job(1, "loss: 4 acc=0.25", "other", "loss: 2.5", "loss: 2")
    job(2, "loss: 3")
    assert tidemill.get_metric_points(TrainingJobName="digits")["Series"] == [
        {"MetricName": "acc", "Instance": 1, "Steps": [1], "Times": [1e9], "Values": [0.25]},
        {
            "MetricName": "loss",
            "Instance": 1,
            "Steps": [1, 2, 3],
            "Times": [1e9, 1e9 + 0.002, 1e9 + 0.003],
            "Values": [4.0, 2.5, 2.0],
        },
        {"MetricName": "loss", "Instance": 2, "Steps": [1], "Times": [1e9], "Values": [3.0]},
    ]


def test_a_long_curve_keeps_its_peaks_and_ends(tidemill: Any, job: Callable[..., None]) -> None:
    values = [500.0] * 3000
    values[1234], values[2345], values[-1] = 900.5, 0.5, 499.0
    job(1, *(f"loss: {value}" for value in values))
    (series,) = tidemill.get_metric_points(TrainingJobName="digits", MaxPoints=100)["Series"]
    assert len(series["Values"]) <= 100
    assert series["Steps"] == sorted(set(series["Steps"]))
    assert {1, 1235, 2346, 3000} <= set(series["Steps"])
    assert series["Values"] == [values[step - 1] for step in series["Steps"]]
    (whole,) = tidemill.get_metric_points(TrainingJobName="digits", MaxPoints=3000)["Series"]
    assert whole["Values"] == values


def test_a_job_without_points_has_no_series_and_an_unknown_one_is_an_error(
    tidemill: Any, job: Callable[..., None]
) -> None:
    assert tidemill.get_metric_points(TrainingJobName="digits")["Series"] == []
    with pytest.raises(ClientError, match="'gone' does not exist") as caught:
        tidemill.get_metric_points(TrainingJobName="gone")
    assert caught.value.response["Error"]["Code"] == "ResourceNotFound"


def test_the_points_of_an_instance_and_of_an_answer_are_limited(
    tidemill: Any, job: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_POINTS_MAX", 30)
    job(1, *("loss: 1" for _ in range(50)))
    (series,) = tidemill.get_metric_points(TrainingJobName="digits")["Series"]
    assert series["Steps"] == list(range(1, 31)), "the first ones, so that steps stay true"
    monkeypatch.setattr(metric_points, "_POINTS_MAX", 20)
    (series,) = tidemill.get_metric_points(TrainingJobName="digits", MaxPoints=100)["Series"]
    assert len(series["Steps"]) <= 20
