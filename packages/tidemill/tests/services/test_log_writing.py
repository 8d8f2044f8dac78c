"""CloudWatch Logs by boto3: groups, streams and events of clients, retention and tags."""

import asyncio
import os
from typing import Any

import pytest

from tidemill.control.resources import TRAINING_JOB
from tidemill.store.logs.streams import LogStreams
from tidemill.store.records.base import Record

JOBS = "/aws/sagemaker/TrainingJobs"
ARN = "arn:aws:logs:us-west-2:000000000000:log-group:"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


def put(logs: Any, events: list[tuple[int, str]], *, group: str = "/team", stream: str = "run") -> dict[str, Any]:
    members = [{"timestamp": at_ms, "message": message} for at_ms, message in events]
    return logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=members)


def shown(reply: dict[str, Any]) -> list[tuple[int, str]]:
    return [(event["timestamp"], event["message"]) for event in reply["events"]]


def read(logs: Any, **members: Any) -> list[tuple[int, str]]:
    return shown(logs.get_log_events(logGroupName="/team", logStreamName="run", startFromHead=True, **members))


def group_names(logs: Any) -> list[str]:
    return [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]


def stream_names(logs: Any, group: str = "/team") -> list[str]:
    return [each["logStreamName"] for each in logs.describe_log_streams(logGroupName=group)["logStreams"]]


@pytest.fixture
def team(logs: Any) -> Any:
    """Create the stream ``run`` in the group ``/team``, and return the client."""
    logs.create_log_group(logGroupName="/team", tags={"stage": "test"}, kmsKeyId="alias/team")
    logs.create_log_stream(logGroupName="/team", logStreamName="run")
    return logs


def test_what_a_client_puts_is_read_in_every_way(team, stage):
    now_ms = stage.clock.ms
    two_lines = "Traceback:\n  ValueError: \u00fc \U0001f600\n"
    reply = put(team, [(now_ms - 5, "one"), (now_ms, two_lines)])
    assert reply["nextSequenceToken"] and "rejectedLogEventsInfo" not in reply
    # A token of any age is accepted, as CloudWatch does.
    team.put_log_events(
        logGroupName="/team",
        logStreamName="run",
        sequenceToken="49590302769721565817395875378459",
        logEvents=[{"timestamp": now_ms + 1, "message": "three"}],
    )
    expected = [(now_ms - 5, "one"), (now_ms, two_lines), (now_ms + 1, "three")]
    assert read(team) == expected
    (first, *_) = team.get_log_events(logGroupName="/team", logStreamName="run", startFromHead=True)["events"]
    assert first["ingestionTime"] == now_ms
    found = team.filter_log_events(logGroupName="/team")["events"]
    assert [(each["timestamp"], each["message"]) for each in found] == expected
    assert {each["ingestionTime"] for each in found} == {now_ms}
    matched = team.filter_log_events(logGroupName="/team", filterPattern='"ValueError: \u00fc" -three')
    assert shown(matched) == [expected[1]]
    (stream,) = team.describe_log_streams(logGroupName="/team")["logStreams"]
    times = stream["firstEventTimestamp"], stream["lastEventTimestamp"], stream["lastIngestionTime"]
    assert times == (now_ms - 5, now_ms + 1, now_ms)
    (group,) = team.describe_log_groups()["logGroups"]
    assert (group["logGroupName"], group["creationTime"], group["kmsKeyId"]) == ("/team", now_ms, "alias/team")


def test_groups_and_streams_without_events_are_listed_and_outlive_the_service(team, stage, refusal):
    team.create_log_group(logGroupName="/empty")
    assert stream_names(team) == ["run"] and stream_names(team, "/empty") == []
    (stream,) = team.describe_log_streams(logGroupName="/team")["logStreams"]
    assert not {"firstEventTimestamp", "lastEventTimestamp"} & stream.keys()
    stage.gateway()  # reads everything again from disk and records
    assert group_names(team) == ["/empty", "/team"] and stream_names(team) == ["run"]
    assert team.filter_log_events(logGroupName="/empty")["events"] == []
    for call, members in (
        (team.create_log_group, {"logGroupName": "/empty"}),
        (team.create_log_stream, {"logGroupName": "/team", "logStreamName": "run"}),
    ):
        assert refusal(call, **members)[:2] == (400, "ResourceAlreadyExistsException")


def test_an_event_that_comes_late_is_put_at_its_place(team, stage):
    now_ms = stage.clock.ms
    put(team, [(now_ms - 50, "b"), (now_ms - 30, "d")])
    put(team, [(now_ms - 10, "f")])
    put(team, [(now_ms - 60, "a"), (now_ms - 40, "c"), (now_ms - 30, "e"), (now_ms, "g")])
    assert [message for _, message in read(team)] == list("abcdefg")
    assert [message for _, message in shown(team.filter_log_events(logGroupName="/team"))] == list("abcdefg")
    assert [message for _, message in read(team, startTime=now_ms - 40, endTime=now_ms - 10)] == list("cde")


def test_events_out_of_the_allowed_time_are_rejected_and_the_others_stored(team, stage):
    now_ms = stage.clock.ms
    reply = put(team, [(now_ms - 14 * DAY_MS - 1, "old"), (now_ms - 14 * DAY_MS, "kept")])
    assert reply["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 1}
    reply = put(team, [(now_ms, "now"), (now_ms + 2 * HOUR_MS, "soon"), (now_ms + 2 * HOUR_MS + 1, "future")])
    assert reply["rejectedLogEventsInfo"] == {"tooNewLogEventStartIndex": 2}
    team.put_retention_policy(logGroupName="/team", retentionInDays=3)
    reply = put(team, [(now_ms - 3 * DAY_MS - 1, "expired"), (now_ms - 3 * DAY_MS, "third day")])
    assert reply["rejectedLogEventsInfo"] == {"expiredLogEventEndIndex": 1}
    team.delete_retention_policy(logGroupName="/team")
    assert [message for _, message in read(team)] == ["kept", "third day", "now", "soon"]


@pytest.mark.parametrize(
    ("events", "named"),
    [
        ([(2, "b"), (1, "a")], "chronological order"),
        ([(0, "a"), (DAY_MS + 1, "b")], "24 hours"),
        ([(0, "x")] * 10_001, "10000"),
        ([(0, "x" * (1024 * 1024 - 25))], "1,048,576"),
    ],
)
def test_a_batch_that_cloudwatch_refuses_is_refused_whole(team, stage, refusal, events, named):
    base_ms = stage.clock.ms - 2 * DAY_MS
    batch = [{"timestamp": base_ms + at_ms, "message": message} for at_ms, message in events]
    call = {"logGroupName": "/team", "logStreamName": "run", "logEvents": batch}
    status, code, message = refusal(team.put_log_events, **call)
    assert (status, code) == (400, "InvalidParameterException") and named in message
    assert read(team) == []


def test_the_largest_event_and_the_largest_batch_are_stored(team, stage):
    now_ms = stage.clock.ms
    put(team, [(now_ms, "x" * (1024 * 1024 - 26))])
    put(team, [(now_ms + 1, "y")] * 10_000)
    found = team.filter_log_events(logGroupName="/team", filterPattern="y")["events"]
    assert len(found) == 10_000 and len({event["eventId"] for event in found}) == 10_000
    assert len(read(team)[0][1]) == 1024 * 1024 - 26


def test_what_is_not_there_is_named(logs, refusal):
    logs.create_log_group(logGroupName="/team")
    stream = {"logGroupName": "/team", "logStreamName": "none"}
    event = [{"timestamp": 1_700_000_000_000, "message": "x"}]
    for call, members in (
        (logs.put_log_events, {**stream, "logEvents": event}),
        (logs.delete_log_stream, stream),
        (logs.create_log_stream, {"logGroupName": "/none", "logStreamName": "s"}),
        (logs.put_log_events, {"logGroupName": "/none", "logStreamName": "s", "logEvents": event}),
        (logs.delete_log_group, {"logGroupName": "/none"}),
        (logs.put_retention_policy, {"logGroupName": "/none", "retentionInDays": 1}),
        (logs.tag_resource, {"resourceArn": f"{ARN}/none", "tags": {"a": "b"}}),
    ):
        status, code, message = refusal(call, **members)
        assert (status, code) == (400, "ResourceNotFoundException") and "none" in message
    assert refusal(logs.put_retention_policy, logGroupName="/team", retentionInDays=2)[1] == "InvalidParameterException"
    assert refusal(logs.create_log_group, logGroupName="aws/mine")[1] == "InvalidParameterException"


def test_tags_of_groups_are_added_removed_and_listed(team, stage):
    arn = f"{ARN}/team"
    team.tag_resource(resourceArn=arn, tags={"stage": "live", "owner": "ann"})
    assert team.list_tags_for_resource(resourceArn=arn)["tags"] == {"stage": "live", "owner": "ann"}
    team.untag_resource(resourceArn=arn, tagKeys=["owner", "other"])
    assert team.list_tags_for_resource(resourceArn=arn)["tags"] == {"stage": "live"}
    stage.write_log(JOBS, "job/algo-1-1", [(1000, "x")])
    assert team.list_tags_for_resource(resourceArn=f"{ARN}{JOBS}")["tags"] == {}


def test_the_streams_of_jobs_cannot_be_forged_and_clients_have_their_own_beside_them(logs, stage, refusal):
    stage.write_log(JOBS, "job/algo-1-1", [(1000, "of the job")])
    endpoint = "/aws/sagemaker/Endpoints/digits"
    stage.write_log(endpoint, "AllTraffic/i-1", [(1000, "of the endpoint")])
    logs.create_log_stream(logGroupName=JOBS, logStreamName="notes")
    put(logs, [(stage.clock.ms, "of a client")], group=JOBS, stream="notes")
    for group, name in ((JOBS, "job/algo-2-1"), (JOBS, "future/algo-1-1"), (endpoint, "AllTraffic/i-2")):
        status, code, message = refusal(logs.create_log_stream, logGroupName=group, logStreamName=name)
        assert (status, code) == (400, "InvalidParameterException") and name in message
    status, code, message = refusal(put, logs=logs, events=[(1, "forged")], group=JOBS, stream="job/algo-1-1")
    assert (status, code) == (400, "InvalidParameterException") and "job/algo-1-1" in message
    prefixed = logs.filter_log_events(logGroupName=JOBS, logStreamNamePrefix="job/")
    assert shown(prefixed) == [(1000, "of the job")]
    assert stream_names(logs, JOBS) == ["job/algo-1-1", "notes"]
    logs.create_log_stream(logGroupName=JOBS, logStreamName="none")


def test_streams_and_groups_are_deleted_unless_a_job_writes_them(team, stage, refusal):
    put(team, [(stage.clock.ms, "x")])
    team.create_log_stream(logGroupName="/team", logStreamName="../../etc")
    team.delete_log_stream(logGroupName="/team", logStreamName="run")
    assert stream_names(team) == ["../../etc"]
    team.create_log_stream(logGroupName="/team", logStreamName="run")
    assert read(team) == []  # nothing of the deleted one is left
    team.delete_log_group(logGroupName="/team")
    assert group_names(team) == [] and list(stage.logs.iterdir()) == []

    def job(status: str) -> Record:
        return Record(kind=TRAINING_JOB, name="job", status=status, created_ms=1, modified_ms=1, document={})

    stage.write_log(JOBS, "job/algo-1-1", [(1000, "x")])
    stage.write_log(JOBS, "other/algo-1-1", [(1000, "x")])
    asyncio.run(stage.records.insert(job("InProgress")))
    for call, members in (
        (team.delete_log_group, {"logGroupName": JOBS}),
        (team.delete_log_stream, {"logGroupName": JOBS, "logStreamName": "job/algo-1-1"}),
    ):
        status, code, message = refusal(call, **members)
        assert (status, code) == (400, "OperationAbortedException") and "'job'" in message
    assert stream_names(team, JOBS) == ["job/algo-1-1", "other/algo-1-1"]
    team.delete_log_stream(logGroupName=JOBS, logStreamName="other/algo-1-1")
    asyncio.run(stage.records.update(TRAINING_JOB, "job", lambda record: job("Failed")))
    team.delete_log_group(logGroupName=JOBS)
    assert group_names(team) == []


def test_retention_hides_old_events_and_removes_their_files(team, stage):
    start_ms = stage.clock.ms
    put(team, [(start_ms, "old " + "x" * 500_000)])
    stage.write_log(JOBS, "ended/algo-1-1", [(start_ms, "x")])
    stage.write_log(JOBS, "running/algo-1-1", [(start_ms, "x"), (start_ms + 1, "y")])
    running = Record(kind=TRAINING_JOB, name="running", status="InProgress", created_ms=1, modified_ms=1, document={})
    asyncio.run(stage.records.insert(running))
    for group in ("/team", JOBS):
        team.put_retention_policy(logGroupName=group, retentionInDays=1)
    assert {each["retentionInDays"] for each in team.describe_log_groups()["logGroups"]} == {1}
    stage.clock.ms += HOUR_MS
    asyncio.run(stage.log_parts.removal.sweep())
    assert len(read(team)) == 1
    stage.clock.ms += DAY_MS - HOUR_MS + 1
    assert read(team) == [] and team.filter_log_events(logGroupName="/team")["events"] == []
    asyncio.run(stage.log_parts.removal.sweep())
    assert stream_names(team, JOBS) == ["running/algo-1-1"]
    assert shown(team.filter_log_events(logGroupName=JOBS)) == [(start_ms + 1, "y")]
    streams = LogStreams(stage.logs)
    assert streams.describe("/team", "run").stored_bytes == 0
    # The stream goes on; a program may still write into it.
    put(team, [(stage.clock.ms, "new")])
    assert read(team) == [(stage.clock.ms, "new")]
    team.create_log_stream(logGroupName="/team", logStreamName="unused")
    for path in streams.directory("/team", "unused").iterdir():
        os.utime(path, (1, 1))
    asyncio.run(stage.log_parts.removal.sweep())
    assert stream_names(team) == ["run"]


def test_keys_without_the_right_to_write_logs_are_refused(restricted, team, refusal):
    logs = restricted("logs")
    for call, members, action in (
        (logs.create_log_group, {"logGroupName": "/mine"}, "logs:CreateLogGroup"),
        (logs.delete_log_stream, {"logGroupName": "/team", "logStreamName": "run"}, "logs:DeleteLogStream"),
    ):
        status, code, message = refusal(call, **members)
        assert (status, code) == (400, "AccessDeniedException") and action in message
