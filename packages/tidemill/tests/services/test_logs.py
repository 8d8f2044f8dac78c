"""CloudWatch Logs by boto3, over streams written by the tests: groups, streams, events, searches."""

from typing import Any

import pytest

JOBS = "/aws/sagemaker/TrainingJobs"
ENDPOINT = "/aws/sagemaker/Endpoints/digits"
ARN = "arn:aws:logs:us-west-2:000000000000:log-group:"


def messages(reply: dict[str, Any]) -> list[str]:
    return [event["message"] for event in reply["events"]]


@pytest.fixture
def two_jobs(stage: Any) -> None:
    """Write two streams whose events interleave in time."""
    stage.write_log(JOBS, "a/algo-1-1", [(1000, "a one"), (3000, "a two ERROR"), (5000, "a three")])
    stage.write_log(JOBS, "b/algo-1-2", [(2000, "b one"), (4000, "b two"), (6000, "b three ERROR")])


# Groups


def test_without_any_log_there_is_no_group(logs):
    assert logs.describe_log_groups()["logGroups"] == []


def test_a_group_has_its_age_its_size_and_both_of_its_arns(logs, stage):
    stage.write_log(JOBS, "b/algo-1-2", [(2000, "later")])
    stage.write_log(JOBS, "a/algo-1-1", [(1000, "x")])
    (group,) = logs.describe_log_groups()["logGroups"]
    assert group["logGroupName"] == JOBS
    assert group["creationTime"] == 1000
    assert group["storedBytes"] == sum(path.stat().st_size for path in stage.logs.rglob("*.log"))
    assert group["arn"] == f"{ARN}{JOBS}:*"
    assert group["logGroupArn"] == f"{ARN}{JOBS}"
    assert group["logGroupClass"] == "STANDARD"


@pytest.mark.parametrize("limit", [2, 5, 50])
def test_pages_of_groups_join_to_all_of_them_in_order(logs, stage, limit):
    names = [f"/aws/sagemaker/Endpoints/e{number}" for number in range(5)]
    for name in reversed(names):
        stage.write_log(name, "AllTraffic/i-0", [(1000, "x")])
    pages = list(logs.get_paginator("describe_log_groups").paginate(PaginationConfig={"PageSize": limit}))
    assert [group["logGroupName"] for page in pages for group in page["logGroups"]] == names
    assert all(len(page["logGroups"]) <= limit for page in pages)
    assert "nextToken" not in pages[-1]


def test_groups_are_chosen_by_prefix_part_identifier_and_class(logs, stage):
    for name in (JOBS, ENDPOINT, "/aws/sagemaker/Endpoints/other"):
        stage.write_log(name, "s", [(1000, "x")])

    def chosen(**members: Any) -> list[str]:
        return [group["logGroupName"] for group in logs.describe_log_groups(**members)["logGroups"]]

    assert chosen(logGroupNamePrefix="/aws/sagemaker/E") == [ENDPOINT, "/aws/sagemaker/Endpoints/other"]
    assert chosen(logGroupNamePrefix="Endpoints") == []
    assert chosen(logGroupNamePattern="oints/d") == [ENDPOINT]
    assert chosen(logGroupIdentifiers=[JOBS, f"{ARN}{ENDPOINT}", "/none"]) == [ENDPOINT, JOBS]
    assert chosen(logGroupClass="INFREQUENT_ACCESS") == []
    assert len(chosen(logGroupClass="STANDARD")) == 3
    # A search by a part of the name gets fewer members, as on CloudWatch.
    (short,) = logs.describe_log_groups(logGroupNamePattern="TrainingJ")["logGroups"]
    assert set(short) == {"logGroupName", "creationTime", "arn"}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"logGroupNamePrefix": "a", "logGroupNamePattern": "abc"}, "logGroupNamePattern"),
        ({"logGroupIdentifiers": [JOBS], "logGroupNamePrefix": "a"}, "logGroupNamePrefix"),
        ({"logGroupIdentifiers": [JOBS], "logGroupClass": "STANDARD"}, "logGroupClass"),
        ({"limit": 51}, "limit"),
    ],
)
def test_filters_of_groups_that_do_not_go_together_are_refused(logs, refusal, members, named):
    status, code, message = refusal(logs.describe_log_groups, **members)
    assert (status, code) == (400, "InvalidParameterException")
    assert named in message


def test_an_identifier_of_another_region_is_not_found(logs, stage, refusal):
    stage.write_log(JOBS, "s", [(1000, "x")])
    foreign = f"{ARN}{JOBS}".replace("us-west-2", "eu-west-1")
    for call in (
        lambda: logs.describe_log_groups(logGroupIdentifiers=[foreign]),
        lambda: logs.describe_log_streams(logGroupIdentifier=foreign),
        lambda: logs.filter_log_events(logGroupIdentifier=foreign),
        lambda: logs.get_log_events(logGroupIdentifier=foreign, logStreamName="s"),
    ):
        assert refusal(call)[:2] == (400, "ResourceNotFoundException")


# Streams


def test_a_stream_has_its_times_its_size_and_its_arn(logs, two_jobs, stage):
    (stream,) = logs.describe_log_streams(logGroupName=JOBS, logStreamNamePrefix="a/")["logStreams"]
    assert stream["logStreamName"] == "a/algo-1-1"
    assert (stream["creationTime"], stream["firstEventTimestamp"], stream["lastEventTimestamp"]) == (1000, 1000, 5000)
    assert stream["lastIngestionTime"] == 5000
    assert stream["storedBytes"] > 0
    assert stream["arn"] == f"{ARN}{JOBS}:log-stream:a/algo-1-1"


def test_streams_come_by_name_or_by_their_last_event_in_both_directions(logs, stage):
    for name, last_ms in (("a", 3000), ("b", 1000), ("c", 2000)):
        stage.write_log(JOBS, name, [(500, "first"), (last_ms, "last")])

    def names(**members: Any) -> str:
        found = logs.describe_log_streams(logGroupIdentifier=f"{ARN}{JOBS}", **members)["logStreams"]
        return "".join(stream["logStreamName"] for stream in found)

    assert names() == "abc"
    assert names(descending=True) == "cba"
    assert names(orderBy="LastEventTime") == "bca"
    assert names(orderBy="LastEventTime", descending=True) == "acb"
    assert names(orderBy="LogStreamName", logStreamNamePrefix="b") == "b"


def test_all_streams_come_in_one_reply_regardless_of_the_limit(logs, stage):
    for number in range(12):
        stage.write_log(JOBS, f"s{number:02}", [(1000, "x")])
    reply = logs.describe_log_streams(logGroupName=JOBS, limit=5)
    assert len(reply["logStreams"]) == 12
    assert "nextToken" not in reply


def test_a_stream_without_a_line_is_not_shown_and_a_group_without_one_is_not_found(logs, stage, refusal):
    stage.write_log(JOBS, "empty", [])
    assert refusal(logs.describe_log_streams, logGroupName=JOBS)[:2] == (400, "ResourceNotFoundException")
    stage.write_log(JOBS, "full", [(1000, "x")])
    shown = logs.describe_log_streams(logGroupName=JOBS)["logStreams"]
    assert [stream["logStreamName"] for stream in shown] == ["full"]
    assert logs.describe_log_streams(logGroupName=JOBS, logStreamNamePrefix="empty")["logStreams"] == []
    assert logs.describe_log_streams(logGroupName=JOBS, logStreamNamePrefix="absent")["logStreams"] == []


@pytest.mark.parametrize("members", [{}, {"logGroupName": JOBS, "logGroupIdentifier": JOBS}])
def test_a_request_names_its_group_in_one_way(logs, two_jobs, refusal, members):
    status, code, message = refusal(logs.describe_log_streams, **members)
    assert (status, code) == (400, "InvalidParameterException")
    assert "logGroupIdentifier" in message


# Events of a stream


@pytest.mark.parametrize("from_head", [True, False])
def test_pages_of_events_join_to_the_whole_stream(logs, stage, from_head):
    stage.write_log(JOBS, "s", [(1000 + number, f"line {number}") for number in range(10)])
    members = {"logGroupName": JOBS, "logStreamName": "s", "limit": 3}
    pages, token = [], {}
    while True:
        reply = logs.get_log_events(**members, startFromHead=from_head, **token)
        if not reply["events"]:
            break
        pages.append(messages(reply))
        token = {"nextToken": reply["nextForwardToken" if from_head else "nextBackwardToken"]}
    ordered = pages if from_head else pages[::-1]
    assert [line for page in ordered for line in page] == [f"line {number}" for number in range(10)]
    # The token at the end is returned unchanged, and finds lines that are written later.
    if from_head:
        assert reply["nextForwardToken"] == token["nextToken"]
        stage.write_log(JOBS, "s", [(2000, "later")])
        assert messages(logs.get_log_events(**members, **token)) == ["later"]


def test_events_carry_their_time_and_are_bounded_by_it(logs, two_jobs):
    members = {"logGroupName": JOBS, "logStreamName": "a/algo-1-1"}
    (event,) = logs.get_log_events(**members, startTime=3000, endTime=5000)["events"]
    assert event == {"timestamp": 3000, "message": "a two ERROR", "ingestionTime": 3000}
    assert logs.get_log_events(**members, startTime=6000)["events"] == []


def test_the_latest_events_come_unless_the_head_is_asked_for(logs, two_jobs):
    members = {"logGroupName": JOBS, "logStreamName": "a/algo-1-1", "limit": 1}
    assert messages(logs.get_log_events(**members)) == ["a three"]
    assert messages(logs.get_log_events(**members, startFromHead=True)) == ["a one"]


def test_text_comes_back_as_it_was_written(logs, stage):
    lines = ["", " two  spaces ", "\u00fc \U0001f600", '{"json": "\\n"}', "\ttab"]
    stage.write_log(JOBS, "s", [(1000 + number, line) for number, line in enumerate(lines)])
    assert messages(logs.get_log_events(logGroupName=JOBS, logStreamName="s")) == lines


@pytest.mark.parametrize("token", ["x", "f/00000009/000000000000", "f/00000001/000000000003"])
def test_a_token_that_is_not_of_the_stream_is_refused(logs, two_jobs, refusal, token):
    status, code, message = refusal(logs.get_log_events, logGroupName=JOBS, logStreamName="a/algo-1-1", nextToken=token)
    assert (status, code) == (400, "InvalidParameterException")
    assert token in message


@pytest.mark.parametrize(("group", "stream"), [(JOBS, "none"), ("/none", "a/algo-1-1"), (JOBS, "../a")])
def test_a_stream_that_is_not_there_is_not_found(logs, two_jobs, refusal, group, stream):
    status, code, message = refusal(logs.get_log_events, logGroupName=group, logStreamName=stream)
    assert (status, code) == (400, "ResourceNotFoundException")
    assert stream in message


# Searches over a group


@pytest.mark.parametrize("limit", [1, 4, 6, 100])
def test_pages_of_a_search_join_to_all_events_in_the_order_of_time(logs, two_jobs, limit):
    pages = list(
        logs.get_paginator("filter_log_events").paginate(logGroupName=JOBS, PaginationConfig={"PageSize": limit})
    )
    events = [event for page in pages for event in page["events"]]
    assert [event["timestamp"] for event in events] == [1000, 2000, 3000, 4000, 5000, 6000]
    assert [event["logStreamName"] for event in events] == ["a/algo-1-1", "b/algo-1-2"] * 3
    assert len({event["eventId"] for event in events}) == 6
    assert "nextToken" not in pages[-1]


def test_a_search_is_bounded_by_streams_times_and_terms(logs, two_jobs):
    def found(**members: Any) -> list[str]:
        return messages(logs.filter_log_events(logGroupName=JOBS, **members))

    assert found(logStreamNames=["b/algo-1-2"]) == ["b one", "b two", "b three ERROR"]
    assert found(logStreamNamePrefix="a/") == ["a one", "a two ERROR", "a three"]
    assert found(startTime=3000, endTime=4000) == ["a two ERROR", "b two"]
    assert found(filterPattern="ERROR") == ["a two ERROR", "b three ERROR"]
    assert found(filterPattern="two -ERROR") == ["b two"]
    assert found(filterPattern='?one ?"three ERROR"') == ["a one", "b one", "b three ERROR"]
    assert found(filterPattern="nothing") == []
    assert found(interleaved=False, unmask=True, limit=1) == ["a one"]


def test_an_event_keeps_its_id_in_every_search(logs, two_jobs):
    (narrow,) = logs.filter_log_events(logGroupName=JOBS, filterPattern='"a two"')["events"]
    wide = logs.filter_log_events(logGroupIdentifier=f"{ARN}{JOBS}")["events"]
    assert narrow in wide
    assert len(narrow["eventId"]) == 56


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"logStreamNames": ["a/algo-1-1"], "logStreamNamePrefix": "a"}, "logStreamNamePrefix"),
        ({"startFromHead": False}, "startFromHead"),
        ({"startTime": 2000, "endTime": 1000}, "endTime 1000"),
        ({"filterPattern": "{ $.level = 1 }"}, "JSON"),
        ({"filterPattern": "?one two"}, "filter pattern"),
        ({"nextToken": "x"}, "nextToken"),
        ({"limit": 10_001}, "limit"),
    ],
)
def test_a_search_that_cannot_be_honored_is_refused(logs, two_jobs, refusal, members, named):
    status, code, message = refusal(logs.filter_log_events, logGroupName=JOBS, **members)
    assert (status, code) == (400, "InvalidParameterException")
    assert named in message


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"logGroupName": "/none"}, "/none"),
        ({"logGroupName": JOBS, "logStreamNames": ["a/algo-1-1", "missing"]}, "missing"),
    ],
)
def test_a_search_in_a_missing_group_is_not_found(logs, two_jobs, refusal, members, named):
    status, code, message = refusal(logs.filter_log_events, **members)
    assert (status, code) == (400, "ResourceNotFoundException")
    assert named in message


def test_keys_without_the_right_to_read_logs_are_refused(restricted, two_jobs, refusal):
    status, code, message = refusal(restricted("logs").get_log_events, logGroupName=JOBS, logStreamName="a/algo-1-1")
    assert (status, code) == (400, "AccessDeniedException")
    assert "logs:GetLogEvents" in message
