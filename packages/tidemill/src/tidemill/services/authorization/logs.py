"""Permissions that the operations of CloudWatch Logs need.

IAM's resource for a stream is ``log-group:GROUP:log-stream:STREAM``. For operations that search streams by prefix, the
prefix replaces the stream name, so that a policy can limit a job to streams that begin with its name.
"""

from collections.abc import Mapping

from tidemill.core.names import ACCOUNT_ID
from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members, Rule, by_name, everything
from tidemill.services.logs.groups import group_named, group_of
from tidemill.services.logs.querying import queried_groups


def _stream(region: str, group: str, stream: str) -> str:
    # A colon in a name would move the boundary between group and stream.
    group, stream = (name.replace(":", "%3A") for name in (group, stream))
    return f"arn:aws:logs:{region}:{ACCOUNT_ID}:log-group:{group}:log-stream:{stream}"


def _group_prefix(request: Members, region: str) -> str:
    return _stream(region, request.get("logGroupNamePrefix") or "", "")


def _stream_prefix(request: Members, region: str) -> str:
    return _stream(region, group_of(request, region=region), request.get("logStreamNamePrefix") or "")


def _read(request: Members, region: str) -> str:
    return _stream(region, group_of(request, region=region), request["logStreamName"])


def _group(request: Members, region: str) -> str:
    return _stream(region, request["logGroupName"], "")


def _written(request: Members, region: str) -> str:
    return _stream(region, request["logGroupName"], request["logStreamName"])


def _tagged(request: Members, region: str) -> str:
    return _stream(region, group_named(request["resourceArn"], region=region), "")


def _filter(request: Members, region: str) -> tuple[Permission, ...]:
    group = group_of(request, region=region)
    names = request.get("logStreamNames") or [request.get("logStreamNamePrefix") or ""]
    return tuple(Permission("logs:FilterLogEvents", _stream(region, group, name)) for name in names)


def _start_query(request: Members, region: str) -> tuple[Permission, ...]:
    return tuple(
        Permission("logs:StartQuery", _stream(region, group, "")) for group in queried_groups(request, region=region)
    )


LOGS: Mapping[str, Rule] = {
    **by_name("logs", _group, "CreateLogGroup", "CreateLogStream", "DeleteLogGroup"),
    **by_name("logs", _group, "DeleteRetentionPolicy", "PutRetentionPolicy"),
    **by_name("logs", _written, "DeleteLogStream", "PutLogEvents"),
    **by_name("logs", _tagged, "ListTagsForResource", "TagResource", "UntagResource"),
    "StartQuery": _start_query,
    # IAM has no resources for these.
    **by_name("logs", everything, "DescribeQueries", "GetQueryResults", "StopQuery"),
    **by_name("logs", _group_prefix, "DescribeLogGroups"),
    **by_name("logs", _stream_prefix, "DescribeLogStreams"),
    "FilterLogEvents": _filter,
    **by_name("logs", _read, "GetLogEvents"),
}
"""By operation."""
