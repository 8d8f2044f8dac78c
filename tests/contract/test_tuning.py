"""Hyperparameter tuning by boto3, with real training jobs that need no TensorFlow."""

import uuid
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

SCRIPT = """
import json, os, sys, time
given = json.loads(os.environ["SM_HPS"])
score = (given["x"] - 0.5) ** 2 + given.get("n", 0) / 100
for _ in range(given.get("steps", 1)):
    print(f"score={score:.6f};", flush=True)
if score > given.get("hangs_above", 9):
    time.sleep(600)
print("model_dir", given.get("model_dir"))
print("arguments", " ".join(sys.argv[1:]))
sys.exit(int(given.get("fails", 0)))
"""
RANGES = {
    "ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}],
    "IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "3"}],
}
ENDS = ("Completed", "Failed", "Stopped")


class Tuning:
    """Tuning jobs of a service, by plain boto3."""

    def __init__(self, jobs: Any) -> None:
        self.jobs = jobs
        self.client = jobs.sagemaker
        self.training = jobs.request(SCRIPT, name=f"code-{uuid.uuid4().hex[:8]}")

    def definition(self, **static: str) -> dict[str, Any]:
        members = ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
        algorithm = self.training["AlgorithmSpecification"]
        return {
            **{member: self.training[member] for member in members},
            "StaticHyperParameters": {**self.training["HyperParameters"], **static},
            "AlgorithmSpecification": {
                **algorithm,
                "MetricDefinitions": [{"Name": "score", "Regex": "score=(.*?);"}],
            },
        }

    def request(
        self,
        *,
        most: int | None = 4,
        at_once: int = 2,
        ranges: Mapping[str, Any] = RANGES,
        static: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        limits = {"MaxParallelTrainingJobs": at_once} | ({"MaxNumberOfTrainingJobs": most} if most else {})
        return {
            "HyperParameterTuningJobName": f"tune-{uuid.uuid4().hex[:8]}",
            "HyperParameterTuningJobConfig": {
                "Strategy": "Random",
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "score"},
                "ResourceLimits": limits,
                "ParameterRanges": ranges,
                **(config or {}),
            },
            "TrainingJobDefinition": self.definition(**(static or {})),
            **members,
        }

    def create(self, **changes: Any) -> str:
        request = self.request(**changes)
        self.client.create_hyper_parameter_tuning_job(**request)
        return str(request["HyperParameterTuningJobName"])

    def describe(self, name: str) -> dict[str, Any]:
        return self.client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)

    def wait(self, name: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            job = self.describe(name)
            return job if job["HyperParameterTuningJobStatus"] in ENDS else None

        return self.jobs.wait_until(ended, lambda: self.describe(name))

    def run(self, **changes: Any) -> dict[str, Any]:
        return self.wait(self.create(**changes))

    def trainings(self, name: str, **options: Any) -> list[dict[str, Any]]:
        pages = self.client.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
        return [
            each
            for page in pages.paginate(HyperParameterTuningJobName=name, **options)
            for each in page["TrainingJobSummaries"]
        ]

    def values(self, name: str) -> list[dict[str, str]]:
        return [each["TunedHyperParameters"] for each in self.trainings(name)]


@pytest.fixture(scope="module")
def tuning(jobs: Any) -> Tuning:
    return Tuning(jobs)


def value(training: Mapping[str, Any]) -> float:
    return training["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]


def test_a_random_search_runs_ordinary_training_jobs_and_shows_the_best(tuning: Tuning) -> None:
    static = {"model_dir": "s3://bucket/models"}
    job = tuning.run(static=static, config={"RandomSeed": 7}, Tags=[{"Key": "team", "Value": "vision"}])
    name = job["HyperParameterTuningJobName"]
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    assert job["TrainingJobStatusCounters"] == {
        "Completed": 4,
        "InProgress": 0,
        "RetryableError": 0,
        "NonRetryableError": 0,
        "Stopped": 0,
    }
    assert job["ObjectiveStatusCounters"] == {"Succeeded": 4, "Pending": 0, "Failed": 0}
    trainings = tuning.trainings(name)
    assert [each["TrainingJobName"][: len(name) + 5] for each in trainings] == [f"{name}-{i:03}-" for i in range(1, 5)]
    best = min(trainings, key=value)
    assert job["BestTrainingJob"] == best
    assert best["TrainingJobStatus"] == "Completed" and best["ObjectiveStatus"] == "Succeeded"
    assert best["TuningJobName"] == name and best["TrainingEndTime"] >= best["TrainingStartTime"]
    for each in trainings:
        training = tuning.jobs.describe(each["TrainingJobName"])
        assert training["TuningJobArn"] == job["HyperParameterTuningJobArn"]
        given, tuned = training["HyperParameters"], each["TunedHyperParameters"]
        assert given == {**job["TrainingJobDefinition"]["StaticHyperParameters"], **tuned}
        assert given["_tuning_objective_metric"] == "score"
        assert 0 <= float(tuned["x"]) <= 1 and tuned["n"] in ("1", "2", "3")
        assert value(each) == pytest.approx((float(tuned["x"]) - 0.5) ** 2 + int(tuned["n"]) / 100, abs=1e-5)
        (own,) = (line for line in tuning.jobs.log(each["TrainingJobName"]) if line.startswith("model_dir"))
        assert own == f"model_dir s3://bucket/models/{each['TrainingJobName']}/model"
        (arguments,) = (line for line in tuning.jobs.log(each["TrainingJobName"]) if line.startswith("arguments"))
        assert "_tuning" not in arguments and f"-n {tuned['n']}" in arguments
    tags = tuning.client.list_tags(ResourceArn=best["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "vision"}]
    again = tuning.run(config={"RandomSeed": 7}, at_once=4)
    assert tuning.values(again["HyperParameterTuningJobName"]) == tuning.values(name)
    check_lists(tuning, name, trainings)


def check_lists(tuning: Tuning, name: str, trainings: Sequence[Mapping[str, Any]]) -> None:
    """Check how a tuning job and its trainings are listed, in pages and in orders."""
    (listed,) = tuning.client.list_hyper_parameter_tuning_jobs(NameContains=name)["HyperParameterTuningJobSummaries"]
    assert listed["Strategy"] == "Random" and listed["HyperParameterTuningJobStatus"] == "Completed"
    assert listed["TrainingJobStatusCounters"]["Completed"] == 4
    assert listed["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2}
    by_value = tuning.trainings(
        name, SortBy="FinalObjectiveMetricValue", SortOrder="Descending", PaginationConfig={"PageSize": 3}
    )
    assert [value(each) for each in by_value] == sorted((value(each) for each in trainings), reverse=True)
    assert tuning.trainings(name, StatusEquals="Failed") == []
    with pytest.raises(ClientError, match="not the token of an earlier page"):
        tuning.client.list_training_jobs_for_hyper_parameter_tuning_job(HyperParameterTuningJobName=name, NextToken="3")


def test_a_stopped_job_stops_its_trainings_and_a_deleted_one_leaves_them(tuning: Tuning, jobs: Any) -> None:
    training = jobs.request(
        "import time; print('up', flush=True); time.sleep(600)", name=f"code-{uuid.uuid4().hex[:8]}"
    )
    static = {name: training["HyperParameters"][name] for name in ("sagemaker_submit_directory",)}
    name = tuning.create(static=static)
    jobs.wait_until(lambda: len(tuning.trainings(name)) == 2, "two trainings")
    first = tuning.trainings(name)[0]["TrainingJobName"]
    jobs.wait_for_line(first, "up")
    (running,) = tuning.trainings(name, MaxResults=1)[:1]
    assert running["TrainingJobStatus"] == "InProgress" and running["ObjectiveStatus"] == "Pending"
    with pytest.raises(ClientError, match="only a job that has ended can be deleted"):
        tuning.client.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    job = tuning.wait(name)
    assert job["HyperParameterTuningJobStatus"] == "Stopped"
    assert job["TrainingJobStatusCounters"]["Stopped"] == 2
    assert "BestTrainingJob" not in job
    with pytest.raises(ClientError, match="is in status Stopped") as caught:
        tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    tuning.client.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    with pytest.raises(ClientError) as caught:
        tuning.describe(name)
    assert caught.value.response["Error"]["Code"] == "ResourceNotFound"
    assert jobs.describe(first)["TrainingJobStatus"] == "Stopped"


def test_a_job_whose_trainings_all_fail_fails_with_the_first_reason(tuning: Tuning) -> None:
    job = tuning.run(static={"fails": "3"}, most=9, at_once=3)
    assert job["HyperParameterTuningJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("No training job succeeded after") and "ExitCode 3" in job["FailureReason"]
    assert job["TrainingJobStatusCounters"]["NonRetryableError"] >= 5
    assert len(tuning.trainings(job["HyperParameterTuningJobName"])) < 9


def test_a_grid_over_two_definitions_has_every_combination_of_both(tuning: Tuning) -> None:
    def definition(name: str, x: list[str]) -> dict[str, Any]:
        return {
            **tuning.definition(n="0"),
            "DefinitionName": name,
            "TuningObjective": {"Type": "Minimize", "MetricName": "score"},
            "HyperParameterRanges": {"CategoricalParameterRanges": [{"Name": "x", "Values": x}]},
        }

    request = tuning.request(most=None)
    del request["TrainingJobDefinition"]
    for member in ("HyperParameterTuningJobObjective", "ParameterRanges"):
        del request["HyperParameterTuningJobConfig"][member]
    request["HyperParameterTuningJobConfig"]["Strategy"] = "Grid"
    request["TrainingJobDefinitions"] = [definition("first", ["0.25", "0.75"]), definition("second", ["0.5"])]
    tuning.client.create_hyper_parameter_tuning_job(**request)
    job = tuning.wait(request["HyperParameterTuningJobName"])
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    assert job["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"] == 3
    found = tuning.trainings(request["HyperParameterTuningJobName"])
    assert [(each["TrainingJobDefinitionName"], each["TunedHyperParameters"]) for each in found] == [
        ("first", {"x": "0.25"}),
        ("first", {"x": "0.75"}),
        ("second", {"x": "0.5"}),
    ]
    assert job["BestTrainingJob"]["TrainingJobDefinitionName"] == "second"


def test_a_model_continues_from_a_parent_and_repeats_with_its_seed(tuning: Tuning) -> None:
    grid = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["0", "0.1", "0.3", "0.5", "0.9", "1"]}]}
    parent = tuning.run(most=None, ranges=grid, static={"n": "0"}, config={"Strategy": "Grid"})
    name, best = parent["HyperParameterTuningJobName"], parent["BestTrainingJob"]
    assert best["TunedHyperParameters"] == {"x": "0.5"}
    warm = {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": name}],
    }
    ranges = {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}]}
    changes: dict[str, Any] = {"most": 2, "at_once": 1, "ranges": ranges, "static": {"n": "0"}, "WarmStartConfig": warm}
    first = tuning.run(**changes, config={"Strategy": "Bayesian", "RandomSeed": 3})
    assert first["OverallBestTrainingJob"]["TrainingJobName"] == best["TrainingJobName"]
    assert first["OverallBestTrainingJob"]["TuningJobName"] == name
    again = tuning.run(**changes, config={"Strategy": "Bayesian", "RandomSeed": 3})
    values = tuning.values(first["HyperParameterTuningJobName"])
    assert tuning.values(again["HyperParameterTuningJobName"]) == values
    # Six values of the parent are enough for the model: a random value with this seed would be another.
    assert values[0]["x"] != repr(Random("3 0").random())
    with pytest.raises(ClientError, match="use WarmStartType TransferLearning"):
        definition = tuning.definition(n="0")
        definition["AlgorithmSpecification"]["TrainingImage"] = "tensorflow-training:2.20.0-cpu-py311"
        tuning.create(**changes, TrainingJobDefinition=definition)


def test_early_stopping_ends_a_training_that_is_worse_than_the_others(tuning: Tuning) -> None:
    values = ["0.5", "0.45", "0.55", "0.6", "1"]
    grid = {"CategoricalParameterRanges": [{"Name": "x", "Values": values}]}
    static = {"n": "0", "steps": "2", "hangs_above": "0.2"}
    config = {"Strategy": "Grid", "TrainingJobEarlyStoppingType": "Auto"}
    job = tuning.run(most=None, ranges=grid, static=static, config=config)
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    found = tuning.trainings(job["HyperParameterTuningJobName"])
    assert [each["TrainingJobStatus"] for each in found] == [*["Completed"] * 4, "Stopped"]
    assert found[4]["ObjectiveStatus"] == "Succeeded" and value(found[4]) == 0.25


def test_hyperband_stops_what_is_not_among_the_best_and_what_has_used_up_its_resource(tuning: Tuning) -> None:
    ranges = {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]}
    config = {
        "Strategy": "Hyperband",
        "StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 5}},
        "RandomSeed": 1,
    }
    # Every training logs two values and goes on, so that only the tuning job can end it: all but the best.
    static = {"n": "0", "steps": "2", "hangs_above": "-1"}
    name = tuning.create(ranges=ranges, static=static, config=config, most=3, at_once=2)
    tuning.jobs.wait_until(
        lambda: tuning.describe(name)["TrainingJobStatusCounters"]["Stopped"] == 2, lambda: tuning.describe(name)
    )
    found = tuning.trainings(name)
    assert sorted(each["TrainingJobStatus"] for each in found) == ["InProgress", "Stopped", "Stopped"]
    (survivor,) = (each for each in found if each["TrainingJobStatus"] == "InProgress")
    distance = [abs(float(each["TunedHyperParameters"]["x"]) - 0.5) for each in found]
    assert min(distance) == abs(float(survivor["TunedHyperParameters"]["x"]) - 0.5)
    tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    assert tuning.wait(name)["HyperParameterTuningJobStatus"] == "Stopped"
    longer = tuning.run(ranges=ranges, static={**static, "steps": "5"}, config=config, most=1, at_once=1)
    assert (
        longer["HyperParameterTuningJobStatus"] == "Completed" and longer["TrainingJobStatusCounters"]["Stopped"] == 1
    )
