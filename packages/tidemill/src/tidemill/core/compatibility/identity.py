"""Rows of CloudWatch Logs, STS and IAM."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Rows

__all__ = ["IAM_OPERATIONS", "LOGS_OPERATIONS", "STS_OPERATIONS"]

_NOT_MASKED = Recorded("nothing in the logs is masked")

LOGS_OPERATIONS: Mapping[str, Rows] = {
    "DescribeLogStreams": {
        "logGroupName": Honoured("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honoured(),
        "logStreamNamePrefix": Honoured(),
        "orderBy": Honoured(),
        "descending": Honoured(),
        "nextToken": Refused("all streams come in one reply, which has no token; ask again without one"),
        "limit": Recorded("all streams come in one reply: AWS's SDKs loop forever on a reply that has a next token"),
    },
    "GetLogEvents": {
        "logGroupName": Honoured("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honoured(),
        "logStreamName": Honoured(),
        "startTime": Honoured(),
        "endTime": Honoured(),
        "nextToken": Honoured(),
        "limit": Honoured(),
        "startFromHead": Honoured(),
        "unmask": _NOT_MASKED,
    },
    "FilterLogEvents": {
        "logGroupName": Honoured("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honoured(),
        "logStreamNames": Honoured("not together with logStreamNamePrefix"),
        "logStreamNamePrefix": Honoured(),
        "startTime": Honoured(),
        "endTime": Honoured(),
        "filterPattern": Honoured("terms, with quotes, `?` and `-`; other forms of patterns are refused"),
        "nextToken": Honoured(),
        "limit": Honoured(),
        "startFromHead": Honoured("false is refused: events come in the order of time"),
        "interleaved": Recorded("CloudWatch interleaves events regardless of it"),
        "unmask": _NOT_MASKED,
    },
    "DescribeLogGroups": {
        "accountIdentifiers": Refused("there is one account; leave it out"),
        "logGroupNamePrefix": Honoured(),
        "logGroupNamePattern": Honoured(),
        "nextToken": Honoured(),
        "limit": Honoured(),
        "includeLinkedAccounts": Refused("there is one account; leave it out"),
        "logGroupClass": Honoured("every group is of the class STANDARD"),
        "logGroupIdentifiers": Honoured(),
    },
}

STS_OPERATIONS: Mapping[str, Rows] = {"GetCallerIdentity": {}}

_USER = Honoured("required: the owner of the service manages the keys of others")

IAM_OPERATIONS: Mapping[str, Rows] = {
    "GetRole": {"RoleName": Honoured()},
    "CreateAccessKey": {"UserName": _USER},
    "ListAccessKeys": {
        "UserName": _USER,
        "Marker": Refused("all keys of a user come in one reply; leave it out"),
        "MaxItems": Recorded("a user has at most two keys, which come in one reply"),
    },
    "DeleteAccessKey": {"UserName": _USER, "AccessKeyId": Honoured()},
    "ListUsers": {
        "PathPrefix": Refused("users have no path; leave it out", harmless=("/",)),
        "Marker": Honoured(),
        "MaxItems": Honoured(),
    },
}
