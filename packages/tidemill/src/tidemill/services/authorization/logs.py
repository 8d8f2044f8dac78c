"""Permissions that the operations of CloudWatch Logs need.

IAM's resource for a stream is ``log-group:GROUP:log-stream:STREAM``. For operations that search streams by prefix, the
prefix replaces the stream name, so that a policy can limit a job to streams that begin with its name.
"""

from collections.abc import Mapping

from tidemill.core.names import ACCOUNT_ID
from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members, Rule
from tidemill.services.logs.groups import group_named, group_of
from tidemill.services.logs.querying import queried_groups

_RETENTION = ("DeleteRetentionPolicy", "PutRetentionPolicy")


def _stream(region: str, group: str, stream: str) -> str:
    # A colon in a name would move the boundary between group and stream.
    group, stream = (name.replace(":", "%3A") for name in (group, stream))
    return f"arn:aws:logs:{region}:{ACCOUNT_ID}:log-group:{group}:log-stream:{stream}"


def _group(request: Members, region: str) -> str:
    return group_of(request, region=region)


def _describe_groups(request: Members, region: str) -> tuple[Permission, ...]:
    prefix = request.get("logGroupNamePrefix") or ""
    return (Permission("logs:DescribeLogGroups", _stream(region, prefix, "")),)


def _describe_streams(request: Members, region: str) -> tuple[Permission, ...]:
    prefix = request.get("logStreamNamePrefix") or ""
    return (Permission("logs:DescribeLogStreams", _stream(region, _group(request, region), prefix)),)


def _filter(request: Members, region: str) -> tuple[Permission, ...]:
    names = request.get("logStreamNames") or [request.get("logStreamNamePrefix") or ""]
    return tuple(Permission("logs:FilterLogEvents", _stream(region, _group(request, region), name)) for name in names)


def _get(request: Members, region: str) -> tuple[Permission, ...]:
    return (Permission("logs:GetLogEvents", _stream(region, _group(request, region), request["logStreamName"])),)


def _on_group(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"logs:{operation}", _stream(region, request["logGroupName"], "")),)

    return rule


def _on_stream(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"logs:{operation}", _stream(region, request["logGroupName"], request["logStreamName"])),)

    return rule


def _on_tagged(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (
            Permission(f"logs:{operation}", _stream(region, group_named(request["resourceArn"], region=region), "")),
        )

    return rule


def _on_everything(operation: str) -> Rule:
    return lambda request, region: (Permission(f"logs:{operation}", "*"),)


def _start_query(request: Members, region: str) -> tuple[Permission, ...]:
    return tuple(
        Permission("logs:StartQuery", _stream(region, group, "")) for group in queried_groups(request, region=region)
    )


LOGS: Mapping[str, Rule] = {
    **{name: _on_group(name) for name in ("CreateLogGroup", "CreateLogStream", "DeleteLogGroup", *_RETENTION)},
    **{name: _on_stream(name) for name in ("DeleteLogStream", "PutLogEvents")},
    **{name: _on_tagged(name) for name in ("ListTagsForResource", "TagResource", "UntagResource")},
    "StartQuery": _start_query,
    # IAM has no resources for these.
    **{name: _on_everything(name) for name in ("DescribeQueries", "GetQueryResults", "StopQuery")},
    "DescribeLogGroups": _describe_groups,
    "DescribeLogStreams": _describe_streams,
    "FilterLogEvents": _filter,
    "GetLogEvents": _get,
}
"""By operation."""
