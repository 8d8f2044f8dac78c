"""CloudWatch Logs Insights: StartQuery, GetQueryResults, StopQuery and DescribeQueries."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.logs.insights.commands import InsightsQuery
from tidemill.control.logs.insights.queries import LogQueries, LogQuery, SearchedStream
from tidemill.control.logs.insights.scanner import MalformedQuery
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.services.logs.groups import group_named, invalid, not_found
from tidemill.services.operations import Operations
from tidemill.services.pages import position_of
from tidemill.store.logs.streams import LogStreams
from tidemill.wire.exchange import Context

_LIMIT = 10_000
_PAGE = 1000
_GROUPS_MAX = 50
_MILLISECONDS_FROM = 10**11
"""A time above this is in milliseconds, which many clients send, and not in seconds."""
_LANGUAGE = "CWLI"


class LogQuerying(Operations):
    """The operations on queries."""

    def __init__(self, groups: GroupRecords, streams: LogStreams, queries: LogQueries, *, region: str) -> None:
        self._groups = groups
        self._streams = streams
        self._queries = queries
        self._region = region

    async def start_query(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        groups = queried_groups(request, region=self._region)
        for group in groups:
            if self._groups.get(group) is None and not self._streams.names(group):
                raise not_found("log group", group)
        start_ms, end_ms = _milliseconds(request["startTime"], 0), _milliseconds(request["endTime"], 999)
        if end_ms < start_ms:
            raise invalid(f"endTime {request['endTime']} is before startTime {request['startTime']}; swap them")
        limit = request.get("limit", _LIMIT)
        try:
            # In a thread, because to compile a regular expression can take seconds.
            await asyncio.to_thread(InsightsQuery.parse, request["queryString"], limit=limit)
            query = self._queries.start(
                request["queryString"],
                partial(self._searched, {group: self._groups.shown_from_ms(group) for group in groups}),
                groups=groups,
                start_ms=start_ms,
                end_ms=end_ms,
                limit=limit,
                caller=context.caller.arn,
            )
        except MalformedQuery as error:
            location = {"startCharOffset": error.begin, "endCharOffset": error.end}
            raise AwsError(
                f"The query is not one that can be run: {error}",
                code="MalformedQueryException",
                members={"queryCompileError": {"location": location, "message": str(error)}},
            ) from error
        return {"queryId": query.query_id}

    async def get_query_results(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        query = self._found(request)
        answer = query.answer
        reply: dict[str, Any] = {"queryLanguage": _LANGUAGE, "status": str(query.status), "results": []}
        if answer is None:
            # CloudWatch has no member for a reason; a client that shows the results shows it in this form.
            return reply | ({"results": [[{"field": "@message", "value": query.reason}]]} if query.reason else {})
        token = request.get("nextToken", "0")
        begin = position_of(token)
        if begin is None:
            raise invalid(f"nextToken {token[:64]!r} is not a token of GetQueryResults; pass it unchanged, or none")
        end = begin + (request.get("maxItems") or len(answer["rows"]))
        reply["results"] = [
            [{"field": name, "value": value} for name, value in row] for row in answer["rows"][begin:end]
        ]
        reply["statistics"] = {
            "recordsMatched": float(answer["matched"]),
            "recordsScanned": float(answer["scanned"]),
            "bytesScanned": float(answer["scanned_bytes"]),
            "estimatedRecordsSkipped": float(answer["skipped"]),
            "estimatedBytesSkipped": 0.0,
            "logGroupsScanned": float(len(query.groups)),
            "resultCount": float(len(answer["rows"])),
        }
        return reply | ({"nextToken": str(end)} if end < len(answer["rows"]) else {})

    async def stop_query(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        query = self._found(request)
        if not await self._queries.stop(query):
            raise invalid(
                f"The query {query.query_id!r} is in status {query.status}; only one that runs can be stopped"
            )
        return {"success": True}

    async def describe_queries(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group, status = request.get("logGroupName"), request.get("status")
        found = [
            query
            for query in self._queries.all()
            if (group is None or group in query.groups)
            and status in (None, query.status)
            and request.get("queryLanguage", _LANGUAGE) == _LANGUAGE
        ]
        ids = [query.query_id for query in found]
        token = request.get("nextToken")
        if token is not None and token not in ids:
            raise invalid(f"nextToken {token[:64]!r} is not a token of DescribeQueries; pass it unchanged, or none")
        begin = 0 if token is None else ids.index(token)
        end = begin + request.get("maxResults", _PAGE)
        return {"queries": [_described(query) for query in found[begin:end]]} | (
            {"nextToken": ids[end]} if end < len(ids) else {}
        )

    def _found(self, request: Mapping[str, Any]) -> LogQuery:
        query = self._queries.get(request["queryId"])
        if query is None:
            raise AwsError(
                f"There is no query {request['queryId']!r}: a restart of the service forgets queries, and results are"
                " kept for the last ones only. Start it again",
                code="ResourceNotFoundException",
            )
        return query

    def _searched(self, shown_from_ms: Mapping[str, int]) -> list[SearchedStream]:
        return [
            (f"{ACCOUNT_ID}:{group}", name, str(self._streams.directory(group, name)), since_ms)
            for group, since_ms in shown_from_ms.items()
            for name in self._streams.names(group)
        ]


def queried_groups(request: Mapping[str, Any], *, region: str) -> list[str]:
    """Return the names of the groups of a StartQuery request, also for authorization.

    Args:
        request: Its members.

    Raises:
        AwsError: InvalidParameterException: not exactly one of the three members names at least one group;
            ResourceNotFoundException: an ARN of another account or region.
    """
    members = ("logGroupName", "logGroupNames", "logGroupIdentifiers")
    given = [name for name in members if request.get(name)]
    if len(given) != 1:
        raise invalid(f"Give one of {', '.join(members)}; the request has {' and '.join(given) or 'none'}")
    named = request[given[0]]
    groups = [named] if given[0] == "logGroupName" else list(dict.fromkeys(named))
    if len(groups) > _GROUPS_MAX:
        raise invalid(f"{given[0]} has {len(groups)} groups; a query has at most {_GROUPS_MAX}")
    return [group_named(group, region=region) for group in groups]


def _milliseconds(time: int, rest_ms: int) -> int:
    """Return a time in milliseconds; of a whole second its first or its last one."""
    return time if time >= _MILLISECONDS_FROM else time * 1000 + rest_ms


def _described(query: LogQuery) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "queryLanguage": _LANGUAGE,
        "queryId": query.query_id,
        "queryString": query.text,
        "status": str(query.status),
        "createTime": query.created_ms,
        "logGroupName": query.groups[0],
        "userIdentity": query.caller,
    }
    if query.answer is not None:
        shown |= {"bytesScanned": float(query.answer["scanned_bytes"])}
    return shown | ({"queryDuration": query.ended_ms - query.created_ms} if query.ended_ms else {})
