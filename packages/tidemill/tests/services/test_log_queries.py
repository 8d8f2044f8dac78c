"""CloudWatch Logs Insights by boto3: queries over the streams of jobs and of clients."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.control.logs.insights.program import QueryTask
from tidemill.control.logs.insights.queries import LogQueries, LogQuery
from tidemill.core.clock import SystemClock
from tidemill.errors import AwsError

JOBS = "/aws/sagemaker/TrainingJobs"
ARN = "arn:aws:logs:us-west-2:000000000000:log-group:"
BACKTRACKING = "filter @message like /(x+x+)+y/"


@pytest.fixture
def finished(logs: Any, wait_until: Callable[..., Any]) -> Callable[[str], dict[str, Any]]:
    """Return a function that returns the results of a query once it has ended."""

    def results(query_id: str) -> dict[str, Any]:
        wait_until(
            lambda: logs.get_query_results(queryId=query_id)["status"] not in ("Scheduled", "Running"),
        )
        return logs.get_query_results(queryId=query_id)

    return results


@pytest.fixture
def start(logs: Any, stage: Any) -> Callable[..., str]:
    """Write a stream of a job and one of a client, and return a function that starts a query over both."""
    base_ms = stage.clock.ms
    stage.write_log(JOBS, "a/algo-1-1", [(base_ms + number, f"loss={number}") for number in range(4)])
    logs.create_log_group(logGroupName="/team")
    logs.create_log_stream(logGroupName="/team", logStreamName="run")
    members = [{"timestamp": base_ms + 10, "message": json.dumps({"loss": 7, "text": "two\nlines"})}]
    logs.put_log_events(logGroupName="/team", logStreamName="run", logEvents=members)
    return lambda query, **others: logs.start_query(
        **{
            "logGroupNames": [JOBS, "/team"],
            "startTime": base_ms // 1000,
            "endTime": base_ms // 1000,
            "queryString": query,
            **others,
        }
    )["queryId"]


def rows(reply: dict[str, Any]) -> list[dict[str, str]]:
    assert reply["status"] == "Complete", reply
    return [{each["field"]: each["value"] for each in row} for row in reply["results"]]


def test_a_query_finds_the_events_of_jobs_and_clients_together(logs, stage, start, finished):
    query_id = start(
        "parse @message 'loss=*' as value | fields @log, @logStream, coalesce(value, loss) as it | sort it"
    )
    reply = finished(query_id)
    assert [each["it"] for each in rows(reply)] == ["0", "1", "2", "3", "7"]
    assert rows(reply)[-1] == {"@log": "000000000000:/team", "@logStream": "run", "it": "7"}
    statistics = reply["statistics"]
    assert (statistics["recordsScanned"], statistics["recordsMatched"], statistics["logGroupsScanned"]) == (5, 5, 2)
    assert statistics["bytesScanned"] > 100 and reply["queryLanguage"] == "CWLI"
    pages = [logs.get_query_results(queryId=query_id, maxItems=2)]
    while "nextToken" in pages[-1]:
        pages.append(logs.get_query_results(queryId=query_id, maxItems=2, nextToken=pages[-1]["nextToken"]))
    assert [each for page in pages for each in page["results"]] == reply["results"] and len(pages) == 3
    (described,) = logs.describe_queries(logGroupName="/team", status="Complete")["queries"]
    assert (described["queryId"], described["logGroupName"]) == (query_id, JOBS)
    assert logs.describe_queries(status="Failed")["queries"] == []


def test_a_query_is_bounded_by_times_groups_and_limit(logs, stage, start, finished):
    base_ms = stage.clock.ms
    whole = "fields @message"
    in_ms = {"startTime": base_ms + 2, "endTime": base_ms + 10}
    assert [each["@message"] for each in rows(finished(start(whole, **in_ms)))][1:] == ["loss=3", "loss=2"]
    by_arn = {"logGroupNames": [], "logGroupIdentifiers": [f"{ARN}/team"]}
    (only,) = rows(finished(start(whole, **by_arn)))
    assert "two\\nlines" in only["@message"]
    assert len(rows(finished(start(whole, limit=1)))) == 1
    assert rows(finished(start(whole, startTime=0, endTime=base_ms // 1000 - 1))) == []
    logs.put_retention_policy(logGroupName=JOBS, retentionInDays=1)
    stage.clock.ms += 24 * 3600 * 1000 + 3
    assert len(rows(finished(start(whole)))) == 2  # what the policy still shows, and the event of the client


def test_a_query_that_takes_forever_times_out_or_is_stopped_and_others_go_on(logs, stage, start, finished, refusal):
    stage.write_log(JOBS, "b/algo-1-1", [(stage.clock.ms, "x" * 60)])
    stage.log_parts.queries._cpu_s = 1
    slow = [start(BACKTRACKING) for _ in range(3)]
    for query_id in slow[1:]:  # one that runs, and one that waits for its end
        assert logs.stop_query(queryId=query_id)["success"] is True
    ends = [finished(each) for each in slow]
    assert [each["status"] for each in ends] == ["Timeout", "Cancelled", "Cancelled"]
    reason = "the query has used 1 s of CPU; search a shorter time, or fewer groups"
    assert [each["results"] for each in ends] == [[[{"field": "@message", "value": reason}]], [], []]
    stage.log_parts.queries._cpu_s = 300
    status, code, message = refusal(logs.stop_query, queryId=slow[0])
    assert (status, code) == (400, "InvalidParameterException") and "Timeout" in message
    pages = [logs.describe_queries(maxResults=2)]
    pages.append(logs.describe_queries(maxResults=2, nextToken=pages[0]["nextToken"]))
    assert [each["queryId"] for page in pages for each in page["queries"]] == slow[::-1]
    assert len(rows(finished(start("fields @message")))) == 6


def test_a_query_that_failed_says_why_where_its_results_would_be(logs, stage, start, finished, monkeypatch):
    stage.write_log(JOBS, "b/algo-1-1", [(stage.clock.ms, f"{number} " + "x" * 1000) for number in range(4000)])
    queries = "tidemill.control.logs.insights.queries"
    monkeypatch.setattr(f"{queries}._MEMORY_BYTES", 1 << 20)
    reply = finished(start("fields @message"))
    assert reply["status"] == "Failed", reply
    assert "needs more than 0.000976562 GiB of memory; search a shorter time" in reply["results"][0][0]["value"]
    monkeypatch.setattr(f"{queries}.sys.executable", "/no/such/program")
    reply = finished(start("fields @message"))
    assert (reply["status"], reply["results"][0][0]["field"]) == ("Failed", "@message")
    assert "/no/such/program" in reply["results"][0][0]["value"]


def test_the_result_that_is_newest_is_kept_and_not_too_many_queries_wait():
    asyncio.run(results_are_kept_and_queries_are_limited())


async def results_are_kept_and_queries_are_limited() -> None:
    class Queries(LogQueries):
        """Queries whose ends the test chooses, with large results."""

        async def _search(self, task: QueryTask) -> bytes:
            await ends[task["limit"]].wait()
            return json.dumps({"rows": [], "padding": "x" * 7 * 2**20}).encode()

    ends = [asyncio.Event() for _ in range(10)]
    queries = Queries(clock=SystemClock())

    def begin(number: int) -> LogQuery:
        return queries.start("fields a", list, groups=["g"], start_ms=0, end_ms=1, limit=number, caller="me")

    found = [begin(number) for number in range(10)]
    for number in (*range(1, 10), 0):
        ends[number].set()
        await asyncio.gather(found[number]._task)
        assert queries.get(found[number].query_id) is found[number]
    assert [queries.get(each.query_id) is not None for each in found] == [True, *[False] * 6, True, True, True]
    ends[0].clear()
    waiting = [begin(0) for _ in range(100)]
    with pytest.raises(AwsError, match="100 queries run or wait") as refused:
        begin(0)
    assert refused.value.code == "LimitExceededException"
    assert await queries.stop(waiting[50])
    begin(0)
    await queries.close()


def test_a_result_that_is_too_large_is_cut_and_says_so(logs, stage, start, finished):
    stage.write_log(JOBS, "b/algo-1-1", [(stage.clock.ms + number, "x" * 250_000) for number in range(40)])
    reply = finished(start("fields @message | filter @message like 'xxx'"))
    statistics = reply["statistics"]
    assert statistics["resultCount"] == len(reply["results"]) < 40
    assert statistics["resultCount"] + statistics["estimatedRecordsSkipped"] == statistics["recordsMatched"] == 40


def test_queries_that_cannot_be_run_are_refused_at_the_start(logs, stage, start, refusal):
    status, code, message = refusal(start, query="fields @message | dedup loss")
    assert (status, code) == (400, "MalformedQueryException")
    assert "'dedup' at position 18" in message and "stats" in message
    for members, named in (
        ({"startTime": 2, "endTime": 1}, "swap them"),
        ({"logGroupName": "/team"}, "Give one of"),
        ({"logGroupNames": []}, "Give one of"),
        ({"queryLanguage": "SQL"}, "Logs Insights"),
    ):
        status, code, message = refusal(start, query="fields a", **members)
        assert (status, code) == (400, "InvalidParameterException") and named in message
    assert refusal(start, query="fields a", logGroupNames=["/none"])[:2] == (400, "ResourceNotFoundException")
    assert refusal(logs.get_query_results, queryId="none")[:2] == (400, "ResourceNotFoundException")


def test_the_place_of_a_mistake_is_in_the_error(logs, start):
    with pytest.raises(logs.exceptions.MalformedQueryException) as refused:
        start("filter a ==")
    found = refused.value.response["queryCompileError"]
    assert found["location"] == {"startCharOffset": 10, "endCharOffset": 11} and "expected a field" in found["message"]
