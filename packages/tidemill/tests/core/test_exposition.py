"""Metrics in Prometheus's text format, read by Prometheus's own parser."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from tidemill.core.exposition import Family, Histogram, exposition
from tidemill.wire.observer import REFUSED, RequestObserver

HOSTILE = 'a"b\\c\nd{e="f"} 1\n# TYPE evil counter\u202e\x00\x1b[31m' + "z" * 10_000


def test_hostile_names_stay_the_value_of_their_label() -> None:
    text = exposition([Family("tidemill_x", "gauge", "Text with \\ and\nline.", [({"name": HOSTILE}, 3.5)])])
    (family,) = parsed(text.decode())
    (sample,) = family.samples
    assert (family.name, family.documentation, family.type) == ("tidemill_x", "Text with \\ and\nline.", "gauge")
    assert (sample.labels, sample.value) == ({"name": HOSTILE}, 3.5)


def test_a_name_that_is_no_unicode_hides_no_other() -> None:
    text = exposition([Family("tidemill_x", "gauge", "Text.", [({"name": "\ud800"}, 1), ({"name": "b"}, math.inf)])])
    (family,) = parsed(text.decode())
    assert [(each.labels["name"], each.value) for each in family.samples] == [("?", 1), ("b", math.inf)]


def test_a_histogram_counts_a_value_in_each_bucket_that_contains_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    (family,) = parsed(
        exposition([Family("tidemill_x_seconds", "histogram", "T.", [({"a": "b"}, histogram)])]).decode()
    )
    buckets = {each.labels["le"]: each.value for each in family.samples if each.name.endswith("_bucket")}
    assert {float(bound): count for bound, count in buckets.items()} == {0.1: 2, 1.0: 3, math.inf: 4}
    assert {each.name: each.value for each in family.samples if "le" not in each.labels} == {
        "tidemill_x_seconds_sum": 7.65,
        "tidemill_x_seconds_count": 4,
    }


def test_requests_are_counted_by_status_and_their_durations_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = RequestObserver()
    monkeypatch.setattr("time.perf_counter", lambda: 100.0)
    for took_s, *answer in (
        (0.004, "s3", "PutObject", 200),
        (0.3, "s3", "PutObject", 404),
        (0.001, "sagemaker", REFUSED, 403),
    ):
        observer.end(100.0 - took_s, *answer, span=None, request_id="id")
    requests, durations = parsed(exposition(observer.families()).decode())
    assert {tuple(each.labels.values()): each.value for each in requests.samples} == {
        ("s3", "PutObject", "200"): 1,
        ("s3", "PutObject", "404"): 1,
        ("sagemaker", "none", "403"): 1,
    }
    assert {
        (each.labels["service"], each.labels["operation"]): each.value
        for each in durations.samples
        if each.name.endswith("_count")
    } == {("s3", "PutObject"): 2, ("sagemaker", "none"): 1}
