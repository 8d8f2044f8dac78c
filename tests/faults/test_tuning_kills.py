"""A tuning job survives kill -9 of the service: every training is created once, and none is lost."""

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from victim import Victim

SCRIPT = "import json, os; print('score=', json.loads(os.environ['SM_HPS'])['x'], ';', sep='')"
STAGES = (
    ("control.tuning.trial.before", 4),
    ("control.tuning.trial.after", 6),
    ("control.created", 3),
    ("control.tuning.noted.before", 1),
    ("control.tuning.noted.after", 1),
)
"""Fault points, and how many times the service passes each before it dies; so few that trainings are left for all."""


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any) -> Iterator[Victim]:
    made = Victim(tmp_path, jobs_of, max_instances=4)
    yield made
    made.service.kill()
    made.service.stop()


def request(jobs: Any, count: int) -> dict[str, Any]:
    training = jobs.request(SCRIPT, name="code")
    algorithm = training["AlgorithmSpecification"]
    return {
        "HyperParameterTuningJobName": "killed",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Bayesian",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": count, "MaxParallelTrainingJobs": 4},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]},
            "RandomSeed": 1,
        },
        "TrainingJobDefinition": {
            **{name: training[name] for name in ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition")},
            "StaticHyperParameters": training["HyperParameters"],
            "AlgorithmSpecification": {**algorithm, "MetricDefinitions": [{"Name": "score", "Regex": "score=(.*?);"}]},
        },
    }


@pytest.mark.matrix
def test_thirty_trainings_four_at_once_survive_five_kills_of_the_service(victim: Victim, wait_until: Any) -> None:
    (first, skipped), *others = STAGES
    victim.start(first, skipping=skipped)
    victim.jobs.sagemaker.create_hyper_parameter_tuning_job(**request(victim.jobs, 30))
    victim.await_death(first)
    for point, skipped in others:
        victim.die_again(point, skipping=skipped)
    victim.revive()
    client = victim.jobs.sagemaker

    def ended() -> dict[str, Any] | None:
        job = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="killed")
        return job if job["HyperParameterTuningJobStatus"] != "InProgress" else None

    job = wait_until(ended, lambda: client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="killed"))
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    assert job["TrainingJobStatusCounters"]["Completed"] == 30
    pages = client.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
    trainings = [
        each
        for page in pages.paginate(HyperParameterTuningJobName="killed", PaginationConfig={"PageSize": 7})
        for each in page["TrainingJobSummaries"]
    ]
    names = [each["TrainingJobName"] for each in trainings]
    assert [name[:10] for name in names] == [f"killed-{number:03}" for number in range(1, 31)]
    assert len({each["TunedHyperParameters"]["x"] for each in trainings}) == 30
    created = client.get_paginator("list_training_jobs").paginate(NameContains="killed-").build_full_result()
    assert sorted(each["TrainingJobName"] for each in created["TrainingJobSummaries"]) == names
    for each in trainings:
        value = each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
        assert value == pytest.approx(float(each["TunedHyperParameters"]["x"]))
        assert [line for line in victim.jobs.log(each["TrainingJobName"]) if line.startswith("score=")] == [
            f"score={each['TunedHyperParameters']['x']};"
        ]
    check_parallel(trainings)


def check_parallel(trainings: list[dict[str, Any]]) -> None:
    """Check that there were never more than four at a time."""
    steps = collections.Counter[Any]()
    for each in trainings:
        steps[each["CreationTime"]] += 1
        steps[each["TrainingEndTime"]] -= 1
    running = 0
    for _, change in sorted(steps.items()):
        running += change
        assert running <= 4
