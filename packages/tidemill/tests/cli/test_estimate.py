"""Estimates of the time that a job takes: how they are shown."""

from datetime import UTC, datetime, timedelta

from tidemill.cli.estimate import Estimate


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
