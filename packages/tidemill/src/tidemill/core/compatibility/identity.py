"""Rows of CloudWatch Logs, STS and IAM."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows

__all__ = ["IAM_OPERATIONS", "LOGS_OPERATIONS", "STS_OPERATIONS"]

_NOT_MASKED = Recorded("nothing in the logs is masked")

LOGS_OPERATIONS: Mapping[str, Rows] = {
    "DescribeLogStreams": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honored(),
        "logStreamNamePrefix": Honored(),
        "orderBy": Honored(),
        "descending": Honored(),
        "nextToken": Refused("all streams come in one reply, which has no token; ask again without one"),
        "limit": Recorded("all streams come in one reply: AWS's SDKs loop forever on a reply that has a next token"),
    },
    "GetLogEvents": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honored(),
        "logStreamName": Honored(),
        "startTime": Honored(),
        "endTime": Honored(),
        "nextToken": Honored(),
        "limit": Honored(),
        "startFromHead": Honored(),
        "unmask": _NOT_MASKED,
    },
    "FilterLogEvents": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honored(),
        "logStreamNames": Honored("not together with logStreamNamePrefix"),
        "logStreamNamePrefix": Honored(),
        "startTime": Honored(),
        "endTime": Honored(),
        "filterPattern": Honored("terms, with quotes, `?` and `-`; other forms of patterns are refused"),
        "nextToken": Honored(),
        "limit": Honored(),
        "startFromHead": Honored("false is refused: events come in the order of time"),
        "interleaved": Recorded("CloudWatch interleaves events regardless of it"),
        "unmask": _NOT_MASKED,
    },
    "DescribeLogGroups": {
        "accountIdentifiers": Refused("there is one account; leave it out"),
        "logGroupNamePrefix": Honored(),
        "logGroupNamePattern": Honored(),
        "nextToken": Honored(),
        "limit": Honored(),
        "includeLinkedAccounts": Refused("there is one account; leave it out"),
        "logGroupClass": Honored("every group is of the class STANDARD"),
        "logGroupIdentifiers": Honored(),
    },
}

STS_OPERATIONS: Mapping[str, Rows] = {"GetCallerIdentity": {}}

_USER = Honored("required: the owner of the service manages the keys of others")

IAM_OPERATIONS: Mapping[str, Rows] = {
    "GetRole": {"RoleName": Honored()},
    "CreateAccessKey": {"UserName": _USER},
    "ListAccessKeys": {
        "UserName": _USER,
        "Marker": Refused("all keys of a user come in one reply; leave it out"),
        "MaxItems": Recorded("a user has at most two keys, which come in one reply"),
    },
    "DeleteAccessKey": {"UserName": _USER, "AccessKeyId": Honored()},
    "ListUsers": {
        "PathPrefix": Refused("users have no path; leave it out", harmless=("/",)),
        "Marker": Honored(),
        "MaxItems": Honored(),
    },
}
