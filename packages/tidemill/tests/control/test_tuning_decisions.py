"""When a tuning job ends, which running trainings it stops, and which requests it refuses."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tidemill.control.tuning.admission import check_search, check_tuning_request
from tidemill.control.tuning.completion import decision_on, not_improving
from tidemill.control.tuning.definition import definitions_of, trial_name
from tidemill.control.tuning.early_stopping import hyperband_stops, median_stops
from tidemill.core.training import JobStatus
from tidemill.core.tuning import TuningJob, TuningTrial
from tidemill.errors import ValidationException

CONFIG: dict[str, Any] = {
    "Strategy": "Random",
    "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
    "ResourceLimits": {"MaxNumberOfTrainingJobs": 100, "MaxParallelTrainingJobs": 4},
    "ParameterRanges": {
        "ContinuousParameterRanges": [{"Name": "x", "MinValue": "0.1", "MaxValue": "1"}],
        "CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}],
    },
}
DEFINITION: dict[str, Any] = {
    "AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}]},
    "ResourceConfig": {"InstanceType": "local"},
    "StaticHyperParameters": {"epochs": "1"},
}
REQUEST: dict[str, Any] = {"HyperParameterTuningJobConfig": CONFIG, "TrainingJobDefinition": DEFINITION}


def job(values: Sequence[float | None] = (), *, running: int = 0, failure: str = "", **config: Any) -> TuningJob:
    """Return a job whose ended trials have these values (None: failed), with running trials after them."""
    ended = [
        TuningTrial(
            name=f"t-{number}",
            definition=0,
            hyperparameters={},
            created_ms=number,
            status=JobStatus.FAILED if value is None else JobStatus.COMPLETED,
            ended_ms=number,
            value=value,
            failure_reason=failure if value is None else "",
        )
        for number, value in enumerate(values)
    ]
    live = [
        TuningTrial(name=f"r-{number}", definition=0, hyperparameters={}, created_ms=99) for number in range(running)
    ]
    request = {**REQUEST, "HyperParameterTuningJobConfig": {**CONFIG, **config}}
    return TuningJob(name="n", arn="arn", job_id="id", request=request, created_ms=0, trials=(*ended, *live))


def decided(found: TuningJob, now_ms: int = 0) -> tuple[str, str] | None:
    decision = decision_on(found, definitions_of(found), now_ms=now_ms)
    return None if decision is None else (str(decision.status), decision.failure_reason)


def test_a_search_ends_with_its_limits_and_criteria() -> None:
    limits = CONFIG["ResourceLimits"]
    assert decided(job([1.0] * 30)) is None
    assert decided(job([1.0, 2.0], ResourceLimits={**limits, "MaxNumberOfTrainingJobs": 2})) == ("Completed", "")
    assert decided(job([1.0], running=1, ResourceLimits={**limits, "MaxNumberOfTrainingJobs": 2})) is None
    timed = job([1.0], ResourceLimits={**limits, "MaxRuntimeInSeconds": 120})
    assert decided(timed, 119_999) is None and decided(timed, 120_000) == ("Completed", "")
    for target, ended in ((0.5, False), (1.0, True), (1.5, True)):
        criteria = {"TargetObjectiveMetricValue": target}
        assert (decided(job([2.0, 1.0], TuningJobCompletionCriteria=criteria)) is not None) is ended
    criteria = {"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}}
    assert decided(job([1.0, 0.995, 1.1], TuningJobCompletionCriteria=criteria)) is None
    assert decided(job([1.0, 0.995, 1.1, 2.0], TuningJobCompletionCriteria=criteria)) == ("Completed", "")
    assert not_improving(job([1.0, 0.995, 0.9, None])) == 1
    converges = {"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}
    assert decided(job([1.0] * 20, TuningJobCompletionCriteria=converges)) is None
    assert decided(job([1.0] * 21, TuningJobCompletionCriteria=converges)) == ("Completed", "")


def test_a_search_in_which_nothing_succeeds_fails_after_five_trainings() -> None:
    assert decided(job([None] * 4, running=1, failure="AlgorithmError: x")) is None
    status, reason = decided(job([None] * 5, running=1, failure="AlgorithmError: x")) or ("", "")
    assert status == JobStatus.FAILED and "after 5 attempts" in reason and "AlgorithmError: x" in reason
    assert decided(job([None, None, 1.0, None, None, None])) is None
    counters = job([None, 1.0], running=1, failure="InternalServerError: disk").training_counters()
    assert counters == {"Completed": 1, "InProgress": 1, "RetryableError": 1, "NonRetryableError": 0, "Stopped": 0}


def test_auto_stops_what_is_worse_than_the_median_of_running_averages() -> None:
    found = job([1.0, 2.0, 3.0, 4.0], running=3)
    curves: dict[str, Sequence[float]] = {f"t-{n}": [9.0, float(n + 1)] for n in range(4)}  # averages: 5, 5.5, 6, 6.5
    curves |= {"r-0": [1.0, 5.7], "r-1": [1.0, 5.8], "r-2": [99.0]}
    assert median_stops(found, curves) == ["r-1"], "a single value is too early"
    objective = {"Type": "Maximize", "MetricName": "loss"}
    upside_down = job([1.0, 2.0, 3.0, 4.0], running=3, HyperParameterTuningJobObjective=objective)
    assert median_stops(upside_down, curves) == ["r-0"]
    assert median_stops(job([1.0, 2.0, 3.0], running=3), curves) == [], "three completed trainings are too few"


@pytest.mark.parametrize(
    ("values", "stopped"),
    [
        ({"r-0": [1.0]}, []),
        ({"r-0": [1.0], "r-1": [2.0]}, ["r-1"]),
        ({"r-0": [2.0], "r-1": [1.0]}, ["r-0"]),
        ({"r-0": [2.0, 2.0, 2.0], "r-1": [1.0]}, []),
        ({"r-0": [2.0] * 3, "r-1": [3.0] * 3, "r-2": [1.0] * 3, "r-3": [9.0] * 2}, ["r-0", "r-1", "r-3"]),
    ],
)
def test_hyperband_keeps_the_best_third_at_the_latest_rung(
    values: Mapping[str, Sequence[float]], stopped: list[str]
) -> None:
    found = job(running=4)
    assert hyperband_stops(found, values) == stopped


def test_hyperband_ends_at_its_highest_resource_and_has_brackets_below() -> None:
    found = job(running=3, StrategyConfig={"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 6}})
    assert hyperband_stops(found, {"r-0": [1.0] * 6}) == ["r-0"]
    # Trials 0 and 2 are compared at 2 values; trial 1, in the second bracket, runs to 6.
    assert hyperband_stops(found, {"r-0": [1.0] * 2, "r-1": [9.0] * 5, "r-2": [2.0] * 2}) == ["r-2"]


def test_names_of_trials_follow_from_the_job_and_their_number() -> None:
    first, again = job(), job()
    assert trial_name(first, 0) == trial_name(again, 0) and trial_name(first, 0).startswith("n-001-")
    assert trial_name(first, 0) != trial_name(TuningJob(name="n", arn="", job_id="x", request={}, created_ms=0), 0)


def refused(**changes: Any) -> str:
    request = copy.deepcopy(REQUEST)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = request
        for name in above:
            place = place[name]
        if value is None:
            del place[last]
        else:
            place[last] = value
    found = TuningJob(name="n", arn="", job_id="", request=request, created_ms=0)
    with pytest.raises(ValidationException) as caught:
        check_tuning_request(request)
        check_search(found.config, definitions_of(found))
    return caught.value.message


def test_requests_that_cannot_be_honored_name_the_member_and_what_to_do() -> None:
    config = "HyperParameterTuningJobConfig"
    ranges = f"{config}__ParameterRanges"
    assert "not both" in refused(TrainingJobDefinitions=[DEFINITION])
    assert "an objective is needed" in refused(**{f"{config}__HyperParameterTuningJobObjective": None})
    assert "one of loss" in refused(
        **{f"{config}__HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "acc"}}
    )
    assert "nothing is tuned" in refused(**{ranges: {}})
    assert "list the values" in refused(**{f"{config}__Strategy": "Grid"})
    assert "Hyperband stops trainings itself" in refused(
        **{f"{config}__Strategy": "Hyperband", f"{config}__TrainingJobEarlyStoppingType": "Auto"}
    )
    assert "would not end" in refused(**{f"{config}__ResourceLimits": {"MaxParallelTrainingJobs": 1}})
    assert "at most 750" in refused(
        **{f"{config}__ResourceLimits": {"MaxParallelTrainingJobs": 1, "MaxNumberOfTrainingJobs": 751}}
    )
    assert "is one of StaticHyperParameters" in refused(TrainingJobDefinition__StaticHyperParameters={"x": "1"})
    assert "need Autotune" in refused(**{f"{ranges}__AutoParameters": [{"Name": "y", "ValueHint": "1"}]})
    assert "give it or HyperParameterTuningResourceConfig" in refused(TrainingJobDefinition__ResourceConfig=None)
    assert "combinations" in refused(
        **{
            f"{config}__Strategy": "Grid",
            ranges: {"CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}]},
        }
    )


@pytest.mark.parametrize(
    ("kind", "given", "reason"),
    [
        ("Integer", {"MinValue": "1.5", "MaxValue": "2"}, "not an integer"),
        ("Continuous", {"MinValue": "low", "MaxValue": "2"}, "not a number"),
        ("Continuous", {"MinValue": "3", "MaxValue": "2"}, "at most MaxValue, which is 2"),
        ("Continuous", {"MinValue": "0", "MaxValue": "2", "ScalingType": "Logarithmic"}, "must be above 0"),
        ("Continuous", {"MinValue": "0", "MaxValue": "1", "ScalingType": "ReverseLogarithmic"}, "from 0 to below 1"),
        ("Continuous", {"MinValue": "0", "MaxValue": "nan"}, "finite"),
    ],
)
def test_ranges_that_have_no_scale_are_refused(kind: str, given: Mapping[str, str], reason: str) -> None:
    found = {f"{kind}ParameterRanges": [{"Name": "y", **given}]}
    assert reason in refused(HyperParameterTuningJobConfig__ParameterRanges=found)
