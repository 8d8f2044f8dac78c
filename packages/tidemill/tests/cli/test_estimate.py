"""Estimates of the time that a job takes: how they are shown."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from tidemill.cli.estimate import Estimate, Estimates


def test_an_estimate_says_from_how_many_runs_it_comes() -> None:
    assert Estimate(192.4, 4, "of train.py").text == "about 3m12s, the median of 4 runs of train.py"
    assert Estimate(5.0, 1, "of the same code").text == "about 5s, as one run of the same code"
    assert Estimate(5.0, 1, "of train.py").members == {"TypicalSeconds": 5.0, "Runs": 1, "Basis": "of train.py"}


def test_what_is_left_counts_from_the_begin_of_the_training() -> None:
    estimate = Estimate(7300.0, 2, "of train.py")
    begin = datetime.now(UTC)
    assert estimate.left({"TrainingStartTime": begin - timedelta(hours=1)}) in ("~1h1m", "~1h2m")
    assert estimate.left({"TrainingStartTime": begin - timedelta(hours=3)}) == ""
    assert estimate.left({}) == ""


def test_runs_are_looked_for_among_the_newest_completed_jobs() -> None:
    begin, asked = datetime(2026, 1, 1, tzinfo=UTC), []
    pages = [{"TrainingJobSummaries": [{"CreationTime": begin + timedelta(days=day)} for day in (3, 2)]}]

    def search(**request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"Results": []}

    paginator = SimpleNamespace(paginate=lambda **request: asked.append(request) or pages)
    client = SimpleNamespace(search=search, get_paginator=lambda operation: paginator)
    job = {
        "TrainingJobName": "digits",
        "HyperParameters": {"sagemaker_program": "train.py"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    session: Any = SimpleNamespace(sagemaker_client=client)
    assert Estimates(session).of(job) is None
    assert (asked[0]["StatusEquals"], asked[0]["PaginationConfig"]["MaxItems"]) == ("Completed", 500)
    since = {"Name": "CreationTime", "Operator": "GreaterThanOrEqualTo", "Value": "2026-01-03T00:00:00+00:00"}
    assert since in asked[1]["SearchExpression"]["Filters"]
