"""Determines the log group of a request, also for authorization, and answers DescribeLogGroups."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.control.logs.groups import GroupRecords
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.store.logs.streams import LogGroup, LogStreams
from tidemill.store.records.base import Summary

_PAGE_GROUPS = 50
_CLASS = "STANDARD"


class LogGroups:
    """DescribeLogGroups: the groups to which jobs and endpoints have written, and those that clients have created."""

    def __init__(self, streams: LogStreams, records: GroupRecords, *, region: str) -> None:
        self._streams = streams
        self._records = records
        self._region = region

    async def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return one page of groups, sorted by name. The token is the last name of the previous page."""
        _check_filters(request)
        records = await self._records.all()
        names = await asyncio.to_thread(self._matching, request, records)
        token = request.get("nextToken")
        if token is not None:
            names = [name for name in names if name > token]
        shown = names[: request.get("limit", _PAGE_GROUPS)]
        groups = await asyncio.to_thread(lambda: [self._streams.describe_group(name) for name in shown])
        short = "logGroupNamePattern" in request
        reply: dict[str, Any] = {
            "logGroups": [self._wire(each, records.get(each.name), short=short) for each in groups]
        }
        return reply | ({"nextToken": shown[-1]} if len(names) > len(shown) else {})

    def _matching(self, request: Mapping[str, Any], created: Iterable[str]) -> list[str]:
        if request.get("logGroupClass", _CLASS) != _CLASS:
            return []
        names = sorted({*self._streams.groups(), *created})
        identifiers = request.get("logGroupIdentifiers")
        if identifiers is not None:
            wanted = {group_named(each, region=self._region) for each in identifiers}
            names = [name for name in names if name in wanted]
        prefix, part = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
        return [name for name in names if name.startswith(prefix) and part in name]

    def _wire(self, group: LogGroup, record: Summary | None, *, short: bool) -> dict[str, Any]:
        arn = f"{_arn_prefix(self._region)}{group.name}"
        times = [at_ms for at_ms in (group.created_ms, record.created_ms if record is not None else 0) if at_ms]
        shown = {"logGroupName": group.name, "creationTime": min(times, default=0), "arn": f"{arn}:*"}
        if short:  # as CloudWatch answers searches by a part of the name
            return shown
        summary = record.summary if record is not None else {}
        set_by_client = {"retentionInDays": summary.get("retention_days"), "kmsKeyId": summary.get("key")}
        return shown | {
            **{member: value for member, value in set_by_client.items() if value is not None},
            "metricFilterCount": 0,
            "storedBytes": group.stored_bytes,
            "logGroupClass": _CLASS,
            "logGroupArn": arn,
        }


def group_of(request: Mapping[str, Any], *, region: str) -> str:
    """Return the name of the group in ``logGroupName`` or ``logGroupIdentifier`` of a request.

    Raises:
        AwsError: InvalidParameterException for none or both, ResourceNotFoundException for an ARN of another account
            or region.
    """
    group, identifier = request.get("logGroupName"), request.get("logGroupIdentifier")
    if bool(group) == bool(identifier):
        raise invalid("Give either logGroupName or logGroupIdentifier, and not both")
    return str(group) if group else group_named(str(identifier), region=region)


def group_named(identifier: str, *, region: str) -> str:
    """Return the name of a group that is given by its name or its ARN.

    Args:
        identifier: Name or ARN.

    Raises:
        AwsError: ResourceNotFoundException for an ARN of another account or region.
    """
    if not identifier.startswith("arn:"):
        return identifier
    name = identifier.removesuffix(":*").removeprefix(_arn_prefix(region))
    if name.startswith("arn:"):
        raise not_found("log group", identifier)
    return name


def invalid(message: str) -> AwsError:
    """Return the error for a member; ``message`` names the member and the allowed values.

    Args:
        message: Names the member and the allowed values.

    Returns:
        InvalidParameterException, HTTP status 400.
    """
    return AwsError(message, code="InvalidParameterException")


def not_found(what: str, name: str) -> AwsError:
    """Return the error for a missing group or stream.

    Args:
        what: ``log group`` or ``log stream``.
        name: The name that the request had.

    Returns:
        ResourceNotFoundException, HTTP status 400.
    """
    return AwsError(f"The specified {what} does not exist: {name!r}", code="ResourceNotFoundException")


def _check_filters(request: Mapping[str, Any]) -> None:
    if "logGroupNamePrefix" in request and "logGroupNamePattern" in request:
        raise invalid("logGroupNamePrefix and logGroupNamePattern cannot be combined; give one of them")
    others = sorted(set(request) & {"logGroupNamePrefix", "logGroupNamePattern", "logGroupClass"})
    if "logGroupIdentifiers" in request and others:
        raise invalid(f"logGroupIdentifiers cannot be combined with {', '.join(others)}")


def _arn_prefix(region: str) -> str:
    return f"arn:aws:logs:{region}:{ACCOUNT_ID}:log-group:"
